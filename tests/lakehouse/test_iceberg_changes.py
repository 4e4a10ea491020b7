"""The changes of Iceberg tables that rewrite files: they leave the rows that the table has; delete files are refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from lab.s3_server import BUCKET
from millrace_api.errors import MillraceError
from millrace_jobs.sources.base import DELETED, Source

from .changed import CHANGING, Kept
from .iceberg_snapshots import compacted, created, delete, in_file, numbered
from .iceberg_tables import iceberg_table
from .streamed import opened

CITIES = ("a b%", "é/z", None)


def changing(fields: dict[str, Any], state: Path, columns: str = "id BIGINT, city STRING", **more: Any) -> Source:
    return opened("iceberg", fields | more, state, columns, **CHANGING)


def moved(first: int, count: int, shift: int) -> pa.Table:
    """Return rows with these numbers in other cities."""
    rows = numbered(first, count)
    cities = [CITIES[(number + shift) % 3] for number in range(first, first + count)]
    return rows.set_column(1, "city", pa.array(cities, pa.string()))


def expected(fields: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = iceberg_table(fields).scan().to_arrow().select(["id", "city"]).to_pylist()
    found = {(row["id"],): row for row in rows}
    assert len(found) == len(rows)
    return found


def changed(table: Table, fields: dict[str, Any], turn: int) -> None:
    """Change a table in a way of its own for each number."""
    table.refresh()
    if turn % 7 == 0:
        table.append(numbered(100 * (turn + 1)))
    elif turn % 7 == 1:
        table.upsert(moved(5, 10, turn), join_cols=["id"])
    elif turn % 7 == 2:
        table.delete(f"id >= {turn} and id < {turn + 3}")
    elif turn % 7 == 3:
        compacted(fields)
    elif turn % 7 == 4:
        table.overwrite(moved(100 * (turn + 1), 4, turn), overwrite_filter="id < 10")
    elif turn % 7 == 5:
        table.delete("city = 'é/z'")
    else:
        table.dynamic_partition_overwrite(numbered(100 * (turn + 1), 2))


@pytest.mark.parametrize("seed", [1, 2])
def test_any_operations_leave_the_rows_of_the_table(tmp_path: Path, seed: int) -> None:
    chance, fields = random.Random(seed), in_file(tmp_path)
    merged = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "3"}
    table = created(fields, **merged if seed == 2 else {})
    table.append(numbered(0))
    table.append(numbered(10))
    more = {} if seed == 1 else {"maxFilesPerBatch": 3}
    kept = Kept(changing(fields, tmp_path / "state", **more))
    turns = chance.sample(range(7), 7)
    for turn in turns:
        changed(table, fields, turn)
        if chance.random() < 0.5:
            kept.take(replicas=chance.randrange(1, 4))
            kept.restart(changing(fields, tmp_path / "state", **more))
    kept.take_all()
    assert kept.rows == expected(fields)
    assert kept.source.lag(kept.at) == 0


def test_changes_start_where_the_source_says_and_have_the_time_of_their_snapshot(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    empty = Kept(changing(fields, tmp_path / "empty"))
    table.append(numbered(0, 6))
    table.delete("id = 2")
    snapshots = list(table.metadata.snapshots)
    for name, more, numbers in (
        ("whole", {}, {0, 1, 3, 4, 5}),
        ("latest", {"startFrom": "Latest"}, set()),
        ("snapshot", {"startingSnapshot": snapshots[0].snapshot_id}, {0, 1, 3, 4, 5}),
    ):
        kept = Kept(changing(fields, tmp_path / name, **more))
        kept.take_all()
        assert {key for (key,) in kept.rows} == numbers
    empty.take_all()
    assert empty.rows == kept.rows == expected(fields)
    (found,) = empty.batches
    times = {each["_changed_at"].timestamp() * 1000 for each in found}
    assert times == {each.timestamp_ms for each in snapshots}
    assert [each["city"] for each in found if each[DELETED]] == [None, None], "a deleted row has its key alone"


def test_changes_of_a_table_in_s3_are_read_by_a_catalog_in_postgres(
    tmp_path: Path, shared_s3, postgres_catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in shared_s3.environment.items():
        monkeypatch.setenv(name, value)
    name = f"a{abs(hash(tmp_path)):x}.trips"
    fields = {"catalog": {"postgres": postgres_catalog}, "table": name, "location": f"s3a://{BUCKET}/streams/{name}"}
    table = created(fields)
    table.append(numbered(0))
    kept = Kept(changing(fields, tmp_path / "state"))
    table.upsert(moved(5, 10, 1), join_cols=["id"])
    kept.take_all(replicas=2)
    assert kept.rows == expected(fields)


@pytest.mark.parametrize("content", [DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES])
def test_delete_files_are_refused_by_name(tmp_path: Path, content: DataFileContent) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    table.append(numbered(0, 30))
    kept = Kept(changing(fields, tmp_path / "state"))
    kept.take_all()
    file = next(iter(table.scan().plan_files())).file
    (tmp_path / "deletes").mkdir()
    delete(table, file.file_path, [0], file.partition, content, tmp_path / "deletes" / "one.parquet")
    with pytest.raises(MillraceError) as raised:
        kept.take()
    snapshot = iceberg_table(fields).current_snapshot()
    assert snapshot is not None
    assert str(raised.value) == (
        f"spec.sources.trips.iceberg: source trips: snapshot {snapshot.snapshot_id} of the Iceberg table sales.trips has "
        "delete files, which mark rows as deleted (merge-on-read), and from which Millrace cannot read changes; set "
        "write.delete.mode, write.update.mode and write.merge.mode to copy-on-write in the table, rewrite its files, and "
        "start with another checkpoint"
    )


def test_rows_that_were_deleted_before_are_refused_with_their_file(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    table.append(numbered(0, 30))
    file = next(iter(table.scan().plan_files())).file
    (tmp_path / "deletes").mkdir()
    path = tmp_path / "deletes" / "one.parquet"
    delete(table, file.file_path, [0], file.partition, DataFileContent.POSITION_DELETES, path)
    kept = Kept(changing(fields, tmp_path / "state"))
    table.refresh()
    table.append(numbered(100))
    kept.take_all()
    assert len(kept.rows) == 29 + 10, "a snapshot that only adds files is read"
    table.refresh()
    table.delete("city = 'é/z'")
    with pytest.raises(MillraceError, match="has delete files, which mark rows as deleted"):
        kept.take()


def test_a_snapshot_that_is_not_complete_is_refused(tmp_path: Path) -> None:
    fields = in_file(tmp_path)
    table = created(fields)
    table.append(numbered(0))
    kept = Kept(changing(fields, tmp_path / "state"))
    table.append(numbered(10), snapshot_properties={"deleted-data-files": "4"})
    with pytest.raises(MillraceError, match="says deleted-data-files=4, and its manifests have 0"):
        kept.take_all()
