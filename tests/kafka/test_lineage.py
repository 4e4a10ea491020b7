"""Lineage of a query between topics of a real broker: those of a pattern are known once they were read from."""

from __future__ import annotations

import json
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from lab.kafka import Broker
from lab.topics import fill, make
from lineage_receiver import check_event
from spark.cli import Project

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark]


def events_of(project: Project) -> list[dict[str, Any]]:
    """The events in the file, each of which is valid."""
    events = [json.loads(line) for line in (project.folder / "lineage.jsonl").read_text().splitlines()]
    for event in events:
        check_event(event)
    return events


def test_lineage_names_the_topics_of_a_pattern_that_were_read(tmp_path: Path, broker: Broker) -> None:
    prefix = f"trips-{uuid.uuid4().hex[:8]}"
    names = [make(broker, f"{prefix}-{each}") for each in ("a", "b")]
    results = make(broker, f"results-{prefix}")
    for name in names:
        fill(broker, name, [{"at": "2024-01-01T00:00:01Z", "who": "x", "n": 1}])
    project = Project(tmp_path)
    query = project.query(
        "SELECT who, sum(n) AS total FROM events GROUP BY who",
        source={
            "files": None,
            "watermark": None,
            "kafka": {"bootstrapServers": broker.bootstrap, "topicPattern": f"{prefix}-.*"},
        },
        sink={"kafka": {"bootstrapServers": broker.bootstrap, "topic": results, "key": ["who"]}},
        lineage={"file": "lineage.jsonl", "interval": "1ms", "namespace": "streams"},
    )
    with project.start("run", query) as run:
        run.wait_for("batch=")
        run.process.send_signal(signal.SIGINT)
        assert run.finish().status == 0

    first, *_, last = events_of(project)
    cluster = f"kafka://{broker.bootstrap.split(',')[0].lower()}"
    written = [(cluster, results)]
    for event in (first, last):
        assert (event["job"]["namespace"], event["job"]["name"]) == ("streams", "query")
        assert [(each["namespace"], each["name"]) for each in event["outputs"]] == written
    assert (first["eventType"], first["inputs"]) == ("START", [])
    assert last["eventType"] == "ABORT"
    assert [(each["namespace"], each["name"]) for each in last["inputs"]] == [(cluster, name) for name in names]
    assert last["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 1
