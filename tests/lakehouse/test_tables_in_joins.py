"""Delta and Iceberg tables as static tables: their rows, by version, and what is refused."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.io import InputFile
from pyiceberg.table import Table

from lab.postgres import PostgresServer
from millrace_api.errors import MillraceError
from millrace_api.model.confinement import Confinement
from millrace_api.model.sources import SourceSpec
from millrace_jobs.confinement import VARIABLE
from millrace_jobs.lakehouse.delta_store import delta_options, delta_place
from millrace_jobs.lakehouse.iceberg_catalog import open_catalog, require_namespace
from millrace_jobs.lakehouse.iceberg_io import TableFiles
from millrace_jobs.sources.connector import open_table, schema_of
from millrace_jobs.sources.static_tables import TableLimits, WholeTable, static_table
from spark.cli import Project

from .answers import answering
from .delta_logs import OUTSIDE, PLAIN, WrittenLog, column, numbers

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "tier": ["gold", "", None],
        "price": pa.array([Decimal("1.50"), Decimal("-0.01"), None], pa.decimal128(9, 2)),
        "at": pa.array(
            [datetime(1969, 12, 31, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")
        ),
        "tags": pa.array([["a"], [], None], pa.list_(pa.string())),
        "raw": pa.array([b"\x00", b"", None], pa.binary()),
    }
)
COLUMNS = "id BIGINT, tier STRING, price DECIMAL(9,2), `at` TIMESTAMP, tags ARRAY<STRING>, raw BINARY"


def source(columns: str = COLUMNS, **table: Any) -> SourceSpec:
    """Return a source that is a table."""
    return SourceSpec.model_validate({"schema": columns, "table": {"keys": ["id"], "static": True}, **table})


def opened(spec: SourceSpec) -> WholeTable:
    """Return a table as a run opens it."""
    return open_table("customers", spec, Path())


def rows(spec: SourceSpec) -> list[dict[str, Any]]:
    """Return all rows of a table."""
    found = opened(spec).read(None)
    assert found is not None
    return pa.Table.from_batches(list(found.records), schema_of(spec)).sort_by("id").to_pylist()  # type: ignore[arg-type]


def write_delta(spec: SourceSpec, found: pa.Table, **more: Any) -> None:
    """Append rows to the Delta table of a source, which is created."""
    assert spec.delta is not None
    place = delta_place(spec.delta)
    if isinstance(place, Path):
        place.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(place), found, storage_options=delta_options(place), **{"mode": "append"} | more)


def iceberg_table(spec: SourceSpec) -> Table:
    """Return the Iceberg table of a source, which is created."""
    assert spec.iceberg is not None
    catalog = open_catalog(spec.iceberg)
    require_namespace(catalog, spec.iceberg.namespace)
    return catalog.create_table_if_not_exists(spec.iceberg.table, ROWS.schema, spec.iceberg.location)


def test_the_rows_of_a_delta_table_are_read_once_for_each_version(place: str) -> None:
    spec = source(delta={"path": place})
    write_delta(spec, ROWS)
    assert rows(spec) == ROWS.to_pylist()
    found = opened(spec).read(None)
    assert found is not None
    assert opened(spec).read(found.version) is None
    write_delta(spec, ROWS.slice(0, 1))
    assert opened(spec).read(found.version) is not None
    assert len(rows(spec)) == 4
    assert rows(source("tier STRING, id INT", delta={"path": place}))[0] == {"tier": "gold", "id": 1}
    if Path(place).exists():
        shutil.rmtree(place)
        write_delta(spec, ROWS)
        assert opened(spec).read(found.version) is not None, "it is another table, with the same number of a version"


def test_times_of_a_delta_table_that_do_not_fit_nanoseconds_are_read(tmp_path: Path) -> None:
    """Spark's Parquet has times in 96 bits by default, with nanoseconds of the day."""
    log = WrittenLog(tmp_path / "table", [column("id", "long"), column("at", "timestamp")])
    at = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 0, 0, 0, 123_456, UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ]
    content = pa.table({"id": range(3), "at": pa.array(at, pa.timestamp("us", "UTC"))})
    log.commit(log.file("a.parquet", content, in_96_bits=True))
    found = rows(source("id BIGINT, `at` TIMESTAMP", delta={"path": str(log.folder)}))
    assert found == content.to_pylist()


def test_the_rows_of_an_iceberg_table_are_read_once_for_each_version(iceberg: dict[str, Any]) -> None:
    spec = source(iceberg=iceberg)
    table = iceberg_table(spec)
    assert rows(spec) == []
    table.append(ROWS)
    assert rows(spec) == ROWS.to_pylist()
    found = opened(spec).read(None)
    assert found is not None
    assert opened(spec).read(found.version) is None
    table.delete("id = 2")
    assert opened(spec).read(found.version) is not None
    assert [row["id"] for row in rows(spec)] == [1, None]


