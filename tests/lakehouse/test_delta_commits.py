"""Commits to a Delta table: each batch once, one driver at a time, and beside other writers of the table."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from millrace_api.errors import MillraceError
from millrace_api.model.lakehouse import DeltaSinkSpec
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.lakehouse import delta_sink
from millrace_jobs.sinks.lakehouse.delta_files import add_actions, commit_rewrites
from millrace_jobs.sinks.lakehouse.delta_sink import DeltaTarget
from millrace_jobs.sinks.lakehouse.sink import NO_BATCH, REMOVED

from .delta_tables import SCHEMA, files, folder_of, taken, target
from .tables import FRESH, asked, delta_table

pytestmark = pytest.mark.in_turn


def append(to: DeltaTarget, place: str, number: int) -> None:
    to.append(add_actions(files(place, [("a", number)]), SCHEMA), ResultBatch(number, 1, 0))


def numbers(place: str) -> list[int]:
    return [n for (n,) in asked(place, "SELECT n FROM results ORDER BY n")]


def test_a_batch_is_added_once_also_by_the_next_run(place: str) -> None:
    first = taken(place)
    assert first.last == NO_BATCH
    for number in range(3):
        append(first, place, number)
    assert first.last == 2
    again = taken(place, LastBatch(2, 1))
    assert again.last == 2, "the last batch is in the table, although Spark has not committed it"
    append(again, place, 3)
    assert numbers(place) == [0, 1, 2, 3]


def test_a_driver_that_another_one_has_followed_cannot_commit(place: str) -> None:
    old = taken(place)
    append(old, place, 0)
    new = taken(place, LastBatch(0, 0))
    with pytest.raises(MillraceError, match=r"another driver has taken over .* before batch 1; run only one"):
        append(old, place, 1)
    append(new, place, 1)
    with pytest.raises(MillraceError, match="another driver has taken over"):
        append(old, place, 1)
    append(new, place, 2)
    assert numbers(place) == [0, 1, 2]


def test_the_library_refuses_what_the_look_before_it_misses(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older driver has looked, then stands still while the newer one begins and commits the same batch."""
    old = taken(place)
    append(old, place, 0)
    between: list[DeltaTarget] = []
    looked = DeltaTarget._require_newest

    def pause(self: DeltaTarget, batch: ResultBatch) -> None:
        looked(self, batch)
        if self is old and not between:
            between.append(taken(place, LastBatch(1, 0)))
            append(between[0], place, 1)

    monkeypatch.setattr(DeltaTarget, "_require_newest", pause)
    with pytest.raises(MillraceError, match="another driver has taken over"):
        append(old, place, 1)
    assert numbers(place) == [0, 1]


