import numpy as np

from millrace_jobs.selection.costs import TaskLoads
from millrace_jobs.selection.forecast import REMEMBERED, ObservedTime, Residuals
from millrace_support.batch_cost import FIXED_SECONDS

LOADS = TaskLoads(np.array([100.0]), np.array([1.0]), 100)


def no_stages(past):
    return 0.0


def observed(batch, algorithm, seconds):
    return ObservedTime(batch, algorithm, seconds, 100, LOADS)


def test_what_has_not_run_is_judged_by_the_others():
    found = Residuals()
    assert found.rest("hash", 0, no_stages) == FIXED_SECONDS
    for batch, seconds in enumerate([9.0, 0.1, 0.2, 0.3]):
        found.add(observed(batch, "pkg", seconds))
    assert found.rest("hash", 4, no_stages) == found.rest("pkg", 4, no_stages) == 0.25


def test_it_is_reckoned_by_the_newest_costs():
    found = Residuals()
    found.add(observed(0, "hash", 5.0))
    assert found.rest("hash", 1, lambda past: 0.01 * past.loads.rows[0]) == 4.0
    assert found.rest("pkg", 1, lambda past: 2.0 if past.algorithm == "hash" else 99.0) == 3.0


def test_what_has_run_is_judged_by_its_own_record_until_that_is_old():
    found = Residuals()
    found.add(observed(0, "hash", 5.0))
    found.add(observed(10, "pkg", 1.0))
    assert found.rest("hash", REMEMBERED, no_stages) == 5.0
    assert found.rest("hash", REMEMBERED + 1, no_stages) == 3.0  # the median of all
    assert found.rest("pkg", REMEMBERED + 1, no_stages) == 1.0


def test_each_disappointment_doubles_the_memory():
    found = Residuals()
    found.add(observed(0, "hash", 5.0))
    found.add(observed(1, "pkg", 1.0))
    found.abandon(0, "hash")
    found.abandon(0, "hash")
    assert found.times_abandoned("hash", 4 * REMEMBERED) == 2
    assert found.rest("hash", 4 * REMEMBERED, no_stages) == 5.0
    assert found.times_abandoned("hash", 4 * REMEMBERED + 1) == 0
    assert found.rest("hash", 4 * REMEMBERED + 1, no_stages) == 3.0
    assert found.times_abandoned("pkg", 0) == 0


def test_clearing_forgets_all():
    found = Residuals()
    found.add(observed(0, "hash", 5.0))
    found.abandon(0, "hash")
    found.clear()
    assert (found.rest("hash", 0, no_stages), found.times_abandoned("hash", 0)) == (FIXED_SECONDS, 0)
