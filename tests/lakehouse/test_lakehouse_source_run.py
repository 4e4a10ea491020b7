"""Whole queries from tables of a lakehouse by ``millrace run``, killed at random moments while the tables change."""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from lab.processes import Mark
from millrace_jobs.lakehouse.iceberg_catalog import open_catalog
from spark.killed_queries import Process

from .iceberg_tables import iceberg_spec
from .killed_runs import CITIES, document, killed_and_killed
from .tables import delta_table

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]


def numbered(first: int, count: int = 100, **more: Any) -> pa.Table:
    found = range(first, first + count)
    cities = [CITIES[number % len(CITIES)] for number in found]
    return pa.table({"id": pa.array(found, pa.int64()), "city": cities} | more)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("placed", ["folder", "s3"])
def test_rows_of_a_delta_table_that_grows_and_is_compacted_are_read_once(tmp_path: Path, request, placed: str) -> None:
    place = str(tmp_path / "a table") if placed == "folder" else request.getfixturevalue("in_s3")
    options = delta_table_options(request, placed)
    write_deltalake(place, numbered(0), partition_by=["city"], storage_options=options)

    def write(turn: int) -> None:
        more = {} if turn < 4 else {"late": [turn] * 100}
        content = numbered(100 * (turn + 1), **more)
        how = {"mode": "append", "schema_mode": "merge", "partition_by": ["city"], "storage_options": options}
        write_deltalake(place, content, **how)
        if turn % 2:
            delta_table(place).optimize.compact()

    source = {"delta": {"path": place, "maxFilesPerBatch": 3}}
    query = document(tmp_path, source, "SELECT id, city FROM trips WHERE id % 2 = 0")
    found = killed_and_killed(tmp_path, query, write, len(placed))
    assert Counter(found.column("id").to_pylist()) == Counter(range(0, 800, 2))
    assert set(found.column("city").to_pylist()) == {"Oslo", "a b%"}


def delta_table_options(request: pytest.FixtureRequest, placed: str) -> dict[str, str]:
    """Return what the library has to know of the store."""
    if placed == "folder":
        return {}
    return {"allow_http": "true", "aws_endpoint_url": request.getfixturevalue("s3").environment["AWS_ENDPOINT_URL"]}


@pytest.mark.timeout(600)
def test_groups_over_an_iceberg_table_of_a_rest_catalog_count_each_row_once(tmp_path: Path, rest_catalog: str) -> None:
    fields = {"catalog": {"rest": {"uri": rest_catalog}}, "table": f"a{uuid.uuid4().hex[:12]}.trips"}
    catalog = open_catalog(iceberg_spec(fields))
    catalog.create_namespace(fields["table"].partition(".")[0])
    table = catalog.create_table(fields["table"], numbered(0).schema)
    table.append(numbered(0))

    def write(turn: int) -> None:
        if turn == 2:
            with table.update_schema() as update:
                update.rename_column("id", "number")
            with table.update_schema() as update:
                update.rename_column("number", "id")
        table.append(numbered(100 * (turn + 1)))

    query = document(
        tmp_path,
        {"iceberg": fields | {"maxFilesPerBatch": 1}},
        "SELECT city, count(*) AS trips, sum(id) AS total FROM trips GROUP BY city",
    )
    rows = killed_and_killed(tmp_path, query, write, 5).to_pylist()
    newest = {row["city"]: row for row in sorted(rows, key=lambda row: row["_batch_id"])}
    assert {city: (row["trips"], row["total"]) for city, row in newest.items()} == {
        city: (200, sum(range(place, 800, len(CITIES)))) for place, city in enumerate(CITIES)
    }
    assert max(row["_batch_id"] for row in rows) > 3


def test_vacuum_of_files_that_are_still_to_be_read_ends_the_run(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    for first in (0, 100, 200):
        write_deltalake(place, numbered(first), mode="append")
    query = document(tmp_path, {"delta": {"path": place, "startingVersion": 0}}, "SELECT id FROM trips")
    (tmp_path / "query.yaml").write_text(yaml.safe_dump(query), encoding="utf-8")
    DeltaTable(place).optimize.compact()
    DeltaTable(place).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
    run = Process(
        str(Path(sys.executable).parent / "millrace"),
        "run",
        str(tmp_path / "query.yaml"),
        "--once",
        log=tmp_path / "log",
        mark=Mark(),
    )
    assert run.wait() == 1
    assert "the Delta table" in run.output
    assert "has removed a file that is still to be read; start with another checkpoint" in run.output.replace("\n", " ")
