"""Spark's event log in S3: of a run whose checkpoint is in a folder, as the history server shows it, and kept small."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.history_server import running_history_server
from lab.s3_server import S3Server
from millrace_api.model.reporting import EventLogSpec
from millrace_jobs import event_log
from millrace_jobs.event_log import EventLog, compact, event_files
from millrace_jobs.stores.objects import ObjectPath
from millrace_jobs.stores.spark import S3_CLIENT
from unit.run.event_lines import ALWAYS, TASK, kept, lines

from .store_runs import Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.in_turn]


def test_a_log_in_s3_is_kept_small(place: ObjectPath) -> None:
    log = EventLog(place, EventLogSpec(path=str(place), runs=1), "trips", "owner")
    log.prepare()
    first = log.begin("spark-1")
    folder = log.begin("spark-2")
    for number in range(1, 8):
        parts = [*ALWAYS, TASK] if number == 1 else [TASK]
        (folder / f"events_{number}_spark-2.zstd").write_bytes(event_log._compressed(lines(parts)))
        compact(folder, 2)
    found = event_files(name for name, _ in folder.objects())
    assert [(each.number, each.is_compacted) for each in found] == [(4, True), (5, False), (6, False), (7, False)]
    assert kept(*ALWAYS) == ALWAYS
    content = [line for each in found for line in event_log._lines((folder / each.name).read_bytes())]
    assert content == lines([*ALWAYS, TASK, TASK, TASK])
    assert (log.runs(), first.is_dir()) == ([folder.name], False)


def test_the_history_server_shows_a_run_from_s3(tmp_path: Path, place: ObjectPath, s3: S3Server) -> None:
    checkpoint = {"uri": (tmp_path / "checkpoint").as_uri()}
    run = Run(tmp_path, place, eventLog={"path": f"{place}-logs"}, checkpoint=checkpoint)
    run.finish()
    run.check()
    logs = ObjectPath.of(f"{place}-logs")
    (application,) = [each.name.removeprefix("eventlog_v2_") for each in logs.folders()]
    options = {
        "spark.hadoop.fs.s3a.endpoint": s3.url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    jars = {"SPARK_DIST_CLASSPATH": f"{os.environ[S3_CLIENT.variable]}/*"}
    with running_history_server(tmp_path, str(logs), options, jars) as server:
        shown = server.wait_for(application)[application]
        assert shown["attempts"][0]["completed"]
        assert server.get(f"applications/{application}/jobs")
