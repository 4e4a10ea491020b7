"""Several replicas of prompt, am and cam: they agree where keys go, as a single one would decide for the whole batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.agreement import JobReplicas, mean
from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.prompt.accumulator import AccumulatedBatch
from millrace_jobs.partitioners.prompt.agreeing import agreed_fragments
from millrace_jobs.partitioners.prompt.packing import capacities, split_cutoff
from millrace_jobs.partitioners.registry import initial_states
from millrace_jobs.partitioners.state import PartitionerState, pack, unpack
from millrace_jobs.partitioners.warm_keys import WARM, WarmKeys
from millrace_research.papers.streams import real
from placements import placement_cost

from .streams import make, zipf

AGREEING = ["prompt", "am", "cam"]
BATCHES = 4


def costs(stream, name, replicas, **how):
    """Return the cost of each batch but the first one, from which replicas know nothing yet."""
    return JobReplicas(name, replicas, **how).costs(np.array_split(stream, BATCHES))[1:]


def made_stream(skew):
    return seeded_hashes(zipf(BATCHES * 100_000, 100_000, skew), 0)


def assert_local_and_balanced(stream, name, replicas, dealt=False):
    one, several = (costs(stream, name, m, dealt=dealt) for m in (1, replicas))
    alone = costs(stream, name, replicas, dealt=dealt, agree=False)
    assert mean(several, "replication_factor") < 1.1 * mean(one, "replication_factor")
    largest = [1 + mean(run, "load_imbalance_ratio") for run in (several, one, alone)]
    assert largest[0] < 1.1 * max(largest[1:])
    most_keys = [
        np.mean(
            [cost.distinct_keys * cost.replication_factor * (1 + cost.cardinality_imbalance_ratio) for cost in costs]
        )
        for costs in (several, alone)
    ]
    assert most_keys[0] < 1.02 * most_keys[1]


@pytest.mark.parametrize("replicas", [2, 8])
@pytest.mark.parametrize("skew", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("name", AGREEING)
def test_keys_stay_together_at_no_cost_of_balance(name, skew, replicas):
    assert_local_and_balanced(made_stream(skew), name, replicas)


@pytest.mark.data
@pytest.mark.parametrize("replicas", [2, 4, 8])
@pytest.mark.parametrize("stream", ["w106", "orm-busy"])
@pytest.mark.parametrize("dealt", [False, True], ids=["ranges", "dealt"])
@pytest.mark.parametrize("name", AGREEING)
def test_real_keys_stay_together_at_no_cost_of_balance(data, name, dealt, stream, replicas):
    data("caffeine_traces")
    assert_local_and_balanced(real(stream).keys[: BATCHES * 100_000], name, replicas, dealt)


@pytest.mark.parametrize("name", ["lm", "dalton"])
@pytest.mark.parametrize("skew", [0.5, 1.0, 1.5])
def test_lm_and_dalton_are_as_local_with_replicas_of_their_own_states(name, skew):
    stream = made_stream(skew)
    one, several = (mean(costs(stream, name, m), "replication_factor") for m in (1, 8))
    assert several < 1.1 * one


@pytest.mark.parametrize("name", AGREEING)
@given(seed=st.integers(0, 99), workers=st.integers(1, 70), replicas=st.integers(2, 5), other=st.integers(2, 5))
@settings(max_examples=30)
def test_a_batch_that_is_replayed_goes_where_it_went(name, seed, workers, replicas, other):
    batches = np.array_split(zipf(4000, 300, 1.0, seed), 4)
    jobs = JobReplicas(name, replicas, workers), JobReplicas(name, replicas, workers)
    for number, batch in enumerate(batches):
        ids = [job.place(batch) for job in jobs]
        assert ids[0].tolist() == ids[1].tolist()
        assert 0 <= ids[0].min() <= ids[0].max() < jobs[0].workers
        if number == 1:  # more or fewer replicas and workers go on from the same states
            for job in jobs:
                job.number, job.workers = other, workers + 3


@pytest.mark.parametrize("name", ["am", "cam"])
@pytest.mark.parametrize("cardinality", ["exact", "hll"])
def test_a_warm_key_is_on_the_same_worker_with_all_replicas(name, cardinality):
    batch = zipf(20_000, 40, 1.0)
    states = []
    for _ in range(2):
        made = [make(name, 8, replica, 4, cardinality=cardinality) for replica in range(4)]
        parameters = {"cardinality": cardinality}
        begun = initial_states(name, states, workers=8, replicas=4, seed=1, parameters=parameters)
        for partitioner, state in zip(made, begun, strict=False):
            partitioner.restore(state)
        ids = [partitioner.route(batch) for partitioner in made]
        for partitioner in made:
            partitioner.advance()
        states = [partitioner.save() for partitioner in made]
    if cardinality == "exact":
        assert len({tuple(placed.tolist()) for placed in ids}) == 1
    assert placement_cost(np.concatenate(ids), np.concatenate([batch] * 4), 8).replication_factor < 1.2


@pytest.mark.parametrize("name", AGREEING)
def test_what_replicas_tell_each_other_is_bounded(name):
    job = JobReplicas(name, 3, workers=8)
    for batch in np.array_split(np.repeat(np.arange(50_000, dtype=np.uint64), 4), 2):
        job.place(batch)
    assert max(len(state) for state in job.states) < 1000 + 16 * WARM * 8


@pytest.mark.parametrize("name", ["am", "cam"])
def test_a_single_replica_learns_nothing(name):
    """It is the paper's algorithm, batch by batch."""
    first, second = np.array_split(zipf(4000, 300, 1.0), 2)
    job = JobReplicas(name, 1)
    job.place(first)
    assert job.place(second).tolist() == JobReplicas(name, 1).place(second).tolist()


