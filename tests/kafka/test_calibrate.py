"""``millrace calibrate`` with topics of a real broker: it measures, leaves the broker as it was, and says what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lab.kafka import Broker
from lab.topics import PATIENCE, admin, committed, fill, groups, make
from spark.cli import Project

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
TRIPS, ZONES = 4000, 3000

COUNT = "SELECT window.start AS since, who, count(*) AS trips FROM events GROUP BY window(at, '1 minute'), who"
BY_ZONE = """
SELECT window.start AS since, zones.zone, count(*) AS trips FROM events JOIN zones ON zones.who = events.who
GROUP BY window(events.at, '1 minute'), zones.zone
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder for queries, whose temporary files are beside it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return Project(tmp_path / "project")


def at(second: float) -> str:
    return (BEGIN + timedelta(seconds=second)).isoformat()


def events(broker: Broker, topic: str, **more: Any) -> dict[str, Any]:
    """The changes of a project's source that make it read a topic."""
    return {"files": None, "kafka": {"bootstrapServers": broker.bootstrap, "topic": topic}, "format": "json", **more}


def left_on(broker: Broker) -> tuple[list[str], list[str]]:
    """The consumer groups, and the topics other than those that a broker makes for itself."""
    topics = admin(broker).list_topics(timeout=PATIENCE).topics
    return sorted(groups(broker)), sorted(name for name in topics if not name.startswith("__"))


def test_a_stream_joined_with_a_table_is_measured_and_the_broker_is_left_as_it_was(
    broker: Broker, make_topic: Callable[..., str], project: Project
) -> None:
    trips, zones, out, dead = make_topic(2), make_topic(2, cleanup_policy="compact"), make_topic(2), make_topic()
    records = [{"at": at(n / 20), "who": f"who-{n % 50}", "n": n} for n in range(TRIPS)]
    fill(broker, trips, [*records, "no record"])
    rows = [{"since": at(n / 1000 - 60), "who": f"who-{n % 50}", "zone": f"zone-{n % 7}"} for n in range(ZONES)]
    fill(broker, zones, rows, keys=[row["who"] for row in rows])
    kafka = {"bootstrapServers": broker.bootstrap}
    table = {
        "kafka": kafka | {"topic": zones},
        "schema": "since TIMESTAMP, who STRING, zone STRING",
        "watermark": {"column": "since", "delay": "0s"},
        "table": {"keys": ["who"]},
    }
    stream = {
        "kafka": kafka | {"topic": trips},
        "schema": "at TIMESTAMP, who STRING, n INT",
        "watermark": {"column": "AT", "delay": "10s"},
        "corruptRecords": {"policy": "DeadLetter", "topic": dead},
    }
    query = project.query(
        BY_ZONE, sources={"events": stream, "zones": table}, sink={"kafka": kafka | {"topic": out, "key": ["zone"]}}
    )
    before = left_on(broker)
    report = project.calibrated(query)
    assert report["batches"] >= 6
    assert len(report["plans"]) >= 2
    assert report["batch_records"][1] <= TRIPS  # the table's records are not among them
    assert not any("late" in note for note in report["notes"])
    assert left_on(broker) == before
    assert [committed(broker, topic) for topic in (out, dead)] == [[], []]
    assert not (project.folder / "checkpoint").exists()
    assert not list((project.folder.parent / "tmp").glob("millrace-calibrate-*"))


def test_a_topic_without_a_record_may_be_replaced_by_a_sample(broker: Broker, topic: str, project: Project) -> None:
    query = project.query(COUNT, source=events(broker, topic))
    found = project.millrace("calibrate", query)
    found.assert_failed("source events has no record yet", "in place of kafka of source events: files: {path: sample")


def test_a_topic_with_few_records_says_nothing_of_their_costs(broker: Broker, topic: str, project: Project) -> None:
    fill(broker, topic, [{"at": at(n), "who": "a", "n": n} for n in range(5)])
    found = project.millrace("calibrate", project.query(COUNT, source=events(broker, topic)))
    found.assert_failed("query.yaml", "spec.sources.events.kafka", "source events has 5 records, too few to know")


def test_a_topic_that_does_not_exist_is_named(broker: Broker, topic: str, project: Project) -> None:
    query = project.query(COUNT, source=events(broker, f"{topic}-other"))
    found = project.millrace("calibrate", query)
    found.assert_failed("query.yaml", "spec.sources.events.kafka", f"has no topic {topic}-other")
    assert "does not reach" not in found.err


@pytest.mark.timeout(300)
def test_a_broker_that_stops_answering_ends_the_run(own_broker: Broker, project: Project) -> None:
    topic = make(own_broker, "trips")
    fill(own_broker, topic, [{"at": at(n / 20), "who": f"who-{n % 50}", "n": n} for n in range(TRIPS)])
    query = project.query(COUNT, source=events(own_broker, topic))
    with project.start("calibrate", query, "--seconds", "300") as command:
        command.wait_for("warming up")
        own_broker.pause()
        result = command.finish()
        command.assert_gone()
    own_broker.resume()
    assert result.status == 1, result
    said = result.err.splitlines()[-1]
    assert "query.yaml:12: spec.sources.events.kafka: gave up: Kafka at " in said
    assert said.endswith("and whether the brokers run, then run this again")
    assert not list((project.folder.parent / "tmp").glob("millrace-*"))


def test_records_that_do_not_decode_are_no_fault_of_the_network(broker: Broker, topic: str, project: Project) -> None:
    fill(broker, topic, ["no record"])
    query = project.query(COUNT, source=events(broker, topic))
    found = project.millrace("calibrate", query)
    found.assert_failed("source events", topic, "offset 0")
    assert "does not reach" not in found.err
