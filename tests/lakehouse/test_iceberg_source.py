"""The rows of Iceberg tables as a stream: each row once, whatever happens to the table meanwhile."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent

from lab.s3_server import BUCKET, S3Server
from millrace_api.errors import MillraceError, MissingInputError
from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.connector import open_table

from .iceberg_snapshots import compacted, created, delete, in_file, numbered
from .iceberg_tables import iceberg_table
from .streamed import ids, next_rows, opened, rows


@pytest.fixture(params=["file", "rest", "hive", "postgres in S3"])
def fields(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Fields of a table that does not exist yet; no Spark is needed to read it."""
    name = f"a{uuid.uuid4().hex[:12]}.trips"
    if request.param == "rest":
        return {"catalog": {"rest": {"uri": request.getfixturevalue("rest_catalog")}}, "table": name}
    if request.param == "hive":
        return {"catalog": {"hive": {"uri": request.getfixturevalue("metastore")}}, "table": name}
    if request.param == "file":
        return in_file(tmp_path) | {"table": name}
    server: S3Server = request.getfixturevalue("shared_s3")
    for variable, value in server.environment.items():
        monkeypatch.setenv(variable, value)
    place = f"s3a://{BUCKET}/streams/{name}"
    return {"catalog": {"postgres": request.getfixturevalue("postgres_catalog")}, "table": name, "location": place}


def refused(kind: type[MillraceError], call: Any, *arguments: Any) -> str:
    with pytest.raises(kind) as raised:
        call(*arguments)
    return str(raised.value)


def test_each_row_comes_once_across_batches_restarts_and_compaction(fields: dict[str, Any], tmp_path: Path) -> None:
    chance = random.Random(3)
    table = created(fields, **{"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "3"})
    table.append(numbered(0))
    table.append(numbered(10))
    spec, state = fields | {"maxFilesPerBatch": 4}, tmp_path / "state"
    at = dict(opened("iceberg", spec, state).initial())
    found, written = [], 20
    for turn in range(9):
        source = opened("iceberg", spec, state)  # as after a crash: only positions and the state are left
        for _ in range(chance.randrange(1, 4)):
            found += next_rows(source, at, chance.randrange(1, 5))
        if turn < 5:
            table.append(numbered(written))
            written += 10
        if turn in (2, 5):
            compacted(fields)
            table.refresh()
    assert next_rows(source, at) == []
    assert ids(found) == list(range(written))
    assert {each["city"] for each in found} == {"a b%", "é/z", None}
    assert source.lag(at) == 0


def test_a_long_backlog_is_counted_and_estimated(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    source = opened("iceberg", fields | {"maxFilesPerBatch": 3}, tmp_path / "state")
    at = source.initial()
    for first in range(0, 220, 10):
        table.append(numbered(first))
    end = source.latest(at, everything=False)
    assert source.lag(end) == 210
    assert source.lag(at) == 220


def test_paths_are_where_the_query_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = in_file(tmp_path)
    created(fields).append(numbered(0))
    monkeypatch.chdir(tmp_path)
    there = fields | {"catalog": {"file": "catalog.db"}, "location": Path(fields["location"]).name}
    source = opened("iceberg", there, tmp_path / "state")
    monkeypatch.chdir("/")
    assert ids(next_rows(source, dict(source.initial()))) == list(range(10))


def test_where_a_source_starts_is_decided_once(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    empty = opened("iceberg", fields, tmp_path / "empty")
    from_empty = dict(empty.initial())
    assert next_rows(empty, from_empty) == []
    table.append(numbered(0))
    table.append(numbered(10))
    snapshot = iceberg_table(fields).current_snapshot()
    assert snapshot is not None
    for name, more, expected in (
        ("whole", {}, range(20)),
        ("latest", {"startFrom": "Latest"}, []),
        ("snapshot", {"startingSnapshot": snapshot.snapshot_id}, range(10, 20)),
    ):
        source = opened("iceberg", fields | more, tmp_path / name)
        at = dict(source.initial())
        assert ids(next_rows(source, at)) == list(expected)
    table.append(numbered(20))
    source = opened("iceberg", fields, tmp_path / "latest")  # its first batch was lost, and is made again
    assert ids(rows(source, source.initial(), source.latest(source.initial(), everything=True))) == list(range(20, 30))
    assert ids(next_rows(empty, from_empty)) == list(range(30))
    unknown = opened("iceberg", fields | {"startingSnapshot": 7}, tmp_path / "unknown")
    assert "has no snapshot 7 that led to its current one" in refused(MillraceError, unknown.initial)


def test_snapshots_that_change_rows_are_refused_or_skipped(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    table.append(numbered(0))
    source = opened("iceberg", fields, tmp_path / "state")
    at = dict(source.initial())
    assert ids(next_rows(source, at)) == list(range(10))
    table.append(numbered(10))
    table.delete("id = 3")
    table.append(numbered(20))
    assert ids(next_rows(source, at)) == list(range(10, 20)), "what is before is read first"
    message = refused(MillraceError, next_rows, source, at)
    assert (
        "of the Iceberg table sales.trips, overwrite, changes or removes rows, not only adds some; write other"
        in message
    )
    skipping = opened("iceberg", fields | {"otherCommits": "Skip"}, tmp_path / "state")
    assert ids(next_rows(skipping, at)) == list(range(20, 30))


def test_unread_snapshots_that_expired_are_an_error(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    table.append(numbered(0))
    source = opened("iceberg", fields, tmp_path / "state")
    at = dict(source.initial())
    assert ids(next_rows(source, at)) == list(range(10))
    first = table.current_snapshot()
    table.append(numbered(10))
    second = table.current_snapshot()
    assert first is not None
    assert second is not None
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    before = dict(at)
    assert ids(next_rows(source, at)) == list(range(10, 20)), "the one that was read is not needed"
    table.append(numbered(20))
    table.maintenance.expire_snapshots().by_id(second.snapshot_id).commit()
    message = refused(MillraceError, next_rows, opened("iceberg", fields, tmp_path / "state"), before)
    assert "snapshots of the Iceberg table sales.trips have expired that are still to be read, after" in message
    assert ids(next_rows(source, at)) == list(range(20, 30))


def test_columns_are_known_by_their_numbers(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    nested = {"n": [{"x": 1, "y": [{"z": "a"}]}] * 10, "m": [[("k", {"v": 1})]] * 10}
    kind = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.string())])))])
    maps = pa.map_(pa.string(), pa.struct([("v", pa.int64())]))
    content = (
        numbered(0).append_column("n", pa.array(nested["n"], kind)).append_column("m", pa.array(nested["m"], maps))
    )
    with table.update_schema() as update:
        update.union_by_name(content.schema)
    table.append(content)
    source = opened("iceberg", fields, tmp_path / "state")
    at = dict(source.initial())
    next_rows(source, at)
    with table.update_schema() as update:
        update.rename_column("city", "town")
        update.rename_column("n.x", "xx")
        update.rename_column("m.value.v", "w")
        update.delete_column("day")
        update.add_column("day", update._schema.find_type("id"))
    assert "has no column city; it has id, town, n, m, day" in refused(MillraceError, next_rows, source, at)
    columns = "ID BIGINT, town STRING, n STRUCT<XX: BIGINT, y: ARRAY<STRUCT<z: STRING>>>, day BIGINT, "
    source = opened("iceberg", fields, tmp_path / "state", f"{columns}m MAP<STRING, STRUCT<w: BIGINT>>")
    found = rows(source, source.initial(), at)
    assert found[0].keys() == {"ID", "town", "n", "day", "m"}
    for each in found:
        assert each["n"] == {"XX": 1, "y": [{"z": "a"}]}
        assert each["m"] == [("k", {"w": 1})]
        assert each["day"] is None, "the column of that name in the file is another one"
    assert {each["town"] for each in found} == {"a b%", "é/z", None}


