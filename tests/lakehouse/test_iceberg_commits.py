"""Commits to an Iceberg table: each batch once, one driver at a time, and beside other writers of the table."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation

from millrace_api.errors import MillraceError
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.lakehouse.iceberg_sink import Changes, IcebergTarget
from millrace_jobs.sinks.lakehouse.sink import NO_BATCH

from .iceberg_commits import Fields, append, files, numbers, taken
from .iceberg_tables import data_files, iceberg_asked, iceberg_table

pytestmark = pytest.mark.in_turn


def test_a_batch_is_added_once_also_by_the_next_run(iceberg: Fields) -> None:
    first = taken(iceberg)
    assert first.last == NO_BATCH
    for number in range(3):
        append(first, number)
    assert first.last == 2
    again = taken(iceberg, LastBatch(2, 1))
    assert again.last == 2, "the last batch is in the table, although Spark has not committed it"
    append(again, 3)
    assert numbers(iceberg) == [0, 1, 2, 3]
    assert iceberg_table(iceberg).scan().to_arrow()["n"].to_pylist() != []


def test_a_driver_that_another_one_has_followed_cannot_commit(iceberg: Fields) -> None:
    old = taken(iceberg)
    append(old, 0)
    new = taken(iceberg, LastBatch(0, 0))
    with pytest.raises(MillraceError, match=r"another driver has taken over .* before batch 1; run only one"):
        append(old, 1)
    append(new, 1)
    with pytest.raises(MillraceError, match="another driver has taken over"):
        append(old, 1)
    append(new, 2)
    assert numbers(iceberg) == [0, 1, 2]


@pytest.mark.parametrize("commits", [True, False], ids=["has committed", "has only begun"])
def test_the_catalog_refuses_what_the_look_before_it_misses(iceberg: Fields, monkeypatch, commits: bool) -> None:
    """The older driver has looked, then stands still while the newer one begins."""
    old = taken(iceberg)
    append(old, 0)
    between: list[IcebergTarget] = []
    looked = IcebergTarget._commit

    def pause(self: IcebergTarget, changes: Changes, batch: ResultBatch) -> None:
        if self is old and not between:
            between.append(taken(iceberg, LastBatch(1, 0)))
            if commits:
                append(between[0], 1)
        looked(self, changes, batch)

    monkeypatch.setattr(IcebergTarget, "_commit", pause)
    with pytest.raises(MillraceError, match="another driver has taken over"):
        append(old, 1)
    if not commits:
        append(between[0], 1)
    assert numbers(iceberg) == [0, 1]


def test_drivers_that_begin_at_once_get_numbers_of_their_own(iceberg: Fields) -> None:
    taken(iceberg)
    found: list[IcebergTarget] = []
    starts = [threading.Thread(target=lambda: found.append(taken(iceberg))) for _ in range(3)]
    for each in starts:
        each.start()
    for each in starts:
        each.join()
    assert sorted(each._driver for each in found) == [2, 3, 4]
    *older, newest = sorted(found, key=lambda each: each._driver)
    for each in older:
        with pytest.raises(MillraceError, match="another driver"):
            append(each, 0)
    append(newest, 0)
    assert numbers(iceberg) == [0]


def test_a_commit_whose_answer_is_lost_is_done(iceberg: Fields, monkeypatch: pytest.MonkeyPatch) -> None:
    to = taken(iceberg)
    catalog = type(to._catalog)
    commit = catalog.commit_table
    lost: list[bool] = []

    def lose(self, *arguments, **more):
        answer = commit(self, *arguments, **more)
        if not lost:
            lost.append(True)
            raise OSError("Connection reset by peer")
        return answer

    monkeypatch.setattr(catalog, "commit_table", lose)
    append(to, 0)
    append(to, 1)
    assert lost
    assert numbers(iceberg) == [0, 1]


def test_other_writers_and_compaction_do_not_get_in_the_way(iceberg: Fields) -> None:
    to = taken(iceberg, maintenance={"retention": "1h"})
    ended = threading.Event()

    def beside(action: Callable[[], object]) -> threading.Thread:
        def repeat() -> None:
            while not ended.is_set():
                action()
                ended.wait(0.2)

        thread = threading.Thread(target=repeat)
        thread.start()
        return thread

    compacting = taken(iceberg, checkpoint="another", query="others", maintenance={"retention": "1h"})
    others = taken(iceberg, checkpoint="third", query="third")
    count = iter(range(1000, 2000))
    threads = [beside(compacting.compact), beside(lambda: append(others, next(count)))]
    try:
        for number in range(8):
            append(to, number)
    finally:
        ended.set()
        for each in threads:
            each.join()
    compacting.compact()
    assert [n for n in numbers(iceberg) if n < 1000] == list(range(8))
    assert [n for n in numbers(iceberg) if n >= 1000] == list(range(1000, next(count)))
    assert len(data_files(iceberg)) == 1


def test_rows_are_replaced_by_key_and_files_without_them_stay(iceberg: Fields) -> None:
    to = taken(iceberg, key=["k"])
    to.write(Changes(files(to, [("a", 1), ("b", 1)])), ResultBatch(0, 1, 0))
    to.write(Changes(files(to, [("x", 1), ("y", 1)])), ResultBatch(1, 1, 0))
    (untouched,) = (each for each in data_files(iceberg) if "batch-" in each and _has(iceberg, each, "x"))
    to.write(Changes(files(to, [("a", 2), ("c", 2)]), files(to, [("b", 2), ("d", 2)])), ResultBatch(2, 1, 0))
    assert iceberg_asked(iceberg, "SELECT * FROM results ORDER BY k") == [("a", 2), ("c", 2), ("x", 1), ("y", 1)]
    assert untouched in data_files(iceberg)
    to.write(Changes([], files(to, [("x", 3), ("y", 3), ("a", 3)])), ResultBatch(3, 1, 0))
    assert iceberg_asked(iceberg, "SELECT * FROM results") == [("c", 2)]
    assert taken(iceberg, LastBatch(3, 3), key=["k"]).last == 3


def _has(fields: Fields, place: str, key: str) -> bool:
    table = iceberg_table(fields)
    return any(task.file.file_path == place for task in table.scan(row_filter=f"k == '{key}'").plan_files())


def test_compaction_changes_no_rows_and_removes_what_no_snapshot_has(tmp_path: Path) -> None:
    fields = {"catalog": {"file": str(tmp_path / "catalog.db")}, "table": "a.b", "location": str(tmp_path / "table")}
    to = taken(fields, maintenance={"retention": "1h"})
    for number in range(5):
        append(to, number)
    stray = tmp_path / "table" / "data" / "batch-of-a-failed-attempt.parquet"
    stray.write_bytes(b"")
    to.compact()
    assert len(data_files(fields)) == 1
    assert iceberg_table(fields).current_snapshot().summary.operation is Operation.REPLACE
    assert len(list((tmp_path / "table" / "data").iterdir())) == 7, "files stay for readers of older snapshots"
    for file in (tmp_path / "table").rglob("*.*"):
        os.utime(file, (0, 0))
    to.compact()
    assert len(list((tmp_path / "table" / "data").iterdir())) == 6, "the snapshots are young"
    assert not stray.exists()
    assert numbers(fields) == list(range(5))


def test_old_snapshots_go_and_the_record_of_batches_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"catalog": {"file": str(tmp_path / "catalog.db")}, "table": "a.b", "location": str(tmp_path / "table")}
    to = taken(fields, maintenance={"retention": "1h"})
    for number in range(30):
        append(to, number)
        if number % 10 == 9:
            to.compact()
    later = "millrace_jobs.sinks.lakehouse.iceberg_files"
    monkeypatch.setattr(f"{later}.datetime", _Tomorrow)
    for file in (tmp_path / "table").rglob("*.*"):
        os.utime(file, (0, 0))
    to.compact()
    assert len(iceberg_table(fields).snapshots()) == 1
    assert len(list((tmp_path / "table" / "data").iterdir())) == 1
    assert numbers(fields) == list(range(30))
    assert taken(fields, LastBatch(29, 29)).last == 29


def test_a_bounded_number_of_snapshots_stays_however_long_the_retention(tmp_path: Path, monkeypatch) -> None:
    """At a batch every two seconds, a week of snapshots would be 200 MB of metadata, which each commit writes."""
    fields = {"catalog": {"file": str(tmp_path / "catalog.db")}, "table": "a.b", "location": str(tmp_path / "table")}
    to = taken(fields, maintenance={"retention": "7d"})
    for number in range(12):
        append(to, number)
    later = "millrace_jobs.sinks.lakehouse.iceberg_files"
    monkeypatch.setattr(f"{later}._MOST", 5)
    to.compact()
    assert len(iceberg_table(fields).snapshots()) == 14, "they are younger than an hour"
    monkeypatch.setattr(f"{later}.datetime", _Tomorrow)
    to.compact()
    newest = [each.snapshot_id for each in iceberg_table(fields).snapshots()]
    assert len(newest) == 5
    assert iceberg_table(fields).current_snapshot().snapshot_id in newest
    assert len(list((tmp_path / "table" / "data").iterdir())) == 13, "files stay for the retention"
    append(to, 12)
    assert numbers(fields) == list(range(13))


class _Tomorrow:
    @staticmethod
    def now(zone: Any) -> Any:
        from datetime import datetime, timedelta

        return datetime.now(zone) + timedelta(days=1)


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (LastBatch(None, None), "has results up to batch 1, but the checkpoint knows of no batch; restore the newest"),
        (LastBatch(0, 0), "has results up to batch 1, but the checkpoint knows of no batch after 0"),
    ],
)
def test_results_that_the_checkpoint_does_not_know_are_refused(tmp_path: Path, last: LastBatch, message: str) -> None:
    fields = {"catalog": {"file": str(tmp_path / "catalog.db")}, "table": "a.b", "location": str(tmp_path / "table")}
    to = taken(fields)
    append(to, 0)
    append(to, 1)
    with pytest.raises(MillraceError, match=message):
        taken(fields, last)
    with pytest.raises(MillraceError, match="has results of an earlier run of counts, which began with another"):
        taken(fields, checkpoint="fresh")
    with pytest.raises(MillraceError, match="has results of an earlier run of counts, which began with another"):
        taken(fields, LastBatch(4, 4, elsewhere=True), checkpoint="fresh")
    with pytest.raises(MillraceError, match="has no record of its batches, but the checkpoint has finished batch 4"):
        taken(fields, LastBatch(4, 4), checkpoint="fresh")
