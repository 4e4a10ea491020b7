"""The record of a query that a real Prometheus has scraped, and the report of it."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from builders import PIN, a_batch, a_query
from lab.waiting import wait_until
from millrace_api.errors import MillraceError
from millrace_jobs.page.replay import EntryKind, replayed
from millrace_jobs.page.report import render_report
from millrace_jobs.pipeline.arrivals import RecordLatencies
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_operator.commands.past_metrics import Period, past_lines
from millrace_support.run_record import BatchLine

from .jobs import PATIENCE, driver, targets

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(1800)]

POD = "fares-driver-0"
LATE = a_batch(
    seconds=3.0,
    steps={"addBatch": 2.8},
    rows=900,
    waiting=70,
    rejected=2,
    worker_rows=(640, 120, 120, 120, 0, 0, 0, 0),
    worker_keys=(1,) * 8,
    pin=replace(PIN, workers=8, epoch=2, algorithm="hash"),
    behind={("trips", "rides-3"): 60},
    latencies=RecordLatencies(np.array([2.5]), np.array([900])),
)


def test_a_query_over_time_has_its_batches_its_plans_and_its_verdicts(start, connect):
    metrics = JobMetrics("fares")
    metrics.record(a_batch())
    with driver(metrics, "ns", pod=POD) as job:
        prometheus = connect(start(targets(job), scrape_interval="500ms"))

        def scraped(batches: int) -> bool:
            found = prometheus.instant(f'millrace_batches_total{{query="fares"}} == {batches}')
            return bool(found)

        wait_until(lambda: scraped(1), seconds=PATIENCE)
        began = time.time()
        for number in range(2, 8):
            metrics.record(LATE)
            wait_until(lambda expected=number: scraped(expected), seconds=PATIENCE)
        ended = time.time() + 1  # the last step of a period is at or after its last sample
        lines = past_lines(prometheus, "ns", a_query(), POD, Period(began - 1, ended, 0.25), "Prometheus")
        with pytest.raises(MillraceError) as none:
            past_lines(prometheus, "ns", a_query(), POD, Period(began - 900, began - 600, 5), "Prometheus")

    found = [each for each in lines if isinstance(each, BatchLine)]
    assert sum(each.figures.batches for each in found) == 6
    assert sum(each.figures.rows for each in found) == 6 * 900
    assert sum(each.figures.rejected for each in found) == 12
    newest = found[-1]
    assert (newest.figures.seconds, newest.figures.interval, newest.figures.waiting) == (pytest.approx(3.0), 2.0, 70)
    assert newest.figures.loads == (640, 120, 120, 120, 0, 0, 0, 0)
    assert newest.figures.imbalance == pytest.approx(4.12)
    assert newest.figures.p95 == pytest.approx(3.0, rel=0.1)  # the bound of its bucket
    assert newest.details.steps["addBatch"] == pytest.approx(2.8)
    assert newest.details.task_seconds == pytest.approx(sum(LATE.route) + sum(LATE.combine) + LATE.merge_seconds)
    assert newest.details.behind == {"trips": {"rides-3": 60}}
    assert (newest.details.plan.algorithm, newest.details.plan.workers) == ("hash", 8)

    report = replayed(lines)
    verdicts = [each.title for each in report.timeline if each.kind is EntryKind.VERDICT]
    assert verdicts[-1] == "Batches are late"
    assert b"figures </span>Prometheus" in render_report(report)
    assert "has no samples of fares in namespace ns in this period" in str(none.value)
