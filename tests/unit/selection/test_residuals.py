import numpy as np
import pytest

from millrace_jobs.selection.costs import TaskLoads
from millrace_jobs.selection.forecast import REMEMBERED, ObservedTime, Residuals
from millrace_support.batch_cost import FIXED_SECONDS, MEDIAN_ERROR

ROWS = 100
LOADS = TaskLoads(np.array([100.0]), np.array([1.0]), ROWS)


def no_stages(past):
    return 0.0


def observed(batch, algorithm, seconds, rows=ROWS):
    return ObservedTime(batch, algorithm, seconds, rows, LOADS)


def test_what_has_not_run_is_judged_by_the_others():
    found = Residuals()
    assert found.rest("hash", 0, ROWS, no_stages) == FIXED_SECONDS
    for batch, seconds in enumerate([9.0, 0.1, 0.2, 0.3]):
        found.add(observed(batch, "pkg", seconds))
    assert found.rest("hash", 4, ROWS, no_stages) == found.rest("pkg", 4, ROWS, no_stages) == 0.25


def test_a_residual_is_reckoned_by_the_newest_costs():
    found = Residuals()
    found.add(observed(0, "hash", 5.0))
    assert found.rest("hash", 1, ROWS, lambda past: 0.01 * past.loads.rows[0]) == 4.0
    assert found.rest("pkg", 1, ROWS, lambda past: 2.0 if past.algorithm == "hash" else 99.0) == 3.0


def test_times_of_large_batches_are_converted_to_small_ones():
    found = Residuals()
    for batch, (algorithm, rows) in enumerate([("hash", 200_000), ("hash", 150_000), ("pkg", 80_000), ("pkg", 40_000)]):
        found.add(observed(batch, algorithm, 0.5 + 20e-6 * rows, rows))
    for algorithm in ("hash", "pkg", "cam"):
        assert found.rest(algorithm, 4, 10_000, no_stages) == pytest.approx(0.7, rel=0.1)


def test_nothing_is_made_of_the_size_of_batches_that_nothing_compares():
    """Each ran in batches of one size: it stays open whether the algorithm or the size made the difference."""
    found = Residuals()
    for batch, (algorithm, rows) in enumerate([("hash", 200_000), ("hash", 200_000), ("pkg", 40_000), ("pkg", 40_000)]):
        found.add(observed(batch, algorithm, 0.5 + 20e-6 * rows, rows))
    small = {name: found.rest(name, 4, 40_000, no_stages) for name in ("hash", "pkg")}
    assert small["hash"] == pytest.approx(small["pkg"], rel=0.1)


def test_scatter_is_what_observations_of_one_algorithm_differ_by():
    found = Residuals()
    found.add(observed(0, "hash", 9.0))
    assert found.scatter("hash", 1, ROWS, no_stages) is None
    for batch, seconds in enumerate([1.0, 1.2, 0.8, 1.0], 1):
        found.add(observed(batch, "hash", seconds))
        found.add(observed(batch, "pkg", 7.0))
    assert found.scatter("hash", 5, ROWS, no_stages) == pytest.approx(0.2 / MEDIAN_ERROR)
    assert found.scatter("pkg", 5, ROWS, no_stages) == 0
    assert found.scatter("hash", 10 * REMEMBERED, ROWS, no_stages) is None


def test_what_has_run_is_judged_by_its_own_record_until_that_is_old():
    found = Residuals()
    found.add(observed(0, "hash", 5.0))
    found.add(observed(10, "pkg", 1.0))
    assert found.rest("hash", REMEMBERED, ROWS, no_stages) == 5.0
    assert found.rest("hash", REMEMBERED + 1, ROWS, no_stages) == 3.0  # the median of all
    assert found.rest("pkg", REMEMBERED + 1, ROWS, no_stages) == 1.0


def test_each_disappointment_doubles_the_memory():
    found = Residuals()
    found.add(observed(0, "hash", 5.0))
    found.add(observed(1, "pkg", 1.0))
    found.abandon(0, "hash")
    found.abandon(0, "hash")
    assert found.times_abandoned("hash", 4 * REMEMBERED) == 2
    assert found.rest("hash", 4 * REMEMBERED, ROWS, no_stages) == 5.0
    assert found.times_abandoned("hash", 4 * REMEMBERED + 1) == 0
    assert found.rest("hash", 4 * REMEMBERED + 1, ROWS, no_stages) == 3.0
    assert found.times_abandoned("pkg", 0) == 0


def test_clearing_forgets_all_residuals():
    found = Residuals()
    found.add(observed(0, "hash", 5.0))
    found.abandon(0, "hash")
    found.clear()
    assert (found.rest("hash", 0, ROWS, no_stages), found.times_abandoned("hash", 0)) == (FIXED_SECONDS, 0)
