import pytest

from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.registry import initial_states

from .streams import EVERY, PARAMETERS, make, zipf

by_name = pytest.mark.parametrize("name", EVERY)


def ended(name, workers, replicas):
    """What the replicas of a batch have left."""
    states = []
    for replica in range(replicas):
        partitioner = make(name, workers, replica, replicas)
        partitioner.route(zipf(500, 20, 1.2, seed=replica))
        partitioner.advance()
        states.append(partitioner.save())
    return states


def begin(name, states, workers, replicas):
    return initial_states(name, states, workers=workers, replicas=replicas, seed=1, parameters=PARAMETERS.get(name, {}))


@by_name
@pytest.mark.parametrize(("before", "after"), [(3, 3), (2, 5)])
def test_replicas_learn_together_or_keep_their_own_of_which_new_ones_get_copies_in_turn(name, before, after):
    """With copies of the first one alone, all new replicas would place alike."""
    states = ended(name, 8, before)
    begun = begin(name, states, 8, after)
    if registry.is_cooperative(name, PARAMETERS.get(name, {})):
        assert len(set(begun)) == 1
    else:
        assert begun == [states[replica % before] for replica in range(after)]


@by_name
@pytest.mark.parametrize("workers", [1, 5, 8, 30])
@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
def test_any_numbers_of_workers_and_replicas_can_follow(name, workers, replicas):
    begun = begin(name, ended(name, 8, 3), workers, replicas)
    assert len(begun) == replicas
    assert begun == begin(name, ended(name, 8, 3), workers, replicas)
    for replica, state in enumerate(begun):
        partitioner = make(name, workers, replica, replicas)
        partitioner.restore(state)
        assert partitioner.workers == workers
        ids = partitioner.route(zipf(500, 20, 1.2))
        assert ids.min() >= 0
        assert ids.max() < workers


@by_name
def test_without_states_replicas_start_over(name):
    assert begin(name, [], 8, 3) == []


@by_name
def test_what_is_no_state_is_refused(name):
    with pytest.raises(ValueError, match="not the state of a partitioner"):
        begin(name, [b"?"], 8, 1)


@pytest.mark.parametrize("name", ["dchoices", "wchoices", "dagreedy"])
@pytest.mark.parametrize("chain", [(1, 2, 1), (1, 4, 2, 1), (4, 2, 1), (3, 5, 1)])
def test_frequencies_stay_what_they_are_however_replicas_come_and_go(name, chain):
    """Copies that are merged again count once; and between micro-batches there are no loads that could add up."""
    first, *later = chain
    states = ended(name, 8, first)
    before = shares(name, states[0])
    for replicas in later:
        states = begin(name, states, 8, replicas)
    after = shares(name, states[0])
    heaviest = sorted(before, key=before.__getitem__)[-3:]
    assert all(abs(after[key] - before[key]) < 0.1 for key in heaviest)


def shares(name, state):
    """The frequencies that a replica believes in; it has no loads."""
    partitioner = make(name, 8)
    partitioner.restore(state)
    assert not partitioner.loads.any()
    summary = partitioner.summary
    return dict(zip(summary.keys.tolist(), (summary.counts / summary.total).tolist(), strict=True))