def test_the_files_of_an_iceberg_table_are_read_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = {"file": str(tmp_path / "catalog.db")}
    spec = source(iceberg={"catalog": catalog, "table": "a.b", "location": str(tmp_path / "table")})
    for _ in range(4):
        iceberg_table(spec).append(ROWS)
    read: list[str] = []
    new_input = TableFiles.new_input

    def noted(files: TableFiles, place: str) -> InputFile:
        read.append(place)
        return new_input(files, place)

    monkeypatch.setattr(TableFiles, "new_input", noted)
    found = opened(spec).read(None)
    assert found is not None
    read.clear()
    with pytest.raises(MillraceError, match="more than 11 rows"):
        static_table("customers", found.records, schema_of(spec), ["id"], TableLimits(11, 1 << 30), found.least)
    assert read == [], "the table's metadata has the number of rows"
    first = next(found.records)
    assert isinstance(first, pa.RecordBatch)
    time.sleep(0.2)  # for files that another thread would read
    assert (first.num_rows, len(read)) == (3, 1)
    assert (sum(each.num_rows for each in found.records), len(read)) == (9, 4)  # type: ignore[union-attr]


def test_a_catalog_in_a_database_keeps_no_connection(
    postgres_server: PostgresServer, postgres_catalog: dict[str, Any], tmp_path: Path
) -> None:
    name, place = f"a{uuid.uuid4().hex[:12]}.results", str(tmp_path / "table")
    spec = source(iceberg={"catalog": {"postgres": postgres_catalog}, "table": name, "location": place})
    iceberg_table(spec)
    absent = source(iceberg={"catalog": {"postgres": postgres_catalog}, "table": f"{name}s"})
    sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'millrace'"
    before = set(postgres_server.execute(sessions))
    table, missing = opened(spec), opened(absent)
    for _ in range(3):
        assert table.read(None) is not None
        with pytest.raises(MillraceError, match="the catalog has no table"):
            missing.read(None)
    time.sleep(0.2)  # for the server to notice
    assert set(postgres_server.execute(sessions)) <= before


def test_the_token_of_a_catalog_is_used_until_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = source(iceberg={"catalog": {"file": str(tmp_path / "catalog.db")}, "table": "a.b"})
    assert local.iceberg is not None
    catalog = open_catalog(local.iceberg)
    require_namespace(catalog, ("a",))
    table = catalog.create_table("a.b", ROWS.schema, str(tmp_path / "table"))
    table.append(ROWS)
    loaded = f'{{"metadata-location": "{table.metadata_location}", "metadata": {table.metadata.model_dump_json()}}}'
    config, refused = (
        (200, '{"defaults": {}, "overrides": {}}'),
        (401, '{"error": {"message": "", "type": "", "code": 401}}'),
    )
    answers = [config, (200, loaded), (200, loaded), refused, refused, config, (200, loaded)]
    with answering(*answers) as (url, asked):
        rest = {"uri": url, "token": {"env": "TOKEN"}}
        remote = opened(source(iceberg={"catalog": {"rest": rest}, "table": "a.b"}))
        monkeypatch.setenv("TOKEN", "first")
        versions = {found.version for found in (remote.read(None), remote.read(None)) if found is not None}
        monkeypatch.setenv("TOKEN", "second")
        assert [len(asked), len(versions)] == [3, 1]
        found = remote.read(None)
    assert found is not None
    assert sum(each.num_rows for each in found.records) == 3  # type: ignore[union-attr]
    assert [each.rpartition(" ")[2] for each, _ in asked] == [*["first"] * 5, *["second"] * 2]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id BIGINT, level STRING", "has no column level; it has id, tier, price, at, tags, raw"),
        ("id BIGINT, tier INT", "column tier (INT): its type is STRING"),
        ("id BIGINT, price DECIMAL(3,1)", "column price (DECIMAL(3,1)): "),
    ],
)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, kind: str, columns: str, said: str) -> None:
    tables = {
        "delta": {"path": str(tmp_path / "table")},
        "iceberg": {"catalog": {"file": str(tmp_path / "catalog.db")}, "table": "a.b", "location": str(tmp_path / "t")},
    }
    spec = source(columns, **{kind: tables[kind]})
    if kind == "delta":
        write_delta(spec, ROWS)
    else:
        iceberg_table(spec).append(ROWS)
    with pytest.raises(MillraceError) as raised:
        rows(spec)
    (problem,) = raised.value.problems
    assert said in problem.message
    assert problem.field == "spec.sources.customers.schema"


