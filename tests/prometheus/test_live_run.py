"""A job that runs, a Prometheus that scrapes it, and scaling that reads what it says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from millrace_operator.metrics_source.job_metrics import newest_answer
from millrace_operator.scaling.answers import AnswerReader
from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.scaling.observation import NoAnswer, NoAnswerReason, Observation
from millrace_operator.scaling.shape import Bounds, Range, Shape
from spark.cli import PATIENCE, Project, fields

pytestmark = [pytest.mark.prometheus, pytest.mark.spark, pytest.mark.timeout(1800)]

SQL = "SELECT key, count(*) AS rows, avg(value) AS mean FROM events GROUP BY key"
RATE = {
    "files": None,
    "schema": None,
    "format": None,
    "watermark": None,
    "rate": {"recordsPerSecond": 2000, "keys": 50},
}
BATCHES = 20
PLAN = Shape(executors=1, parallelism=2, replicas=2)
BOUNDS = Bounds(Range(1, 4), Range(1, 2), Range(1, 8))


def test_scaling_reads_a_job_that_runs(tmp_path: Path, start, connect) -> None:
    server = start(scrape_interval="500ms")
    prometheus = connect(server)
    project = Project(tmp_path)
    project.write("plan.yaml", f"{{algorithm: hash, replicas: {PLAN.replicas}, parallelism: {PLAN.parallelism}}}\n")
    query = project.query(SQL, name="rates", source=RATE, batchInterval="500ms", parallelism={"initial": 2, "max": 2})
    with project.start("run", query, "--plan", "plan.yaml") as run:
        url = fields(run.wait_for(r"started=.*\n"))["metrics"]
        address = url.removeprefix("http://").removesuffix("/metrics")
        server.scrape({address: {"__meta_kubernetes_namespace": "ns", "__meta_kubernetes_pod_name": "rates-driver-0"}})
        begun = time.time()
        decisions = []
        reading, scaler = AnswerReader(), Scaler(Settings(), BOUNDS, state_partitions=2)
        answers: list[Observation | NoAnswer] = []
        while sum(seen.batches for seen in answers if isinstance(seen, Observation)) < BATCHES:
            assert run.process.poll() is None, run.finish()
            assert time.time() < begun + 2 * PATIENCE, answers
            now = time.time()
            found = newest_answer(prometheus, "ns", "rates", "rates-driver-0", now, PLAN.executors)
            epoch = int(found.epoch) if found is not None and found.epoch is not None else 0
            answers.append(reading.step(found, now, epoch, PLAN))
            decisions.append(scaler.step(found, Situation(now, PLAN, epoch, PLAN.executors)))
            time.sleep(0.2)
        run.process.terminate()
        assert run.finish().status == 0

    silent = {NoAnswerReason.ABSENT, NoAnswerReason.NO_BATCH, NoAnswerReason.FROZEN}  # a busy machine may stand still
    assert {seen.reason for seen in answers if isinstance(seen, NoAnswer)} <= silent, answers
    seen = [one for one in answers if isinstance(one, Observation)]
    assert all(one.route and one.combine and one.merge_seconds and one.keys and one.partials for one in seen)
    assert all(one.interval == 0.5 and one.plan == PLAN and one.rows > 0 and one.seconds > 0 for one in seen)
    assert len({decision.reason for decision in decisions}) > 1  # beside that there was no answer