def test_a_newer_driver_fences_an_older_one_before_it_commits(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = taken(place)
    begun: list[DeltaTarget] = []
    looked = DeltaTarget._require_newest

    def pause(self: DeltaTarget, batch: ResultBatch) -> None:
        looked(self, batch)
        if self is old and not begun:
            begun.append(taken(place))

    monkeypatch.setattr(DeltaTarget, "_require_newest", pause)
    with pytest.raises(MillraceError, match="another driver has taken over"):
        append(old, place, 0)
    append(begun[0], place, 0)
    assert numbers(place) == [0]


def test_drivers_that_begin_at_once_get_numbers_of_their_own(place: str) -> None:
    taken(place)
    found: list[DeltaTarget] = []
    starts = [threading.Thread(target=lambda: found.append(taken(place))) for _ in range(3)]
    for each in starts:
        each.start()
    for each in starts:
        each.join()
    assert sorted(each._driver for each in found) == [2, 3, 4]
    *older, newest = sorted(found, key=lambda each: each._driver)
    for each in older:
        with pytest.raises(MillraceError, match="another driver"):
            append(each, place, 0)
    append(newest, place, 0)
    assert numbers(place) == [0]


def test_a_commit_whose_answer_is_lost_is_done(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    to = taken(place)
    commit = type(delta_table(place)).create_write_transaction
    lost: list[bool] = []

    def lose(self, *arguments, **more):
        commit(self, *arguments, **more)
        if not lost:
            lost.append(True)
            raise OSError("Generic S3 error: error sending request")

    monkeypatch.setattr("deltalake.DeltaTable.create_write_transaction", lose)
    append(to, place, 0)
    append(to, place, 1)
    assert lost
    assert numbers(place) == [0, 1]


def test_other_writers_and_compaction_do_not_get_in_the_way(place: str) -> None:
    to = taken(place, maintenance={"retention": "1h"})
    ended = threading.Event()

    def beside(action: Callable[[], object]) -> threading.Thread:
        def repeat() -> None:
            while not ended.is_set():
                action()

        thread = threading.Thread(target=repeat)
        thread.start()
        return thread

    compacting = target(place, checkpoint="another", query="others", maintenance={"retention": "1h"})
    compacting.take(FRESH)
    others = taken(place, checkpoint="third", query="third")
    count = iter(range(1000, 2000))
    threads = [beside(compacting.compact), beside(lambda: append(others, place, next(count)))]
    try:
        for number in range(12):
            append(to, place, number)
    finally:
        ended.set()
        for each in threads:
            each.join()
    compacting.compact()
    assert [n for n in numbers(place) if n < 1000] == list(range(12))
    assert [n for n in numbers(place) if n >= 1000] == list(range(1000, next(count)))
    assert len(delta_table(place).file_uris()) == 1


@pytest.mark.parametrize("between", ["ours", "theirs", "an append", "an upsert"])
def test_a_compaction_changes_no_row_whatever_comes_before_its_commit(place: str, monkeypatch, between: str) -> None:
    """The library's own compaction would have the rows of the first two cases twice: it commits whatever came before."""
    to = taken(place, key=["k"])
    for number in range(4):
        to.append(add_actions(files(place, [(f"k{number}", number)]), SCHEMA), ResultBatch(number, 1, 0))
    other = taken(place, checkpoint="another", query="others", key=["k"])
    changed = pa.Table.from_pylist([{"k": "k3", "n": 9, REMOVED: False}], SCHEMA.append(pa.field(REMOVED, pa.bool_())))
    actions: dict[str, Callable[[], object]] = {
        "ours": other.compact,
        "theirs": lambda: delta_table(place).optimize.compact(),
        "an append": lambda: append(other, place, 4),
        "an upsert": lambda: other.merge(changed.to_reader, "", ResultBatch(0, 1, 0)),
    }
    done: list[str] = []

    def pause(table: DeltaTable, *arguments: Any) -> None:
        if not done:
            done.append(between)
            actions[between]()
        commit_rewrites(table, *arguments)

    monkeypatch.setattr(delta_sink, "commit_rewrites", pause)
    to.compact()
    assert done
    expected = {"an append": [0, 1, 2, 3, 4], "an upsert": [0, 1, 2, 9]}
    assert numbers(place) == expected.get(between, [0, 1, 2, 3])
    assert len(delta_table(place).file_uris()) == {"an append": 2, "an upsert": 4}.get(between, 1)


@pytest.mark.parametrize("pruned", ["", "target.k >= 'k1' AND target.k <= 'k2'"])
def test_an_upsert_that_a_compaction_comes_before_is_repeated(place: str, monkeypatch, pruned: str) -> None:
    to = taken(place, key=["k"])
    for number in range(4):
        to.append(add_actions(files(place, [(f"k{number}", number)]), SCHEMA), ResultBatch(number, 1, 0))
    other = taken(place, checkpoint="another", query="others", key=["k"])
    looked, done = DeltaTarget._require_newest, list[int]()

    def pause(self: DeltaTarget, batch: ResultBatch) -> None:
        looked(self, batch)
        if not done:
            done.append(0)
            other.compact()

    monkeypatch.setattr(DeltaTarget, "_require_newest", pause)
    rows = [{"k": "k1", "n": 7, REMOVED: False}, {"k": "k2", "n": 2, REMOVED: True}]
    changed = pa.Table.from_pylist(rows, SCHEMA.append(pa.field(REMOVED, pa.bool_())))
    to.merge(changed.to_reader, pruned, ResultBatch(4, 1, 0))
    assert done
    assert numbers(place) == [0, 3, 7]


def test_compaction_keeps_partitions_of_any_name_and_added_columns(tmp_path) -> None:
    place, columns = str(tmp_path / "table"), pa.schema([("part", pa.string()), ("n", pa.int64())])
    odd = ["a b", "50%", "x=y/z", "ü", "a'b", None, "%20"]
    for number in range(3):  # the library's files, in folders of partitions
        parts = pa.table({"part": odd, "n": [number] * len(odd)}, columns)
        write_deltalake(place, parts, mode="append", partition_by=["part"])
    delta_table(place).alter.add_columns(Schema.from_arrow(pa.schema([("more", pa.string())])).fields)
    columns = columns.append(pa.field("more", pa.string()))
    spec = DeltaSinkSpec.model_validate({"path": place})
    to = DeltaTarget(folder_of(place), spec, columns, "counts", "a-checkpoint")
    to.take(FRESH)
    before = asked(place, "SELECT * FROM results ORDER BY ALL")
    assert len(before) == 3 * len(odd)
    to.compact()
    assert asked(place, "SELECT * FROM results ORDER BY ALL") == before
    assert len(delta_table(place).file_uris()) == len(odd)


def test_many_commits_leave_few_files(tmp_path) -> None:
    place = str(tmp_path / "many")
    to = taken(place, maintenance={"compactEvery": 20})
    for number in range(60):
        append(to, place, number)
        if number % 20 == 19:
            to.compact()
    assert numbers(place) == list(range(60))
    assert len(delta_table(place).file_uris()) == 1
    assert taken(place, LastBatch(59, 59)).last == 59


def test_a_table_that_keeps_old_files_for_longer_does_so(tmp_path) -> None:
    place = str(tmp_path / "theirs")
    DeltaTable.create(place, SCHEMA, configuration={"delta.deletedFileRetentionDuration": "interval 30 days"})
    to = taken(place, maintenance={"retention": "1h"})
    for number in range(3):
        append(to, place, number)
    for file in Path(place).glob("*.parquet"):
        os.utime(file, (0, 0))
    to.compact()
    assert len(delta_table(place).file_uris()) == 1
    assert len(list(Path(place).glob("*.parquet"))) == 4


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (LastBatch(None, None), "has results up to batch 1, but the checkpoint knows of no batch; restore the newest"),
        (LastBatch(0, 0), "has results up to batch 1, but the checkpoint knows of no batch after 0"),
    ],
)
def test_results_that_the_checkpoint_does_not_know_are_refused(tmp_path, last, message) -> None:
    place = str(tmp_path / "table")
    to = taken(place)
    append(to, place, 0)
    append(to, place, 1)
    with pytest.raises(MillraceError, match=message):
        taken(place, last)


