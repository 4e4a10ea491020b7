"""What the interface promises, for every algorithm that routes, and for the class of a user."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.base import BatchPartitioner

from .streams import EVERY, ROUTED, blocks, keys, make, seeds, workers

pytestmark = pytest.mark.parametrize("name", EVERY)
cuts = st.lists(st.integers(0, 200), max_size=8)

FROZEN = {
    "shuffle": [2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6],
    "hash": [2, 5, 2, 3, 5, 5, 5, 5, 5, 2, 2, 6],
    "pkg": [2, 5, 2, 3, 0, 5, 3, 5, 3, 2, 2, 6],
    "cm": [2, 5, 2, 3, 0, 5, 5, 5, 5, 5, 2, 6],
    "am": [2, 5, 2, 3, 0, 5, 5, 5, 5, 2, 2, 6],
    "cam": [2, 5, 2, 3, 0, 5, 5, 5, 5, 2, 2, 6],
    "lm": [2, 5, 2, 3, 0, 5, 3, 5, 5, 2, 5, 6],
    "dchoices": [2, 0, 1, 3, 4, 5, 6, 0, 1, 2, 3, 4],
    "wchoices": [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4],
    "dagreedy": [0, 1, 2, 3, 4, 5, 6, 1, 5, 0, 0, 2],
    "dalton": [2, 5, 2, 3, 5, 5, 5, 5, 5, 2, 2, 6],
    "prompt": [1, 0, 2, 3, 4, 2, 3, 4, 6, 1, 0, 5],
    "python": [0, 1, 5, 6, 3, 1, 1, 1, 1, 0, 0, 3],
}


def placed(partitioner, stream):
    """The workers of records that come in blocks; to a batch partitioner, in those of one micro-batch."""
    if not isinstance(partitioner, BatchPartitioner):
        return np.concatenate([partitioner.route(block) for block in stream])
    for block in stream:
        partitioner.accumulate(block)
    return partitioner.cut()


@given(stream=keys, n=workers, seed=seeds)
def test_ids_are_workers(name, stream, n, seed):
    ids = make(name, n, seed=seed).route(stream)
    assert ids.dtype == np.int32
    assert ids.shape == stream.shape
    assert ((ids >= 0) & (ids < n)).all()


@given(stream=keys, n=workers, seed=seeds, cuts=cuts)
def test_blocks_may_end_anywhere(name, stream, n, seed, cuts):
    whole, cut = make(name, n, seed=seed), make(name, n, seed=seed)
    expected = whole.route(stream)
    assert placed(cut, blocks(stream, cuts)).tolist() == expected.tolist()
    assert cut.save() == whole.save()


@given(stream=keys, n=workers, other=workers, seed=seeds, cut=st.integers(0, 200))
def test_a_restored_state_goes_on_without_interruption(name, stream, n, other, seed, cut):
    first, second = blocks(stream, [cut])
    running = make(name, n, seed=seed)
    running.route(first)
    state = running.save()
    restored = make(name, other, seed=seed)
    restored.restore(state)
    assert restored.workers == n
    assert restored.save() == state
    assert restored.route(second).tolist() == running.route(second).tolist()


@given(stream=keys, sizes=st.lists(workers, min_size=1, max_size=5), seed=seeds)
def test_resizing_is_deterministic_and_keeps_ids_in_range(name, stream, sizes, seed):
    one, two = make(name, seed=seed), make(name, seed=seed)
    for n in sizes:
        for partitioner in (one, two):
            partitioner.resize(n)
        assert one.workers == n
        restored = make(name, seed=seed)
        restored.restore(one.save())
        assert restored.save() == one.save()
        ids = one.route(stream)
        assert ids.tolist() == two.route(stream).tolist()
        assert ((ids >= 0) & (ids < n)).all()


@given(stream=keys, n=workers)
def test_merging_nothing_changes_no_decision(name, stream, n):
    one, two = make(name, n), make(name, n)
    for partitioner in (one, two):
        partitioner.route(stream)
    one.merge([])
    assert one.route(stream).tolist() == two.route(stream).tolist()


def test_one_worker_gets_everything(name):
    assert make(name, workers=1).route(np.arange(9, dtype=np.uint64)).tolist() == [0] * 9


def test_an_empty_block_changes_nothing(name):
    partitioner = make(name)
    partitioner.route(np.arange(11, dtype=np.uint64))
    state = partitioner.save()
    assert partitioner.route(np.empty(0, np.uint64)).shape == (0,)
    assert partitioner.save() == state


def test_keys_may_be_read_only_or_strided(name):
    stream = np.arange(40, dtype=np.uint64)
    expected = make(name).route(stream[::2].copy()).tolist()
    stream.flags.writeable = False
    assert make(name).route(stream[::2]).tolist() == expected


@pytest.mark.parametrize("bad", [np.arange(3), np.zeros((2, 2), np.uint64), np.zeros(3)])
def test_keys_of_another_form_are_refused(name, bad):
    with pytest.raises(TypeError, match="uint64 array with one dimension"):
        make(name).route(bad)


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, "4"])
def test_a_bad_number_of_workers_is_refused(name, bad):
    partitioner = make(name)
    with pytest.raises(ValueError, match=r"workers is .*; write a whole number of at least 1"):
        partitioner.resize(bad)
    assert partitioner.workers == 8


def test_a_state_of_another_algorithm_is_refused(name):
    other = next(algorithm for algorithm in ROUTED if algorithm != name)
    with pytest.raises(ValueError, match=f"state of partitioner '{other}', version 1, .* into '{name}'"):
        make(name).restore(make(other).save())


@given(data=st.data())
def test_a_damaged_state_is_refused_and_leaves_no_trace(name, data):
    partitioner = make(name)
    partitioner.route(np.arange(21, dtype=np.uint64))
    state = bytearray(partitioner.save())
    before = bytes(state)
    if data.draw(st.booleans()):
        state[data.draw(st.integers(0, len(state) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del state[data.draw(st.integers(0, len(state) - 1)) :]
    with pytest.raises(ValueError):
        partitioner.restore(bytes(state))
    assert partitioner.save() == before


def test_placements_never_change(name):
    """A replayed batch must route as before: these ids are part of the format of checkpoints."""
    stream = np.array([0, 1, 2, 3, 2**64 - 1, 1, 1, 1, 1, 0, 0, 7], np.uint64)
    assert make(name, 7, seed=42, replica=1, replicas=3).route(stream).tolist() == FROZEN[name]
