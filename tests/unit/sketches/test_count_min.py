import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.sketches.count_min import distinct

from .count_min_sketch import CountMin

streams = st.lists(st.integers(0, 30), max_size=300).map(lambda values: np.array(values, np.uint64))


def sketch(stream, width=64, depth=3, seed=5):
    counts = CountMin(width=width, depth=depth, seed=seed)
    counts.add(stream)
    return counts


def zipf(rows, keys):
    weights = 1 / np.arange(1, keys + 1)
    return np.random.default_rng(3).choice(keys, rows, p=weights / weights.sum()).astype(np.uint64)


@given(streams, st.integers(1, 200), st.integers(1, 5))
def test_estimates_are_never_too_low(stream, width, depth):
    true = Counter(stream.tolist())
    estimates = sketch(stream, width, depth).estimates(np.arange(40, dtype=np.uint64))
    assert all(estimate >= true[key] for key, estimate in enumerate(estimates.tolist()))
    assert estimates.max(initial=0) <= len(stream)


def test_the_error_is_within_the_bound():
    """Cormode and Muthukrishnan, theorem 1: over e N / width for less than e ** -depth of the keys."""
    stream = zipf(100_000, 20_000)
    true = np.bincount(stream.astype(np.int64), minlength=20_000)
    for depth in (1, 2, 4):
        errors = sketch(stream, 512, depth).estimates(np.arange(20_000, dtype=np.uint64)) - true
        assert (errors > math.e * len(stream) / 512).mean() <= math.exp(-depth)


def test_without_collisions_it_is_exact():
    stream = zipf(5_000, 40)
    expected = np.bincount(stream.astype(np.int64), minlength=40).tolist()
    assert sketch(stream, 1 << 14, 4).estimates(np.arange(40, dtype=np.uint64)).tolist() == expected


@given(streams, streams)
def test_merging_is_counting_both(one, two):
    merged = sketch(one)
    merged.merge(sketch(two))
    assert merged.cells.tolist() == sketch(np.concatenate([one, two])).cells.tolist()


@pytest.mark.parametrize("other", [{"width": 128}, {"depth": 2}, {"seed": 6}])
def test_other_sketches_cannot_be_merged(other):
    none = np.empty(0, np.uint64)
    with pytest.raises(ValueError, match="only when width, depth and seed are the same"):
        sketch(none).merge(sketch(none, **other))


def test_the_width_is_rounded_up():
    assert [CountMin(width=width, depth=1, seed=0).cells.shape[1] for width in (1, 2, 3, 64, 65)] == [1, 2, 4, 64, 128]


@pytest.mark.parametrize("keys", [0, 1, 100, 5_000, 20_000])
def test_the_number_of_keys_is_about_right(keys):
    counted = sketch(np.arange(keys, dtype=np.uint64).repeat(2), width=8192)
    assert distinct(counted.cells) == pytest.approx(keys, rel=0.05)


def test_a_full_sketch_has_no_idea_of_the_number_of_keys():
    assert distinct(sketch(np.arange(5_000, dtype=np.uint64)).cells) == math.inf


def test_a_sketch_never_changes():
    """Saved sketches are made by it."""
    counts = sketch(np.array([1, 1, 2, 2**64 - 1], np.uint64), width=8, depth=2, seed=1)
    assert counts.cells.tolist() == [[0, 0, 1, 1, 0, 0, 2, 0], [1, 1, 0, 0, 0, 0, 0, 2]]
