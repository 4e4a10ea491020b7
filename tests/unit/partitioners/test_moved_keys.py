from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.placement_cost import MovedKeys, moved_keys
from millrace_research.comparison.compare import moved_on_resize

from .streams import ROUTED, keys, make, workers, zipf

placements = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40)


def arrays(placement):
    ids, stream = zip(*placement, strict=True) if placement else ((), ())
    return np.array(ids, np.int32), np.array(stream, np.uint64)


def places(placement):
    found = defaultdict(set)
    for worker, key in placement:
        found[key].add(worker)
    return found


@given(placements, placements)
def test_moved_keys_agree_with_sets(before, after):
    old, new = places(before), places(after)
    common = old.keys() & new.keys()
    moved = moved_keys(arrays(before), arrays(after))
    assert moved == MovedKeys(len(common), sum(old[key] != new[key] for key in common))


@given(placements)
def test_nothing_moves_from_a_placement_to_itself_in_another_order(placement):
    assert moved_keys(arrays(placement), arrays(placement[::-1])).moved == 0


def test_keys_that_left_a_worker_have_moved():
    before = [(0, 7), (1, 7), (2, 8), (3, 9)]
    after = [(1, 7), (0, 7), (1, 8), (3, 10)]  # 7 stays on two workers, 8 moves, 9 goes, 10 comes
    assert moved_keys(arrays(before), arrays(after)) == MovedKeys(2, 1)
    assert moved_keys(arrays(before), arrays(after)).share == 0.5
    assert MovedKeys(0, 0).share == 0.0


def test_one_more_worker_is_a_move():
    assert moved_keys(arrays([(0, 1)]), arrays([(0, 1), (1, 1)])) == MovedKeys(1, 1)


def test_ids_and_keys_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"ids have shape \(1,\) and keys \(2,\)"):
        moved_keys((np.zeros(1, np.int32), np.arange(2)), arrays([]))


@pytest.mark.parametrize("name", ROUTED)
@given(stream=keys, n=workers, other=workers)
def test_a_resize_is_tried_without_leaving_a_trace(name, stream, n, other):
    partitioner = make(name, n)
    partitioner.route(stream)
    state = partitioner.save()
    moved = moved_on_resize(partitioner, stream, other)
    assert partitioner.save() == state
    assert partitioner.workers == n
    assert moved.keys == len(np.unique(stream))
    assert 0 <= moved.moved <= moved.keys


def test_hashing_moves_all_but_one_in_the_larger_number_of_workers():
    """See ``Hash.resize``: a key stays where it is with probability 1 / max(n, n')."""
    assert moved_on_resize(make("hash", 8), np.arange(100_000, dtype=np.uint64), 9).share == pytest.approx(
        8 / 9, abs=0.01
    )
    assert moved_on_resize(make("hash", 8), np.arange(1000, dtype=np.uint64), 8).share == 0.0


def test_a_bad_number_of_workers_leaves_no_trace():
    partitioner = make("pkg", 8)
    partitioner.route(zipf(100, 10, 1.0))
    state = partitioner.save()
    with pytest.raises(ValueError, match="workers is 0"):
        moved_on_resize(partitioner, zipf(100, 10, 1.0), 0)
    assert partitioner.save() == state
