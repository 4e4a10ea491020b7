"""``millrace calibrate`` with a table of a database beside a stream: it is read, and nothing in the database changes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.ports import free_port
from lab.postgres import PostgresServer
from spark.cli import Project

from .sinks import Server, rows, spec
from .tables import source

pytestmark = [pytest.mark.spark, pytest.mark.in_turn, pytest.mark.timeout(900)]

BY_ZONE = """
SELECT window.start AS since, zones.zone, count(*) AS trips FROM events JOIN zones ON zones.who = events.who
GROUP BY window(events.at, '1 minute'), zones.zone
"""
EVENTS = {
    "files": {"path": "in", "format": "csv"},
    "schema": "at TIMESTAMP, who STRING, n INT",
    "watermark": {"column": "at", "delay": "10s"},
}
ZONES = "who STRING, zone STRING"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A folder with events in eight files."""
    made = Project(tmp_path / "project")
    for minute in range(8):
        lines = [f"2024-01-01T00:{minute:02}:{n % 60:02}Z,who-{n % 50},{n}" for n in range(500)]
        made.give(f"{minute}.csv", "at,who,n\n" + "\n".join(lines) + "\n")
    return made


def objects(server: Server) -> list[tuple[Any, ...]]:
    """Return the tables of a server, and the replication slots of PostgreSQL."""
    found = server.execute("SELECT table_schema, table_name FROM information_schema.tables ORDER BY 1, 2")
    if isinstance(server, PostgresServer):
        found += server.execute("SELECT slot_name, active FROM pg_replication_slots")
    return found


def test_it_is_measured_and_the_database_is_left_as_it_was(
    server: Server, make_table: Callable[[str], str], project: Project
) -> None:
    zones, results = make_table("who {text}, zone {text}"), make_table("since {text}, zone {text}, trips bigint")
    for number in range(50):
        server.execute(f"INSERT INTO {zones} VALUES ('who-{number}', 'zone-{number % 7}')")
    table = source(server, ZONES, ["who"], table=zones)
    kind = "postgres" if isinstance(server, PostgresServer) else "mysql"
    query = project.query(
        BY_ZONE, sources={"events": EVENTS, "zones": table}, sink={kind: spec(server, results, key=["since", "zone"])}
    )
    before, contents = objects(server), rows(server, zones)
    report = project.calibrated(query)
    assert report["batches"] >= 6
    assert report["batch_records"][1] <= 8 * 500
    assert (objects(server), rows(server, zones), rows(server, results)) == (before, contents, [])


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
@pytest.mark.parametrize("listens", [False, True])
def test_a_server_that_does_not_answer_is_named(project: Project, kind: str, listens: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1] if listens else free_port()
        login = {"host": f"127.0.0.1:{port}", "database": "trips", "user": "reader", "table": "zones"}
        table = {kind: login, "schema": ZONES, "table": {"keys": ["who"], "static": True}}
        found = project.millrace("calibrate", project.query(BY_ZONE, sources={"events": EVENTS, "zones": table}))
    found.assert_failed(f"query.yaml:17: spec.sources.zones.{kind}.host", f"127.0.0.1:{port} cannot be reached")