counts = st.lists(st.integers(1, 60), min_size=1, max_size=60).map(lambda found: np.sort(found)[::-1].astype(np.int32))
warm_counts = st.lists(st.integers(2, 500), max_size=80)


@given(counts, warm_counts, st.integers(1, 12), st.integers(0, 5))
def test_a_slice_is_partitioned_into_equal_blocks_whatever_is_warm(counts, warmth, blocks, seed):
    keys = np.arange(len(counts), dtype=np.uint64)
    warm = WarmKeys.of(np.arange(len(warmth), dtype=np.uint64), np.array(warmth, np.int64), sum(warmth), 7, blocks)
    records = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    fragments = agreed_fragments(AccumulatedBatch(keys, counts, records), warm, blocks, seed)
    owners = np.repeat(keys, np.diff(fragments.starts))
    assert np.bincount(owners.astype(int), fragments.sizes, len(keys)).tolist() == counts.tolist()
    assert fragments.sizes.min() > 0
    assert len({*zip(owners.tolist(), fragments.blocks.tolist(), strict=True)}) == len(owners)
    sizes = np.bincount(fragments.blocks, fragments.sizes, blocks)
    excess = sizes - capacities(len(records), blocks)
    keys_per_block = (
        -(-len(keys) // blocks) + np.bincount(fragments.blocks[fragments.starts[:-1]], minlength=blocks).max()
    )
    assert excess.max() <= split_cutoff(len(records), len(keys), blocks) * keys_per_block


def test_warm_keys_of_replicas_are_added_up():
    one = WarmKeys.of(np.array([5, 6, 7], np.uint64), np.array([9, 1, 2]), 20, 10, 1)
    other = WarmKeys.of(np.array([7, 8], np.uint64), np.array([8, 3]), 30, 12, 1)
    joined = one.joined([other], 1)
    assert (joined.keys.tolist(), joined.counts.tolist()) == ([7, 5, 8], [10, 9, 3])
    assert (joined.records, joined.distinct) == (50, 22)


@pytest.mark.parametrize("name", AGREEING)
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"warm_counts": [3]}, "no usable warm keys"),
        ({"warm_keys": [4, 4], "warm_counts": [3, 3]}, "no usable warm keys"),
        ({"warm_keys": [4], "warm_counts": [0]}, "implausible counts of warm keys"),
        ({"warm_totals": [1, 2]}, "implausible counts of warm keys"),
    ],
)
def test_a_state_with_impossible_warm_keys_is_refused(name, changed, why):
    job = JobReplicas(name, 2, workers=4)
    job.place(zipf(500, 20, 1.0))
    saved = unpack(job.states[0], name, 1)
    vectors = saved.vectors | {key: np.array(value, np.int64) for key, value in changed.items()}
    state = pack(PartitionerState(name, 1, saved.workers, saved.counters, vectors))
    partitioner = make(name, 4, 0, 2)
    before = partitioner.save()
    with pytest.raises(ValueError, match=why):
        partitioner.restore(state)
    assert partitioner.save() == before
