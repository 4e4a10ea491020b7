import numpy as np
import pytest

from millrace_jobs.partitioners.placement_cost import cost_of_counts
from millrace_jobs.partitioners.registry import NATIVE, is_cooperative
from millrace_jobs.selection.key_stream import estimate_keys, sample_stream
from millrace_jobs.selection.selector import CANDIDATES
from millrace_jobs.selection.shadow import Shadow
from millrace_jobs.sketches.key_profile import KeyCounts, profile, union
from placements import placement_cost

from .simulated import placed, profile_of, zipf

ROWS, KEYS = 300_000, 30_000


def profile_after(stream, workers):
    """What the workers report together after pkg placed the stream."""
    ids = placed(stream, "pkg", workers, 2)
    return union([profile_of(stream[ids == worker]) for worker in range(workers)])


@pytest.mark.parametrize("skew", [0.0, 0.7, 1.0, 1.5, 2.0])
def test_the_estimate_has_the_records_and_the_shape_of_the_stream(skew):
    stream = zipf(ROWS, KEYS, skew)
    found = estimate_keys(profile_after(stream, 8))
    counts = np.sort(np.unique(stream, return_counts=True)[1])[::-1]
    assert found.rows == pytest.approx(ROWS, rel=0.01)
    assert float(found.stands_for.sum()) == pytest.approx(len(counts), rel=0.15)
    for first in (10, 100, 1000):  # records of the heaviest keys
        assert found.counts[:first].sum() == pytest.approx(counts[:first].sum(), rel=0.1, abs=0.01 * ROWS)


def test_a_few_keys_are_taken_as_they_are():
    hashes, counts = np.array([7, 8, 9], np.uint64), np.array([1, 30, 2])
    found = estimate_keys(profile(KeyCounts(hashes, counts)))
    assert (found.hashes.tolist(), found.counts.tolist(), found.stands_for.tolist()) == ([8, 9, 7], [30, 2, 1], [1] * 3)


@pytest.mark.parametrize("skew", [0.0, 1.0, 2.0])
def test_the_sample_keeps_shares_and_the_number_of_keys(skew):
    found = estimate_keys(profile_after(zipf(ROWS, KEYS, skew), 8))
    stream = sample_stream(found, 8, 30_000)
    assert len(stream.keys) == pytest.approx(30_000, rel=0.05)
    assert stream.stands_for.sum() == pytest.approx(found.stands_for.sum())
    shares = np.bincount(stream.keys) / len(stream.keys)
    heaviest = np.sort(found.counts)[-5:] / found.rows
    assert np.sort(shares)[-5:].sum() == pytest.approx(heaviest.sum(), rel=0.1, abs=0.01)


@pytest.mark.parametrize("workers", [4, 32])
@pytest.mark.parametrize("skew", [0.0, 1.0, 2.0])
def test_every_algorithm_is_foreseen(skew, workers):
    """Imbalance and Γ on the sample are those of really routing the stream."""
    stream = zipf(ROWS, KEYS, skew)
    shadow = Shadow(profile_after(stream, workers), workers=workers, replicas=2)
    for algorithm in CANDIDATES:
        found = shadow.place(algorithm)
        tasks = 2 if algorithm == NATIVE else workers
        real = placement_cost(placed(stream, algorithm, workers, 2), stream, tasks)
        assert found.rows.sum() == pytest.approx(ROWS, rel=0.01)
        if not is_cooperative(algorithm, {}):  # what learns has learned more than the one batch it is compared with
            assert found.rows.max() * tasks / ROWS == pytest.approx(1 + real.load_imbalance_ratio, rel=0.1), algorithm
        assert found.groups(1).sum() == pytest.approx(real.aggregation_cost, rel=0.15), algorithm


def test_panes_multiply_partial_results_and_are_found_again():
    placement = Shadow(profile_of(zipf(ROWS, 1000, 0.0)), workers=4, replicas=2).place("hash")
    assert placement.panes(placement.groups(1).sum()) == pytest.approx(1, rel=1e-3)
    for panes in (2.0, 10.0, 60.0):
        assert placement.groups(1).sum() < placement.groups(panes).sum() <= panes * 1000 + 1e-6
        assert placement.panes(placement.groups(panes).sum()) == pytest.approx(panes, rel=1e-3)


def test_a_pane_is_hit_as_often_as_chance_has_it():
    """Records of one key over 12 panes, thrown 20 000 times."""
    thrown = np.random.default_rng(1).integers(0, 12, (20_000, 9))
    expected = np.mean([len(set(row)) for row in thrown.tolist()])
    one_key = profile(KeyCounts(np.array([5], np.uint64), np.array([9])))
    found = Shadow(one_key, workers=1, replicas=1).place("hash").groups(12).sum()
    assert found == pytest.approx(expected, rel=0.01)


def test_a_batch_without_records_has_no_loads():
    shadow = Shadow(profile(KeyCounts.none()), workers=4, replicas=2)
    for algorithm in CANDIDATES:
        found = shadow.place(algorithm)
        assert (found.rows.sum(), found.groups(3).sum()) == (0, 0)
        assert found.panes(0) == pytest.approx(1)


def test_placing_is_deterministic_but_for_the_clock():
    keys = profile_after(zipf(ROWS, KEYS, 1.0), 4)
    first, second = (Shadow(keys, workers=4, replicas=2, clock=lambda: 0.0) for _ in range(2))
    for algorithm in CANDIDATES:
        one, other = first.place(algorithm), second.place(algorithm)
        assert one.rows.tolist() == other.rows.tolist()
        assert one.groups(2).tolist() == other.groups(2).tolist()
        assert one.route_seconds == 0
        assert cost_of_counts(one.rows.astype(int), np.ones(len(one.rows), int)).rows >= 0