def test_missing_tables_are_refused_with_their_field(tmp_path: Path) -> None:
    with pytest.raises(MillraceError, match="there is no Delta table at") as raised:
        rows(source(delta={"path": str(tmp_path / "none")}))
    assert raised.value.problems[0].field == "spec.sources.customers.delta.path"
    catalog = {"file": str(tmp_path / "catalog.db")}
    with pytest.raises(MillraceError, match="there is no catalog at") as raised:
        rows(source(iceberg={"catalog": catalog, "table": "a.b"}))
    assert raised.value.problems[0].field == "spec.sources.customers.iceberg.catalog.file"
    assert not list(tmp_path.iterdir())
    there = source(iceberg={"catalog": catalog, "table": "a.b", "location": str(tmp_path / "there")})
    iceberg_table(there)
    with pytest.raises(MillraceError, match=r"the catalog has no table a\.c") as raised:
        rows(source(iceberg={"catalog": catalog, "table": "a.c"}))
    assert raised.value.problems[0].field == "spec.sources.customers.iceberg.table"
    elsewhere = source(iceberg={"catalog": catalog, "table": "a.b", "location": str(tmp_path / "here")})
    with pytest.raises(MillraceError, match="and not in") as raised:
        rows(elsewhere)
    assert raised.value.problems[0].field == "spec.sources.customers.iceberg.location"


def test_an_iceberg_table_with_files_that_the_query_may_not_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table's metadata may name any file, and a catalog in a file may be behind a link."""
    volume, elsewhere = tmp_path / "volume", tmp_path / "elsewhere"
    volume.mkdir()
    elsewhere.mkdir()
    (volume / "link").symlink_to(elsewhere)
    asked = source(iceberg={"catalog": {"file": str(volume / "catalog.db")}, "table": "sales.customers"})
    assert asked.iceberg is not None
    catalog = open_catalog(asked.iceberg)
    require_namespace(catalog, ("sales",))
    properties = {"write.data.path": f"file://{elsewhere}/data"}
    table = catalog.create_table("sales.customers", ROWS.schema, str(volume / "table"), properties=properties)
    table.append(ROWS)
    assert len(rows(asked)) == 3
    monkeypatch.setenv(VARIABLE, Confinement(folders=(str(volume),), logins=(), functions=()).to_json())
    with pytest.raises(MillraceError, match="is not on a volume that the query mounts for data"):
        rows(asked)
    linked = source(iceberg={"catalog": {"file": str(volume / "link" / "catalog.db")}, "table": "sales.customers"})
    with pytest.raises(MillraceError, match="is not on a volume that the query mounts for data"):
        rows(linked)
    assert not (elsewhere / "catalog.db").exists()


def test_a_delta_table_with_deletion_vectors_is_refused(tmp_path: Path) -> None:
    spec = source(delta={"path": str(tmp_path / "table")})
    write_delta(spec, ROWS, configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(MillraceError, match="has a feature that Millrace cannot read") as raised:
        rows(spec)
    assert raised.value.problems[0].field == "spec.sources.customers.delta"


def test_a_delta_table_with_column_mapping_by_an_old_protocol_is_refused(tmp_path: Path) -> None:
    """Before protocols named their features, tables with column mapping had the reader's version 2."""
    log = WrittenLog(tmp_path / "table", [column("id", "long", "c-1", 1)], **{"delta.columnMapping.mode": "name"})
    old = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    first = log.folder / "_delta_log" / f"{0:020d}.json"
    first.write_text("\n".join([json.dumps(old), *first.read_text().splitlines()[1:]]))
    log.commit(log.file("a.parquet", pa.table({"c-1": [1, 2]})))
    with pytest.raises(MillraceError, match=r"has a feature that Millrace cannot read .*column mapping"):
        rows(source("id BIGINT", delta={"path": str(log.folder)}))


@pytest.mark.parametrize("path", OUTSIDE)
def test_files_outside_of_the_folder_of_a_delta_table_are_not_found(tmp_path: Path, path: str) -> None:
    (tmp_path / "other").mkdir()
    log = WrittenLog(tmp_path / "table", PLAIN)
    log.commit(log.file("../other/a.parquet", numbers(0), path=path.format(table=log.folder)))
    with pytest.raises(MillraceError, match="because a file of the table is gone"):
        rows(source("id BIGINT", delta={"path": str(log.folder)}))


@pytest.mark.spark
@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_query_joins_a_stream_with_a_table_of_a_lakehouse(tmp_path: Path, kind: str) -> None:
    project = Project(tmp_path)
    tables = {
        "delta": {"path": str(tmp_path / "table")},
        "iceberg": {"catalog": {"file": str(tmp_path / "catalog.db")}, "table": "a.b", "location": str(tmp_path / "t")},
    }
    spec = source(**{kind: tables[kind]})
    write_delta(spec, ROWS) if kind == "delta" else iceberg_table(spec).append(ROWS)
    events = {"files": {"path": "in", "format": "csv"}, "schema": "at TIMESTAMP, who BIGINT, n INT"}
    read = {kind: tables[kind], "schema": "id BIGINT, tier STRING", "table": {"keys": ["id"], "static": True}}
    sql = "SELECT e.n, c.tier FROM events e LEFT JOIN customers c ON c.id = e.who"
    file = project.query(sql, sources={"events": events, "customers": read})
    project.give("1.csv", "at,who,n\n2024-01-01T00:00:00Z,1,1\n2024-01-01T00:00:00Z,3,2\n")
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    assert "records of the static table are no rows: they have no id" in result.out
    assert {row[:2] for row in project.results()} == {("1", "gold"), ("2", "")}
