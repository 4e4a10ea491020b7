from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.placement_cost import moved_keys
from millrace_jobs.sketches.key_profile import HEAVY, K
from placements import merged_sketches, placement_cost, placement_sketch

from .streams import blocks, keys, make, workers, zipf

ROWS, KEYS, N = 200_000, 20_000, 8


@pytest.fixture(scope="module")
def stream():
    return seeded_hashes(zipf(ROWS, KEYS, 1.0), 3)


def place(stream, n, data):
    ids = data.draw(st.lists(st.integers(0, n - 1), min_size=len(stream), max_size=len(stream)))
    return np.array(ids, np.int32)


@given(keys, workers, st.data())
def test_while_the_profiles_hold_all_keys_it_is_exact(stream, n, data):
    ids = place(stream, n, data)
    exact = placement_cost(ids, stream, n)
    assert placement_sketch(ids, stream, n).cost() == exact
    other = place(stream, n, data)
    moved = placement_sketch(other, stream, n).moved_since(placement_sketch(ids, stream, n))
    assert moved == moved_keys((ids, stream), (other, stream))


@given(keys, workers, st.data(), st.lists(st.integers(0, 200), max_size=4))
def test_blocks_merge_to_the_sketch_of_all_records(stream, n, data, cuts):
    ids = place(stream, n, data)
    parts = zip(blocks(ids, cuts), blocks(stream, cuts), strict=True)
    first, *others = [placement_sketch(part, keys, n) for part, keys in parts]
    assert merged_sketches([first, *others]).cost() == placement_cost(ids, stream, n)


@given(st.integers(1, 4), st.integers(0, 3000), st.integers(0, 2**32))
def test_estimates_are_within_the_bounds(n, rows, seed):
    """Paper 000, Proposition 1, and a key is at least on one worker."""
    random = np.random.default_rng(seed)
    stream = random.integers(0, 2**64, 2000, np.uint64)[random.integers(0, 2000, rows)]
    ids = random.integers(0, n, rows, np.int32)
    cost, exact = placement_sketch(ids, stream, n).cost(), placement_cost(ids, stream, n)
    least, most = cost.aggregation_cost_bounds
    assert least <= cost.aggregation_cost <= most
    assert cost.aggregation_cost <= cost.rows
    assert 1 <= cost.replication_factor <= n
    assert (cost.rows, cost.load_imbalance) == (exact.rows, exact.load_imbalance)


@pytest.mark.parametrize("name", ["hash", "shuffle", "pkg"])
def test_large_windows_are_estimated(name, stream):
    first, second = (make(name, N, seed=seed).route(stream) for seed in (1, 2))
    exact, sketch = placement_cost(first, stream, N), placement_sketch(first, stream, N)
    own = np.array([len(np.unique(stream[first == worker])) for worker in range(N)])
    with_counts = sketch.cost(own)
    assert with_counts.aggregation_cost == exact.aggregation_cost
    assert with_counts.cardinality_imbalance == exact.cardinality_imbalance
    assert with_counts.replication_factor == pytest.approx(exact.replication_factor, rel=0.05)
    assert with_counts.distinct_keys == pytest.approx(exact.distinct_keys, rel=0.05)
    assert sketch.cost().aggregation_cost == pytest.approx(exact.aggregation_cost, rel=0.1)
    estimated = placement_sketch(second, stream, N).moved_since(sketch)
    share = moved_keys((first, stream), (second, stream)).share
    assert estimated.share == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / estimated.keys))


def test_keys_on_one_worker_are_seen_as_such(stream):
    """The sample is of keys with all their workers, so nothing is lost between the workers' samples."""
    sketch = placement_sketch(make("hash", N).route(stream), stream, N)
    assert sketch.cost().replication_factor == 1.0
    assert sketch.moved_since(sketch).moved == 0


def test_merging_keeps_its_size(stream):
    of = partial(placement_sketch, workers=N)
    ids = make("shuffle", N).route(stream)
    parts = [of(part, own) for part, own in zip(np.split(ids, 10), np.split(stream, 10), strict=True)]
    merged = merged_sketches(parts)
    assert all(len(own.sample) <= K and len(own.heavy) <= HEAVY for own in merged.profiles)
    exact = placement_cost(ids, stream, N)
    assert merged.cost().rows == ROWS
    assert merged.cost().replication_factor == pytest.approx(exact.replication_factor, rel=0.05)
    assert merged.moved_since(of(ids, stream)).moved == 0


def test_windows_on_different_numbers_of_workers_compare(stream):
    before, after = (placement_sketch(make("hash", n).route(stream), stream, n) for n in (8, 9))
    assert after.moved_since(before).share == pytest.approx(8 / 9, abs=0.05)


def test_sketches_of_other_workers_do_not_merge():
    one, other = (placement_sketch(np.zeros(1, np.int32), np.zeros(1, np.uint64), n) for n in (2, 3))
    with pytest.raises(ValueError, match="cannot merge sketches of 2, 3 workers"):
        merged_sketches([one, other])


def test_an_empty_window_has_an_empty_sketch():
    empty = placement_sketch(np.empty(0, np.int32), np.empty(0, np.uint64), 3)
    assert empty.cost() == placement_cost(np.empty(0, np.int32), np.empty(0, np.uint64), 3)
    assert empty.moved_since(empty).keys == 0
