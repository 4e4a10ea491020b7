"""Exact, sketched and hybrid statistics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.dalton import statistics

from .streams import keys, make, workers, zipf


def sketches(partitioner):
    """Whether it counts in the sketch now."""
    return not partitioner._state.frequencies.exact


@given(keys, workers, st.integers(0, 200))
def test_with_few_keys_all_kinds_decide_alike(stream, n, cut):
    """So few keys collide in no more than three of the sketch's four rows."""
    placed = []
    for kind in ("exact", "sketch", "hybrid"):
        partitioner = make("dalton", n, statistics=kind)
        ids = partitioner.route(stream[:cut]).tolist()
        partitioner.advance()
        placed.append(ids + partitioner.route(stream[cut:]).tolist())
    assert placed[0] == placed[1] == placed[2]


def test_with_many_keys_the_sketch_finds_the_same_heavy_hitters():
    stream = zipf(rows=300_000, distinct=100_000, exponent=1.2)
    hot = []
    for kind in ("exact", "sketch"):
        partitioner = make("dalton", 32, statistics=kind)
        for _ in range(2):
            partitioner.route(stream)
            partitioner.advance()
        hot.append(sorted(partitioner.hot.tolist()))
    assert hot[0] == hot[1] == list(range(len(hot[0])))
    assert len(hot[0]) > 3


def test_hybrid_turns_to_the_sketch_and_back():
    few, many = np.arange(1000), np.arange(statistics.MOST_EXACT + 1000)
    partitioner = make("dalton", 8)
    used = []
    for stream in (few, many, many, few, few, many):
        before = sketches(partitioner)
        partitioner.route(stream.astype(np.uint64))
        used.append((before, sketches(partitioner)))
        partitioner.advance()
    exact, turned, sketch = (False, False), (False, True), (True, True)
    assert used == [exact, turned, sketch, sketch, exact, turned]


def test_the_map_turns_into_the_sketch_without_loss():
    """A key that is half known to the map and half to the sketch is as hot as if one had counted all of it."""
    others = np.arange(1000, 1000 + statistics.MOST_EXACT).astype(np.uint64)
    early, late = np.full(20_000, 3, np.uint64), np.full(20_000, 4, np.uint64)
    stream = np.concatenate([others[:70_000], early[:10_000], others[70_000:], early[10_000:], late])
    chosen = {"statistics_window": len(stream) + 1}
    exact, hybrid = make("dalton", 8, statistics="exact", **chosen), make("dalton", 8, **chosen)
    assert exact.route(stream).tolist() == hybrid.route(stream).tolist()
    assert sketches(hybrid)
    assert not sketches(exact)


def test_memory_is_bounded_under_many_keys():
    partitioner = make("dalton", 8)
    for batch in range(8):
        partitioner.route(np.arange(batch * 100_000, (batch + 1) * 100_000, dtype=np.uint64))
    assert len(partitioner.save()) < 2 * 8 * statistics.WIDTH * statistics.DEPTH
    partitioner.advance()
    assert len(partitioner.save()) < 2_000


@pytest.mark.parametrize("kind", ["exact", "sketch", "hybrid"])
@pytest.mark.parametrize("n", [1, 8, 64])
def test_after_a_slide_the_state_is_small(kind, n):
    partitioner = make("dalton", n, statistics=kind)
    for _ in range(2):
        partitioner.route(zipf(rows=30_000, distinct=20_000, exponent=1.1))
        partitioner.advance()
    assert len(partitioner.save()) < 8 * (n * n + 40 * n) + 1_000


@pytest.mark.parametrize("kind", ["exact", "sketch", "hybrid"])
def test_a_state_in_mid_window_holds_the_statistics(kind):
    stream = zipf(rows=5_000, distinct=300, exponent=1.0)
    running, restored = make("dalton", 8, statistics=kind), make("dalton", 8, statistics=kind)
    running.route(stream)
    restored.restore(running.save())
    assert restored.save() == running.save()
    for _ in range(2):
        assert restored.route(stream).tolist() == running.route(stream).tolist()
        for partitioner in (running, restored):
            partitioner.advance()