def test_a_table_that_lacks_what_the_checkpoint_has_is_refused(tmp_path) -> None:
    place = str(tmp_path / "table")
    with pytest.raises(MillraceError, match="has no record of its batches, but the checkpoint has finished batch 4"):
        taken(place, LastBatch(4, 4))
    assert taken(place, LastBatch(4, 4, elsewhere=True)).last == NO_BATCH


def test_a_fresh_checkpoint_on_the_results_of_an_older_one_is_refused(tmp_path) -> None:
    place = str(tmp_path / "table")
    append(taken(place), place, 0)
    with pytest.raises(MillraceError, match="has results of an earlier run of counts, which began with another"):
        taken(place, checkpoint="fresh")
    with pytest.raises(MillraceError, match="has results of an earlier run of counts, which began with another"):
        taken(place, LastBatch(4, 4, elsewhere=True), checkpoint="fresh")
    other = taken(place, checkpoint="fresh", query="others")
    append(other, place, 0)
    assert numbers(place) == [0, 0]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(pa.binary(), "BINARY"), (pa.timestamp("us", "UTC"), "TIMESTAMP"), (pa.decimal128(20, 10), "DECIMAL(20,10)")],
)
def test_tables_with_partitions_whose_values_have_several_texts_are_refused(tmp_path, kind, name) -> None:
    place, columns = str(tmp_path / "table"), pa.schema([("n", pa.int64()), ("part", kind)])
    DeltaTable.create(place, Schema.from_arrow(columns), partition_by=["part"])
    to = DeltaTarget(folder_of(place), DeltaSinkSpec(path=place), columns, "counts", "a-checkpoint")
    with pytest.raises(MillraceError, match=re.escape(f"is partitioned by part, which is {name}; ")):
        to.take(FRESH)
    assert delta_table(place).version() == 0
