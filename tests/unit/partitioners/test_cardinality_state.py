"""Windows, saved states, merging and resizing of CM, AM, cAM and LM."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_jobs.partitioners.state import PartitionerState, pack, unpack

from .streams import keys, make, workers, zipf

NAMES = ["cm", "am", "cam", "lm"]
every = [
    pytest.mark.parametrize("name", NAMES),
    pytest.mark.parametrize("cardinality", ["exact", "hll"]),
]


def each(test):
    """Run ``test`` for each algorithm and structure."""
    for mark in every:
        test = mark(test)
    return test


def leads(loads):
    return (loads - loads.min()).tolist()


def holders(ids, stream):
    """Keys with the set of workers that they went to."""
    where = {}
    for key, worker in zip(stream.tolist(), ids.tolist(), strict=True):
        where.setdefault(key, set()).add(worker)
    return where


@each
@given(keys, keys, keys, workers, workers, st.integers(1, 3))
@settings(max_examples=20)
def test_a_window_restored_between_slides_goes_on_without_interruption(
    name, cardinality, first, second, third, n, other, slides
):
    running, restored = (make(name, size, cardinality=cardinality, slides=slides) for size in (n, other))
    running.route(first)
    running.advance()
    running.route(second)
    restored.restore(running.save())
    for block in (third, first, second):
        assert restored.route(block).tolist() == running.route(block).tolist()
        assert restored.save() == running.save()
        for partitioner in (running, restored):
            partitioner.advance()


@each
def test_between_windows_nothing_is_left(name, cardinality):
    partitioner = make(name, 128, cardinality=cardinality)
    fresh = partitioner.save()
    partitioner.route(np.arange(5000, dtype=np.uint64))
    assert len(partitioner.save()) > 10 * len(fresh)
    partitioner.advance()
    assert partitioner.save() == fresh
    assert len(fresh) < 4000


@each
@given(st.lists(keys, min_size=1, max_size=4), workers)
@settings(max_examples=20)
def test_merging_adds_records_and_unites_keys(name, cardinality, streams, n):
    replicas = [make(name, n, cardinality=cardinality) for _ in streams]
    ids = [replica.route(stream) for replica, stream in zip(replicas, streams, strict=True)]
    replicas[0].merge(replicas[1:])
    ids, stream = np.concatenate(ids), np.concatenate(streams)
    assert replicas[0].loads.tolist() == leads(np.bincount(ids, minlength=n))
    distinct = [len(np.unique(stream[ids == worker])) for worker in range(n)]
    if cardinality == "exact":
        assert replicas[0].cardinalities.tolist() == distinct
    elif name in ("cm", "lm"):  # the others do not count what they take for known
        assert replicas[0].cardinalities == pytest.approx(distinct, rel=0.05, abs=1)


@each
@given(st.lists(st.lists(keys, min_size=3, max_size=3), min_size=1, max_size=4), workers)
@settings(max_examples=10)
def test_a_merged_state_that_all_restore_counts_once(name, cardinality, batches, n):
    total, placed, state = np.zeros(n, int), set(), make(name, n, cardinality=cardinality, slides=9).save()
    for batch in batches:
        replicas = [make(name, n, cardinality=cardinality, slides=9) for _ in batch]
        for replica, stream in zip(replicas, batch, strict=True):
            replica.restore(state)
            ids = replica.route(stream)
            total += np.bincount(ids, minlength=n)
            placed |= set(zip(stream.tolist(), ids.tolist(), strict=True))
        replicas[0].merge(replicas[1:])
        assert replicas[0].loads.tolist() == leads(total)
        if cardinality == "exact":
            assert replicas[0].cardinalities.sum() == len(placed)
        replicas[0].advance()
        state = replicas[0].save()


@pytest.mark.parametrize("name", ["am", "cam"])
@given(keys, keys, workers)
def test_a_key_known_to_another_replica_goes_where_that_one_sent_it(name, mine, theirs, n):
    one, two = make(name, n), make(name, n)
    before = [holders(one.route(mine), mine), holders(two.route(theirs), theirs)]
    one.merge([two])
    for key, where in holders(one.route(theirs), theirs).items():
        assert len(where) == 1
        assert where <= before[0].get(key, set()) | before[1][key]


@pytest.mark.parametrize("name", ["am", "cam"])
@given(keys, workers, workers)
def test_a_key_stays_on_its_worker_across_a_resize_if_that_stays(name, stream, n, resized):
    partitioner = make(name, n)
    before = holders(partitioner.route(stream), stream)
    partitioner.resize(resized)
    for key, where in holders(partitioner.route(stream), stream).items():
        assert len(where) == 1
        assert where == before[key] or max(before[key]) >= resized


@each
@given(keys, workers, workers)
@settings(max_examples=20)
def test_resizing_keeps_loads_and_cardinalities_of_workers_that_stay(name, cardinality, stream, n, resized):
    partitioner = make(name, n, cardinality=cardinality)
    partitioner.route(stream)
    loads, cardinalities = partitioner.loads, partitioner.cardinalities.tolist()
    partitioner.resize(resized)
    new = [int(loads.mean())] * 40
    assert partitioner.loads.tolist() == leads(np.array([*loads.tolist(), *new][:resized]))
    assert partitioner.cardinalities.tolist() == [*cardinalities, *[0] * 40][:resized]


@pytest.mark.parametrize(("n", "resized"), [(60, 130), (130, 60), (64, 65), (65, 64)])
def test_resizing_across_words_of_workers_keeps_holders(n, resized):
    stream = zipf(rows=3000, distinct=800, exponent=0.5)
    partitioner = make("am", n)
    before = holders(partitioner.route(stream), stream)
    partitioner.resize(resized)
    restored = make("am", 3)
    restored.restore(partitioner.save())
    after = holders(restored.route(stream), stream)
    assert all(after[key] == before[key] for key in before if max(before[key]) < resized)


def test_merging_other_workers_or_structures_is_refused_and_leaves_no_trace():
    one, same = make("am", 3), make("am", 3)
    same.route(np.arange(10, dtype=np.uint64))
    with pytest.raises(ValueError, match="cannot merge loads of 4 workers into those of 3"):
        one.merge([same, make("am", 4)])
    with pytest.raises(ValueError, match=r"cannot merge exact with estimated keys; give all .* the same 'cardinality'"):
        one.merge([same, make("am", 3, cardinality="hll")])
    assert one.save() == make("am", 3).save()


GOOD = {"loads": [0, 0, 0], "shared": [0, 0, 0], "keys": [3, 5], "holders": [0b001, 0b110]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"loads": [0, 0]}, "has no usable loads"),
        ({"shared": [0, 0, 2**57]}, "has no usable shared"),
        ({"keys": None}, "cannot be restored: its keys are not in order, or not all of them have 1 words"),
        ({"holders": None}, "its keys are not in order, or not all of them have 1 words"),
        ({"holders": [0b001]}, "its keys are not in order, or not all of them have 1 words"),
        ({"keys": [5, 3]}, "its keys are not in order"),
        ({"keys": [5, 5]}, "its keys are not in order"),
        ({"keys": [-1, 5]}, "its keys are not in order"),
        ({"holders": [0b001, 0]}, "keys on no worker, or on workers beyond its 3"),
        ({"holders": [0b001, 0b1000]}, "keys on no worker, or on workers beyond its 3"),
        ({"holders": [0b001, -1]}, "keys on no worker, or on workers beyond its 3"),
    ],
)
def test_an_impossible_state_is_refused_and_leaves_no_trace(changed, message):
    def saved(vectors, slide=0):
        arrays = {name: np.array(vector, np.int64) for name, vector in vectors.items() if vector is not None}
        return pack(PartitionerState("am", 1, 3, {"slide": slide}, arrays))

    partitioner = make("am", 5)
    before = partitioner.save()
    with pytest.raises(ValueError, match=message):
        partitioner.restore(saved(GOOD | changed))
    with pytest.raises(ValueError, match="the saved number of slides is -1"):
        partitioner.restore(saved(GOOD, slide=-1))
    assert partitioner.save() == before
    partitioner.restore(saved(GOOD))
    assert partitioner.cardinalities.tolist() == [1, 1, 1]


@pytest.mark.parametrize("registers", [np.zeros(3, np.int64), np.full(3 * 512, 32, np.int64)])
def test_impossible_registers_are_refused(registers):
    loads = np.zeros(3, np.int64)
    state = pack(PartitionerState("cm", 1, 3, {"slide": 0}, {"loads": loads, "shared": loads, "registers": registers}))
    with pytest.raises(ValueError, match="its 3 workers do not each have 4096 registers of at most 31"):
        make("cm", 3, cardinality="hll").restore(state)


def test_a_window_counted_in_the_other_way_is_refused():
    for there, here in (("exact", "hll"), ("hll", "exact")):
        source = make("lm", 3, cardinality=there)
        source.route(np.arange(9, dtype=np.uint64))
        with pytest.raises(ValueError, match="the saved state of lm cannot be restored"):
            make("lm", 3, cardinality=here).restore(source.save())


def test_the_saved_keys_are_in_order_whatever_order_they_came_in():
    stream = np.arange(2000, dtype=np.uint64)
    ones = [make("am", 1), make("am", 1)]
    for partitioner, order in zip(ones, (stream, stream[::-1]), strict=True):
        partitioner.route(order)
    assert ones[0].save() == ones[1].save()
    assert unpack(ones[0].save(), "am", 1).vectors["keys"].tolist() == stream.tolist()
