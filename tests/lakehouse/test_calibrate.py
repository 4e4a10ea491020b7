"""``millrace calibrate`` with tables of lakehouses: batches have the files that they ask for, and no table is written."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lab.ports import free_port
from millrace_api.model.sources import SourceSpec
from millrace_jobs.calibration.calibrate import by_file
from millrace_jobs.calibration.turns import BatchTurn, TurnSource
from millrace_jobs.lakehouse.iceberg_catalog import open_catalog
from millrace_jobs.sources.connector import open_source
from spark.cli import Project

from .iceberg_tables import iceberg_spec

pytestmark = [pytest.mark.spark, pytest.mark.in_turn, pytest.mark.timeout(900)]

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
COMMITS, ROWS = 20, 200
SCHEMA = "at TIMESTAMP, who STRING, n INT"

COUNT = "SELECT window.start AS since, who, count(*) AS trips FROM events GROUP BY window(at, '1 minute'), who"
BY_ZONE = """
SELECT window.start AS since, zones.zone, count(*) AS trips FROM events JOIN zones ON zones.who = events.who
GROUP BY window(events.at, '1 minute'), zones.zone
"""


def trips(commit: int) -> pa.Table:
    """The rows of a commit."""
    numbers = range(commit * ROWS, (commit + 1) * ROWS)
    times = pa.array([BEGIN + timedelta(seconds=n / 20) for n in numbers], pa.timestamp("us", "UTC"))
    return pa.table({"at": times, "who": [f"who-{n % 50}" for n in numbers], "n": pa.array(numbers, pa.int32())})


def delta_trips(place: Path) -> dict[str, Any]:
    """A source of a Delta table with as many files as commits, of which a query would read none."""
    for commit in range(COMMITS):
        write_deltalake(str(place), trips(commit), mode="append")
    return {"delta": {"path": str(place), "startFrom": "Latest"}, "schema": SCHEMA}


def in_catalog(**catalog: Any) -> dict[str, Any]:
    """The fields of a source of an Iceberg table in a catalog."""
    return {"iceberg": {"catalog": catalog, "table": "a.trips"}}


def content(*folders: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of each file in folders."""
    found = [(file, file.stat()) for folder in folders for file in folder.rglob("*")]
    return {str(file): (0 if file.is_dir() else state.st_size, state.st_mtime_ns) for file, state in found}


def test_a_batch_has_as_many_files_as_its_turn_asks_for(tmp_path: Path) -> None:
    for commit in range(COMMITS):
        write_deltalake(str(tmp_path / "trips"), trips(commit), mode="append")
    spec = SourceSpec.model_validate({"delta": {"path": str(tmp_path / "trips")}, "schema": SCHEMA})
    source = TurnSource(
        open_source("events", by_file(spec), tmp_path, tmp_path), tmp_path / "turn.json", 1.0, again=True
    )
    position, read = source.initial(), []
    for number, units in enumerate((1, 3, 5), start=1):
        BatchTurn(number, units * ROWS, units).write(tmp_path / "turn.json")
        end = source.latest(position, everything=False)
        pieces = source.slices(position, end, 2)
        blocks = [block for piece in pieces for block in source.read(piece, "x")]
        read.append(sum(block.num_rows for block in blocks if isinstance(block, pa.RecordBatch)))
        position = end
    assert read == [ROWS, 3 * ROWS, 5 * ROWS]


def test_tables_are_measured_and_none_is_written(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    zones = {"catalog": {"file": str(tmp_path / "catalog.db")}, "table": "a.zones"}
    catalog = open_catalog(iceberg_spec(zones))
    catalog.create_namespace("a")
    rows = pa.table({"who": [f"who-{n}" for n in range(50)], "zone": [f"zone-{n % 7}" for n in range(50)]})
    catalog.create_table("a.zones", rows.schema, location=(tmp_path / "zones").as_uri()).append(rows)
    table = {"iceberg": zones, "schema": "who STRING, zone STRING", "table": {"keys": ["who"], "static": True}}
    stream = delta_trips(tmp_path / "trips") | {"watermark": {"column": "at", "delay": "10s"}}
    results = zones | {"table": "a.results", "location": str(tmp_path / "results"), "key": ["since", "zone"]}
    query = project.query(BY_ZONE, sources={"events": stream, "zones": table}, sink={"iceberg": results})
    before = content(tmp_path / "trips", tmp_path / "zones")
    report = project.calibrated(query)
    assert report["batches"] >= 6
    assert not any("late" in note for note in report["notes"])
    assert content(tmp_path / "trips", tmp_path / "zones") == before
    assert catalog.list_tables("a") == [("a", "zones")]
    assert not (tmp_path / "results").exists()
    assert not (project.folder / "checkpoint").exists()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["delta", "hive", "rest", "postgres"])
def test_what_does_not_answer_is_named_in_one_sentence(tmp_path: Path, kind: str) -> None:
    project = Project(tmp_path / "project")
    key = {"env": "HOME"}  # the store does not come to ask for it
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1] if kind == 'delta' else free_port()}"
        tables: dict[str, Any] = {
            "delta": {"delta": {"path": "s3a://lake/trips"}},
            "hive": in_catalog(hive={"uri": f"thrift://{address}"}),
            "rest": in_catalog(rest={"uri": f"http://{address}"}),
            "postgres": in_catalog(postgres={"host": address, "database": "lake", "user": "reader"}),
        }
        source = tables[kind] | {"schema": SCHEMA, "watermark": {"column": "at", "delay": "10s"}}
        s3 = {"endpoint": f"http://{address}", "accessKeyId": key, "secretAccessKey": key} if kind == "delta" else None
        found = project.millrace("calibrate", project.query(COUNT, sources={"events": source}, s3=s3))
    field = "delta" if kind == "delta" else "iceberg.catalog"
    found.assert_failed(f"spec.sources.events.{field}: ", "does not answer as it should", "files: {path: sample.jsonl")
