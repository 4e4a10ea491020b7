import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.benchmark.slides import Slides
from millrace_jobs.benchmark.window_costs import PlacedStream, key_codes
from millrace_jobs.partitioners.metrics import placement_cost
from millrace_jobs.partitioners.moved_keys import MovedKeys, moved_keys

WORKERS = 4
records = st.lists(st.tuples(st.integers(0, 9), st.integers(0, WORKERS - 1)), min_size=1, max_size=60)


def placed(keys, ids):
    codes, distinct = key_codes(keys)
    return PlacedStream(ids, codes, distinct, WORKERS)


@given(records, st.lists(st.integers(0, 6), max_size=8), st.lists(st.integers(1, 5), min_size=9, max_size=9), st.data())
def test_every_window_is_as_if_counted_alone(rows, cuts, gaps, data):
    keys, ids = np.array(rows, np.int64).T
    keys, ids = keys.astype(np.uint64), ids.astype(np.int32)
    edges = np.unique([0, *(min(edge * 10 + 1, len(rows)) for edge in cuts), len(rows)])
    numbers = np.cumsum(gaps)[: len(edges) - 1]
    per_window = data.draw(st.integers(1, 7))
    found = list(placed(keys, ids).windows(Slides(numbers, edges, 0, 0), per_window))
    before = slice(0, 0)
    for (cost, moved), number, end in zip(found, numbers, edges[1:], strict=True):
        window = slice(edges[np.flatnonzero(numbers > number - per_window)[0]], end)
        assert cost == placement_cost(ids[window], keys[window], WORKERS)
        assert moved == moved_keys((ids[before], keys[before]), (ids[window], keys[window]))
        before = window


@given(records)
def test_the_total_is_one_window(rows):
    keys, ids = np.array(rows, np.int64).T
    keys, ids = keys.astype(np.uint64), ids.astype(np.int32)
    assert placed(keys, ids).total() == placement_cost(ids, keys, WORKERS)


def test_tumbling_windows_by_hand():
    keys = np.array([1, 1, 2, 3, 1, 1, 2, 4], np.uint64)
    ids = np.array([0, 1, 2, 3, 0, 0, 2, 3], np.int32)
    (first, nothing), (second, moved) = placed(keys, ids).windows(
        Slides(np.array([0, 1]), np.array([0, 4, 8]), 0, 0), 1
    )
    assert (first.aggregation_cost, first.distinct_keys, first.load_imbalance) == (4, 3, 0.0)
    assert (second.aggregation_cost, second.distinct_keys, second.load_imbalance) == (3, 3, 1.0)
    assert nothing == MovedKeys(0, 0)
    assert moved == MovedKeys(2, 1)  # 1 has left worker 1, 2 has stayed


def test_slides_far_apart_are_no_loop():
    keys, ids = np.arange(3, dtype=np.uint64), np.zeros(3, np.int32)
    slides = Slides(np.array([0, 10**9, 10**9 + 1]), np.arange(4), 0, 0)
    costs = [cost.rows for cost, _ in placed(keys, ids).windows(slides, 100_000)]
    assert costs == [1, 1, 2]


def test_keys_are_numbered_as_they_come():
    codes, keys = key_codes(np.array([7, 2**64 - 1, 7], np.uint64))
    assert (codes.tolist(), keys) == ([0, 1, 0], 2)
    assert codes.dtype == np.int64


@pytest.mark.parametrize("per_window", [1, 2])
def test_one_slide(per_window):
    (only,) = placed(np.arange(3, dtype=np.uint64), np.zeros(3, np.int32)).windows(
        Slides(np.array([5]), np.array([0, 3]), 0, 0), per_window
    )
    assert only[0].rows == 3
