"""The rows of Delta tables as a stream: each row once, whatever happens to the table meanwhile."""

from __future__ import annotations

import random
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from lab.s3_server import BUCKET, S3Server
from millrace_api.errors import MillraceError, MissingInputError
from millrace_api.model.lakehouse import DeltaSourceSpec
from millrace_jobs.lakehouse.delta_store import delta_place
from millrace_jobs.places import remove_all
from millrace_jobs.sources.lakehouse.delta_commits import DeltaCommits

from .delta_logs import PLAIN, WrittenLog, numbers
from .delta_tables import add, options
from .streamed import COLUMNS, ids, next_rows, opened, rows


@pytest.fixture(params=["folder", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place for a table, in a folder with an odd name or in S3; no Spark is needed to read it."""
    if request.param == "folder":
        return str(tmp_path / "a table, 50% done")
    server: S3Server = request.getfixturevalue("shared_s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3a://{BUCKET}/streams/{tmp_path.name}/table"


def delta(place: str, version: int | None = None) -> DeltaTable:
    return DeltaTable(place, version=version, storage_options=options(place))


def forget(place: str, until: int) -> None:
    """Remove versions from the log, as engines do once a checkpoint has their actions and they are old enough."""
    delta(place).create_checkpoint()
    for version in range(until + 1):
        (Path(place) / "_delta_log" / f"{version:020d}.json").unlink()


def refused(kind: type[MillraceError], call: Any, *arguments: Any, **more: Any) -> str:
    with pytest.raises(kind) as raised:
        call(*arguments, **more)
    return str(raised.value)


def test_each_row_comes_once_across_batches_restarts_and_compaction(table: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    add(table, 0)
    add(table, 10)
    spec, state = {"path": table, "maxFilesPerBatch": 3}, tmp_path / "state"
    at = dict(opened("delta", spec, state).initial())
    found, written = [], 20
    for turn in range(12):
        source = opened("delta", spec, state)  # as after a crash: only positions and the state are left
        for _ in range(chance.randrange(1, 4)):
            found += next_rows(source, at, replicas=chance.randrange(1, 5))
        if turn < 6:
            add(table, written)
            written += 10
        if turn % 4 == 2:
            delta(table).optimize.compact()
    assert next_rows(source, at) == []
    assert ids(found) == list(range(written))
    assert {each["city"] for each in found} == {"a b%", "é/z"}
    assert source.lag(at) == 0


def test_a_folder_is_where_the_query_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(str(tmp_path / "table"), 0)
    monkeypatch.chdir(tmp_path)
    source = opened("delta", {"path": "table"}, tmp_path / "state")
    monkeypatch.chdir("/")
    assert ids(next_rows(source, dict(source.initial()))) == list(range(10))


def test_where_a_source_starts_is_decided_once(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    add(place, 0)
    add(place, 10)
    for name, more, expected in (
        ("whole", {}, range(20)),
        ("named", {"startFrom": "Table"}, range(20)),
        ("latest", {"startFrom": "Latest"}, []),
        ("version", {"startingVersion": 1}, range(10, 20)),
    ):
        source = opened("delta", {"path": place} | more, tmp_path / name)
        at = dict(source.initial())
        assert ids(next_rows(source, at)) == list(expected)
    add(place, 20)
    for name, expected in (("whole", range(20)), ("latest", range(20, 30))):
        source = opened("delta", {"path": place}, tmp_path / name)  # its first batch was lost, and is made again
        found = rows(source, source.initial(), source.latest(source.initial(), everything=False))
        assert ids(found) == sorted({*expected, *range(20, 30)})
    late = opened("delta", {"path": place, "startingVersion": 9}, tmp_path / "late")
    assert "the newest version of the Delta table" in refused(MillraceError, late.initial)


def test_once_leaves_what_comes_later_to_the_next_run(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    add(place, 0)
    source = opened("delta", {"path": place}, tmp_path / "state")
    end = source.latest(source.initial(), everything=True)
    add(place, 10)
    assert source.latest(end, everything=True) == end
    assert ids(rows(source, source.initial(), end)) == list(range(10))
    again = opened("delta", {"path": place}, tmp_path / "state")
    assert ids(rows(again, end, again.latest(end, everything=True))) == list(range(10, 20))


def test_the_backlog_is_counted_in_records_and_limits_hold(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    for first in range(0, 50, 10):
        add(place, first, partition_by=None)
    source = opened("delta", {"path": place, "startingVersion": 0}, tmp_path / "state")
    start = source.initial()
    assert source.lag(start) == 50
    assert source.lag(source.latest(start, everything=False, most=25)) == 30
    assert source.lag(source.latest(start, everything=False, most=1)) == 40, "a batch has a file at least"
    assert source.lag(source.latest(start, everything=False)) == 0


def test_each_commit_is_read_from_the_log_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "table")
    for first in range(0, 80, 10):
        add(place, first, partition_by=None)
    source = opened("delta", {"path": place, "startingVersion": 0, "maxFilesPerBatch": 1}, tmp_path / "state")
    read = []
    found = DeltaCommits._actions
    monkeypatch.setattr(DeltaCommits, "_actions", lambda self, version: (read.append(version), found(self, version))[1])
    at = dict(source.initial())
    read.clear()
    for number in range(8):
        end = source.latest(dict(at), everything=False)
        assert source.lag(end) == 70 - 10 * number
        assert source.lag(at) == 80 - 10 * number
        assert ids(rows(source, dict(at), end)) == list(range(10 * number, 10 * number + 10))
        at = dict(end)
    assert sorted(read) == list(range(8))


def test_of_a_long_backlog_a_few_commits_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = WrittenLog(tmp_path / "table", PLAIN)
    file = log.file("a.parquet", numbers(0, 7))
    for _ in range(100):
        log.commit(file)
    spec = {"path": str(log.folder), "startingVersion": 1, "maxFilesPerBatch": 10}
    source = opened("delta", spec, tmp_path / "state")
    at = dict(source.initial())
    read = []
    found = DeltaCommits._actions
    monkeypatch.setattr(DeltaCommits, "_actions", lambda self, version: (read.append(version), found(self, version))[1])
    for number in range(10):
        end = source.latest(dict(at), everything=False)
        assert source.lag(end) == 7 * (90 - 10 * number)
        assert source.lag(at) - source.lag(end) == 70
        assert len(read) <= 10 * (number + 1) + 20
        at = dict(end)
    assert sorted(read) == list(range(1, 101))


def test_commits_that_change_rows_are_refused_or_skipped(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    add(place, 0)
    add(place, 10)
    delta(place).delete("id = 3")
    add(place, 20)
    delta(place).update(updates={"city": "'new'"}, predicate="id = 4")
    spec = {"path": place, "startingVersion": 0}
    source = opened("delta", spec, tmp_path / "refused")
    at = dict(source.initial())
    assert ids(next_rows(source, at)) == list(range(20)), "what is before is read first"
    assert refused(MillraceError, next_rows, source, at) == (
        f"spec.sources.trips.delta.otherCommits: source trips: version 2 of the Delta table {place}, DELETE, changes or "
        "removes rows, not only adds some; write otherCommits: Skip to leave such commits out as a whole, or read a "
        "table that only grows"
    )
    skipping = opened("delta", spec | {"otherCommits": "Skip"}, tmp_path / "refused")
    assert ids(next_rows(skipping, at)) == list(range(20, 30))
    add(place, 30, mode="overwrite")
    assert next_rows(skipping, at) == []
    add(place, 40)
    assert ids(next_rows(skipping, at)) == list(range(40, 50))


def test_unread_files_that_were_vacuumed_and_versions_that_were_cleaned_are_an_error(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    for first in (0, 10, 20):
        add(place, first)
    source = opened("delta", {"path": place, "startingVersion": 0, "maxFilesPerBatch": 2}, tmp_path / "state")
    at = dict(source.initial())
    assert ids(next_rows(source, at)) == list(range(10))
    before = dict(at)
    delta(place).optimize.compact()
    delta(place).vacuum(0, enforce_retention_duration=False, dry_run=False, full=True)
    message = refused(MillraceError, next_rows, source, at)
    assert "has removed a file that is still to be read; start with another checkpoint, and let the table" in message
    forget(place, 1)
    message = refused(MillraceError, next_rows, opened("delta", {"path": place}, tmp_path / "state"), before)
    assert "has removed version 1 from its log; start with another checkpoint, and let delta.logRetention" in message


def test_versions_that_were_read_are_not_needed_any_more(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    add(place, 0)
    add(place, 10)
    source = opened("delta", {"path": place}, tmp_path / "state")
    at = dict(source.initial())
    assert len(next_rows(source, at)) == 20
    add(place, 20)
    forget(place, 1)
    assert ids(next_rows(opened("delta", {"path": place}, tmp_path / "state"), at)) == list(range(20, 30))


def test_added_columns_are_read_and_dropped_columns_are_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    add(place, 0)
    source = opened("delta", {"path": place}, tmp_path / "state")
    at = dict(source.initial())
    assert len(next_rows(source, at)) == 10
    add(place, 10, more={"fare": [0.5] * 10}, schema_mode="merge")
    assert next_rows(source, at)[0].keys() == {"id", "city"}
    wider = opened("delta", {"path": place}, tmp_path / "state", "ID BIGINT, city STRING, FARE DOUBLE")
    found = rows(wider, wider.initial(), at)
    assert sorted((each["ID"], each["FARE"]) for each in found) == [
        (number, None if number < 10 else 0.5) for number in range(20)
    ]
    other = {"mode": "overwrite", "schema_mode": "overwrite", "more": {"id": ["x"] * 10, "fare": ["y"] * 10}}
    add(place, 20, **other)
    message = refused(MillraceError, next_rows, wider, at)
    assert "in the Delta table" in message
    assert "column ID (BIGINT): its type is STRING; write ID STRING in the schema" in message
    missing = refused(MillraceError, opened, "delta", {"path": place}, tmp_path / "other", "id STRING, day DATE")
    assert missing.startswith("spec.sources.trips.schema: source trips: the Delta table ")
    assert missing.endswith("has no column day; it has id, city, fare; correct the schema")


def test_partitions_of_every_type_are_read(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    values = {
        "flag": pa.array([True, False, None]),
        "small": pa.array([-7, 0, None], pa.int32()),
        "large": pa.array([2**62, -1, None], pa.int64()),
        "text": pa.array(["a=b/c%20 é", "null", None]),
        "day": pa.array([date(2024, 2, 29), date(1960, 1, 1), None]),
        "at": pa.array([1_700_000_000_123_456, -1, None], pa.timestamp("us", "UTC")),
        "price": pa.array(["1.50", "0.01", None]).cast(pa.decimal128(10, 2)),
    }
    content = pa.table({"id": pa.array([1, 2, 3], pa.int64())} | values)
    columns = (
        "id BIGINT, flag BOOLEAN, small INT, large BIGINT, text STRING, day DATE, at TIMESTAMP, price DECIMAL(10,2)"
    )
    expected = content.to_pylist()
    for name, how in (("whole", {}), ("added", {"startingVersion": 0})):
        write_deltalake(place, content, partition_by=list(values), mode="ignore")
        source = opened("delta", {"path": place} | how, tmp_path / name, columns)
        found = rows(source, source.initial(), source.latest(source.initial(), everything=True))
        assert sorted(found, key=lambda each: each["id"]) == expected
    only = opened("delta", {"path": place}, tmp_path / "only", "flag BOOLEAN, day DATE")
    found = rows(only, only.initial(), only.latest(only.initial(), everything=True), 2)
    assert sorted(map(str, found)) == sorted(str({"flag": each["flag"], "day": each["day"]}) for each in expected)


def test_a_large_file_is_cut_into_slices_of_its_rows(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    content = pa.table({"id": pa.array(range(100_000), pa.int64()), "city": ["x"] * 100_000})
    write_deltalake(place, content)
    source = opened("delta", {"path": place}, tmp_path / "state")
    end = source.latest(source.initial(), everything=True)
    sizes = [sum(len(batch) for batch in source.read(piece, "0")) for piece in source.slices(source.initial(), end, 7)]
    assert sum(sizes) == 100_000
    assert max(sizes) - min(sizes) <= 1
    assert ids(rows(source, source.initial(), end, 7)) == list(range(100_000))


def test_a_missing_table_and_another_table_at_the_place_are_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    missing = refused(MissingInputError, opened, "delta", {"path": place}, tmp_path / "state")
    assert missing.startswith("spec.sources.trips.delta.path: source trips: there is no Delta table at ")
    add(place, 0)
    opened("delta", {"path": place}, tmp_path / "state").initial()
    Path(place).rename(tmp_path / "old")
    add(place, 0)
    message = refused(MillraceError, opened, "delta", {"path": place}, tmp_path / "state")
    assert message.endswith(
        f"the Delta table {place} is another table than the one that was read so far; restore that one, or start with "
        "another checkpoint"
    )


@pytest.mark.parametrize("commits", [1, 3])
def test_a_table_that_is_dropped_and_written_again_is_refused(table: str, tmp_path: Path, commits: int) -> None:
    for first in range(2):
        add(table, first * 10)
    source = opened("delta", {"path": table}, tmp_path / "state")
    at = dict(source.initial())
    assert len(next_rows(source, at)) == 20
    remove_all(delta_place(DeltaSourceSpec(path=table)))
    missing = refused(MissingInputError, next_rows, source, at)
    assert "source trips: there is no Delta table at " in missing
    for first in range(commits):
        add(table, first * 10)
    message = refused(MillraceError, next_rows, source, at)
    assert "is another table than the one that was read so far; restore that one, or start with another" in message


def test_a_table_that_is_written_again_with_as_many_versions_is_refused(table: str, tmp_path: Path) -> None:
    add(table, 0)
    source = opened("delta", {"path": table}, tmp_path / "state")
    at = dict(source.initial())
    assert len(next_rows(source, at)) == 10
    remove_all(delta_place(DeltaSourceSpec(path=table)))
    add(table, 0)
    assert "is another table than the one" in refused(MillraceError, next_rows, source, at)


def test_reading_goes_on_after_the_log_forgot_the_version_that_was_read(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    add(place, 0)
    source = opened("delta", {"path": place}, tmp_path / "state")
    at = dict(source.initial())
    assert len(next_rows(source, at)) == 10
    add(place, 10)
    forget(place, 0)
    assert ids(next_rows(source, at)) == list(range(10, 20))


def test_a_new_column_by_the_library_is_null_in_older_files(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    add(place, 0)
    delta(place).alter.add_columns([Field("late", PrimitiveType("integer"))])
    source = opened("delta", {"path": place}, tmp_path / "state", f"{COLUMNS}, late INT")
    found = rows(source, source.initial(), source.latest(source.initial(), everything=True))
    assert [each["late"] for each in found] == [None] * 10