def test_rows_that_delete_files_name_are_not_read(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    table.append(numbered(0, 300))
    first = min((task.file for task in table.scan().plan_files()), key=lambda file: str(file.partition[0]))
    alive = [row["id"] for row in pq.read_table(first.file_path.removeprefix("file://")).to_pylist()]
    (tmp_path / "deletes").mkdir()
    for number, places in enumerate(([0, 7], [99])):
        path = tmp_path / "deletes" / f"{number}.parquet"
        delete(table, first.file_path, places, first.partition, DataFileContent.POSITION_DELETES, path)
    deleted = {alive[place] for place in (0, 7, 99)}
    whole = {name: value for name, value in fields.items() if name != "location"}
    for replicas in (1, 5):
        source = opened("iceberg", whole, tmp_path / f"state-{replicas}")
        found = next_rows(source, dict(source.initial()), replicas)
        assert ids(found) == sorted(set(range(300)) - deleted)
    columns = {"schema": "id BIGINT", "table": {"keys": ["id"], "static": True}}
    static = open_table("trips", SourceSpec.model_validate({"iceberg": whole} | columns), tmp_path).read(None)
    assert static is not None
    assert static.least == 300 - len(alive), "the other files are read as they are"
    assert ids(pa.Table.from_batches(static.records).to_pylist()) == sorted(set(range(300)) - deleted)
    path = tmp_path / "deletes" / "equality.parquet"
    delete(table, first.file_path, [1], first.partition, DataFileContent.EQUALITY_DELETES, path)
    source = opened("iceberg", whole, tmp_path / "equality")
    assert "has equality deletes, which the library cannot read" in refused(
        MillraceError, next_rows, source, dict(source.initial())
    )


def test_missing_catalogs_and_tables_and_a_table_elsewhere_are_refused(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    missing = refused(MissingInputError, opened, "iceberg", fields, tmp_path / "state")
    assert missing.startswith("spec.sources.trips.iceberg.catalog.file: source trips: there is no catalog at ")
    table = created(fields)
    table.append(numbered(0))
    missing = refused(MissingInputError, opened, "iceberg", fields | {"table": "sales.none"}, tmp_path / "state")
    assert missing.endswith("the catalog has no table sales.none; create it, or correct the name")
    other = opened("iceberg", fields | {"location": str(tmp_path / "other")}, tmp_path / "state")
    assert "has a file outside of" in refused(MillraceError, next_rows, other, dict(other.initial()))
