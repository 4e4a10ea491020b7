import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_batch
from millrace_jobs.display.display import RunTally


def summary(*reports, seconds=10.0):
    tally = RunTally()
    for report in reports:
        tally.add(report)
    return tally.summary("finished", results=7, seconds=seconds, plan_changes=2, output="out")


def test_batches_add_up():
    run = summary(a_batch(rows=10, late=1, rejected=2, seconds=1), a_batch(rows=30, late=3, rejected=4, seconds=2))
    assert (run.batches, run.rows, run.late, run.rejected) == (2, 40, 4, 6)
    assert (run.mean_utilization, run.p95_utilization) == (0.75, 1.0)
    assert (run.results, run.plan_changes, run.output, run.rows_per_second) == (7, 2, "out", 4.0)


def test_without_a_batch_there_is_no_utilization():
    run = summary(seconds=0.0)
    assert (run.batches, run.rows_per_second) == (0, 0.0)
    assert run.mean_utilization is None
    assert run.p95_utilization is None


@given(st.lists(st.floats(0, 150), min_size=1, max_size=60))
def test_the_percentile_is_the_nearest_rank_to_a_hundredth(utilizations):
    run = summary(*(a_batch(seconds=w, interval=1.0) for w in utilizations))
    nearest_rank = sorted(utilizations)[math.ceil(len(utilizations) * 95 / 100) - 1]
    assert run.p95_utilization == pytest.approx(min(nearest_rank, 100), abs=0.0051)
    assert run.mean_utilization == pytest.approx(sum(utilizations) / len(utilizations))


def test_memory_does_not_grow_with_the_batches():
    tally = RunTally()
    for step in range(30_000):
        tally.add(a_batch(seconds=step / 100, interval=1.0))
    assert len(tally._percents) == 10_001
