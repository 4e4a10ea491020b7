import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.pkg import PartialKeyGrouping
from millrace_jobs.partitioners.state import PartitionerState, pack
from placements import placement_cost

from . import oracles
from .streams import blocks, keys, make, seeds, workers, zipf

choices = st.integers(1, 6)


def pkg(n, seed=1, choices=2, slides=1):
    return PartialKeyGrouping(workers=n, seed=seed, choices=choices, slides=slides)


def leads(loads):
    return [load - min(loads) for load in loads]


@given(keys, workers, seeds, choices, st.lists(st.integers(0, 200), max_size=5))
def test_agrees_with_the_oracle_step_by_step(stream, n, seed, d, cuts):
    partitioner, loads = pkg(n, seed, d), [0] * n
    for block in blocks(stream, cuts):
        expected = oracles.partial_key_grouping(map(int, block), n, seed, d, loads)
        assert partitioner.route(block).tolist() == expected
        assert partitioner.loads.tolist() == leads(loads)


@given(st.integers(0, 2**64 - 1), workers, seeds, choices)
def test_a_key_alone_takes_its_distinct_candidates_in_turn(key, n, seed, d):
    ids = pkg(n, seed, d).route(np.full(60, key, np.uint64)).tolist()
    candidates = oracles.candidates(key, n, seed, d)
    assert len(set(candidates)) == min(d, n)
    assert ids == (candidates * 60)[:60]


@given(keys, workers, choices)
def test_a_key_has_at_most_d_workers_over_all_replicas(stream, n, d):
    where = {}
    for replica in range(3):
        partitioner = make("pkg", n, replica, 3, choices=d)
        partitioner.route(zipf(rows=replica * 10, distinct=5, exponent=1.0))
        for key, worker in zip(stream.tolist(), partitioner.route(stream).tolist(), strict=True):
            where.setdefault(key, set()).add(worker)
    assert all(len(ids) <= d for ids in where.values())


@given(keys, workers, seeds)
def test_one_choice_is_hashing(stream, n, seed):
    expected = make("hash", n, seed=seed).route(stream).tolist()
    assert make("pkg", n, seed=seed, choices=1).route(stream).tolist() == expected


@given(keys, workers)
def test_as_many_choices_as_workers_balance_perfectly(stream, n):
    loads = np.bincount(pkg(n, choices=n).route(stream), minlength=n)
    assert loads.max() - loads.min() <= 1


def test_candidates_are_spread_evenly_over_pairs():
    pairs = np.zeros((10, 10), int)
    for key in range(9000):
        pairs[tuple(oracles.candidates(key, 10, 5, 2))] += 1
    assert not pairs.diagonal().any()
    observed = pairs[~np.eye(10, dtype=bool)]
    assert ((observed - 100) ** 2 / 100).sum() < 163  # 89 degrees of freedom, 5.5 standard deviations


def test_keys_that_come_once_fill_the_workers_evenly():
    stream = np.arange(100_000, dtype=np.uint64)
    assert placement_cost(pkg(10).route(stream), stream, 10).load_imbalance < 5


def test_skew_that_hashing_cannot_carry_is_balanced():
    """Paper 001: with p1 under 2/n, two choices keep the imbalance small where hashing lets it grow."""
    stream = zipf(rows=200_000, distinct=10_000, exponent=1.0)  # the first key has 10 % of the records
    two, one = (placement_cost(make(name, 8).route(stream), stream, 8) for name in ("pkg", "hash"))
    assert two.load_imbalance < 0.001 * len(stream)
    assert one.load_imbalance > 50 * two.load_imbalance
    assert one.replication_factor == 1.0
    assert 1.0 < two.replication_factor <= 2.0


@given(st.lists(keys, min_size=1, max_size=4), workers)
def test_the_imbalance_of_all_is_at_most_the_sum_of_the_local_ones(streams, n):
    """Paper 001, local load estimation."""
    local = [np.bincount(pkg(n).route(stream), minlength=n) for stream in streams]
    total = sum(local)
    assert total.max() - total.mean() <= sum(loads.max() - loads.mean() for loads in local) + 1e-9


@given(keys, workers, st.integers(1, 4))
def test_loads_are_forgotten_with_their_window(stream, n, slides):
    partitioner = pkg(n, slides=slides)
    for _ in range(slides):
        partitioner.route(stream)
        partitioner.advance()
    assert partitioner.save() == pkg(n, slides=slides).save()


def test_a_hot_key_that_has_gone_leaves_no_trace_in_the_next_batch():
    stream = zipf(rows=20_000, distinct=5000, exponent=0.0)
    partitioner = pkg(8)
    partitioner.route(np.zeros(100_000, np.uint64))
    partitioner.advance()
    assert placement_cost(partitioner.route(stream), stream, 8).load_imbalance_ratio < 0.01


@given(keys, workers)
def test_loads_of_the_whole_stream_stay(stream, n):
    partitioner, expected = pkg(n, slides=0), [0] * n
    for _ in range(3):
        assert partitioner.route(stream).tolist() == oracles.partial_key_grouping(map(int, stream), n, 1, 2, expected)
        partitioner.advance()
    assert partitioner.loads.tolist() == leads(expected)


@given(st.lists(keys, min_size=1, max_size=4), workers)
def test_merging_adds_local_loads(streams, n):
    replicas = [pkg(n) for _ in streams]
    total = np.zeros(n, int)
    for replica, stream in zip(replicas, streams, strict=True):
        total += np.bincount(replica.route(stream), minlength=n)
    replicas[0].merge(replicas[1:])
    assert replicas[0].loads.tolist() == leads(total.tolist())


@given(st.lists(st.lists(keys, min_size=3, max_size=3), min_size=1, max_size=4), workers)
def test_a_merged_state_that_all_restore_counts_once(batches, n):
    """Each batch, three replicas start from the merged state of the batch before."""
    total, state = np.zeros(n, int), pkg(n).save()
    for batch in batches:
        replicas = [pkg(n) for _ in batch]
        for replica, stream in zip(replicas, batch, strict=True):
            replica.restore(state)
            total += np.bincount(replica.route(stream), minlength=n)
        replicas[0].merge(replicas[1:])
        assert replicas[0].loads.tolist() == leads(total.tolist())
        state = replicas[0].save()


def test_merging_other_numbers_of_workers_is_refused_and_leaves_no_trace():
    one, same, other = pkg(3), pkg(3), pkg(4)
    same.route(np.arange(10, dtype=np.uint64))
    with pytest.raises(ValueError, match="cannot merge loads of 4 workers into those of 3"):
        one.merge([same, other])
    assert one.save() == pkg(3).save()


@given(keys, workers, workers)
def test_resizing_keeps_loads_and_starts_new_workers_at_their_mean(stream, n, resized):
    partitioner = pkg(n)
    partitioner.route(stream)
    before = partitioner.loads
    partitioner.resize(resized)
    mean = int(before.mean())
    expected = [*before.tolist(), *[mean] * 40][:resized]
    assert partitioner.loads.tolist() == leads(expected)
    if resized >= n:  # growing leaves the imbalance as it was, but for rounding
        after = partitioner.loads
        assert after.max() - after.mean() == pytest.approx(before.max() - before.mean(), abs=1)


def test_a_new_worker_gets_its_share_and_no_more():
    stream = zipf(rows=80_000, distinct=10_000, exponent=0.5)
    partitioner = pkg(7)
    partitioner.route(stream)
    partitioner.resize(8)
    loads = np.bincount(partitioner.route(stream), minlength=8)
    assert loads[7] == pytest.approx(10_000, rel=0.05)


@given(keys, keys, workers, workers)
def test_what_came_by_merge_counts_once_also_across_a_resize(before, after, n, resized):
    one, two = pkg(n), pkg(n)
    one.route(zipf(rows=1000, distinct=7, exponent=1.0))
    one.merge([])
    two.restore(one.save())
    own = np.append(np.bincount(two.route(before), minlength=n), np.zeros(40, int))[:resized]
    for replica in (one, two):
        replica.resize(resized)
    own += np.bincount(two.route(after), minlength=resized)
    expected = leads((one.loads + own).tolist())
    one.merge([two])
    assert one.loads.tolist() == expected


def test_loads_at_the_limit_still_decide_and_do_not_overflow():
    loads = np.array([2**56, 0, 2**56], np.int64)
    state = pack(PartitionerState("pkg", 1, 3, {"slide": 0}, {"loads": loads, "shared": np.zeros(3, np.int64)}))
    replicas = [pkg(3, choices=3) for _ in range(65)]
    for replica in replicas:
        replica.restore(state)
    replicas[0].merge(replicas[1:])
    assert replicas[0].loads.tolist() == [65 * 2**56, 0, 65 * 2**56]
    assert replicas[0].route(np.arange(5, dtype=np.uint64)).tolist() == [1] * 5


@pytest.mark.parametrize(
    "vectors",
    [
        {},
        {"loads": [0, 0, 0]},
        {"loads": [0, 0], "shared": [0, 0, 0]},
        {"loads": [0, 0, 2**57], "shared": [0, 0, 0]},
        {"loads": [0, 0, 0], "shared": [0, 0, -(2**63)]},
    ],
)
def test_a_state_without_usable_loads_is_refused(vectors):
    arrays = {name: np.array(vector, np.int64) for name, vector in vectors.items()}
    with pytest.raises(ValueError, match="the saved state of pkg has no usable"):
        pkg(3).restore(pack(PartitionerState("pkg", 1, 3, {"slide": 0}, arrays)))
