"""Changes of Delta tables as other engines write them: the logs and change files are written here."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyroaring import BitMap

from millrace_api.errors import MillraceError
from millrace_jobs.sources.base import DELETED
from millrace_jobs.sources.formats import parquet_format
from millrace_jobs.sources.lakehouse.data_files import DeletionVector

from .changed import FEED, Kept, changing, create
from .delta_logs import OUTSIDE, PLAIN, WrittenLog, bitmap, column, inline, numbers, z85


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """The log of a table with a change data feed and deletion vectors."""
    return WrittenLog(tmp_path / "a table", PLAIN, ["deletionVectors"], **FEED)


@pytest.fixture
def kept(log: WrittenLog, tmp_path: Path) -> Kept:
    """The rows of that table, from its first version on."""
    return Kept(changing(str(log.folder), tmp_path / "state", startingVersion=0))


def removed(add: dict[str, Any], *, names: Sequence[str] = ("size", "partitionValues"), **more: Any) -> dict[str, Any]:
    """Return the action that removes a file, with some of what the one that added it says."""
    known = {name: add["add"][name] for name in names}
    return {"remove": known | {"path": add["add"]["path"], "dataChange": True, "deletionTimestamp": 1} | more}


def changes(log: WrittenLog, name: str, content: pa.Table, **more: Any) -> dict[str, Any]:
    """Write a change file, and return its action."""
    (log.folder / "_change_data").mkdir(exist_ok=True)
    pq.write_table(content, log.folder / "_change_data" / name)
    size = (log.folder / "_change_data" / name).stat().st_size
    return {"cdc": {"path": f"_change_data/{name}", "partitionValues": {}, "size": size, "dataChange": False} | more}


def change_rows(*found: tuple[int, str | None, str]) -> pa.Table:
    ids, cities, kinds = zip(*found, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "city": cities, "_change_type": kinds})


def at(time: int, **more: Any) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": time} | more}


def stored(log: WrittenLog, *vectors: Sequence[int], folder: str = "") -> list[dict[str, Any]]:
    """Write deletion vectors to one file, and return how actions describe them."""
    name, content, described = uuid.uuid4(), b"\1", []
    for deleted in vectors:
        vector = bitmap(deleted)
        place = f"{folder}{z85(name.bytes)}"
        described.append(
            {"storageType": "u", "pathOrInlineDv": place, "offset": len(content), "sizeInBytes": len(vector)}
            | {"cardinality": len(deleted)}
        )
        content += struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    (log.folder / folder).mkdir(exist_ok=True)
    (log.folder / folder / f"deletion_vector_{name}.bin").write_bytes(content)
    return described


def ids_of(kept: Kept) -> set[int]:
    return {key for (key,) in kept.rows}


def test_deletes_by_deletion_vectors_are_the_rows_that_became_deleted(log: WrittenLog, kept: Kept) -> None:
    plain = log.file("a.parquet", numbers(0, 1000))
    log.commit(plain)
    assert kept.take_all() == 1000
    one, two = stored(log, [0, 3, 999], [0, 3, 500, 501, 999], folder="x7")
    log.commit(removed(plain), log.file("a.parquet", numbers(0, 1000), deletionVector=one))
    assert kept.take_all(replicas=3) == 3
    assert ids_of(kept) == set(range(1000)) - {0, 3, 999}
    log.commit(removed(plain, deletionVector=one), log.file("a.parquet", numbers(0, 1000), deletionVector=two))
    assert kept.take_all() == 2
    assert all(each[DELETED] for batch in kept.batches[1:] for each in batch)
    log.commit(removed(plain, deletionVector=two), log.file("a.parquet", numbers(0, 1000), deletionVector=inline([3])))
    assert kept.take_all() == 4, "rows that are restored are set"
    assert ids_of(kept) == set(range(1000)) - {3}
    log.commit(removed(plain, deletionVector=inline([3])), log.file("a.parquet", numbers(0, 1000)))
    assert kept.take_all() == 1
    log.commit(removed(plain), log.file("a.parquet", numbers(0, 1000), deletionVector=inline(range(1000))))
    assert kept.take_all() == 1000
    assert kept.rows == {}


def test_of_a_file_with_a_few_deletes_only_their_row_groups_are_read(
    log: WrittenLog, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = log.file("a.parquet", numbers(0, 1000))
    pq.write_table(numbers(0, 1000), log.folder / "a.parquet", row_group_size=10)
    log.commit(plain)
    kept.take_all()
    read, groups = [], parquet_format._row_groups
    monkeypatch.setattr(parquet_format, "_row_groups", lambda *range: (read.append(found := groups(*range)), found)[1])
    log.commit(removed(plain), {"add": plain["add"] | {"deletionVector": inline([333, 334, 352])}})
    assert kept.take_all(replicas=2) == 3
    assert {group for found, _ in read for group in found} == {33, 34, 35}


def test_rows_that_were_deleted_before_a_file_is_removed_are_no_changes(log: WrittenLog, kept: Kept) -> None:
    """The key of a row that is deleted may be that of a row elsewhere by now."""
    first, second = log.file("a.parquet", numbers(0)), log.file("b.parquet", numbers(3, 1))
    log.commit(first)
    log.commit(removed(first), log.file("a.parquet", numbers(0), deletionVector=inline([3])), second)
    assert kept.take_all() == 10 + 1 + 1
    log.commit(removed(first, deletionVector=inline([3])))
    assert kept.take_all() == 9
    assert ids_of(kept) == {3}


def test_rows_that_were_deleted_from_the_start_are_not_read(log: WrittenLog, tmp_path: Path) -> None:
    log.commit(log.file("a.parquet", numbers(0, 100), deletionVector=inline([7])), at(5_000))
    kept = Kept(changing(str(log.folder), tmp_path / "state"))
    kept.take_all(replicas=3)
    assert ids_of(kept) == set(range(100)) - {7}
    assert {each["_changed_at"].timestamp() for each in kept.batches[0]} == {5.0}


def test_the_same_file_again_has_no_changes(log: WrittenLog, kept: Kept) -> None:
    """So are statistics corrected, with or without the file's removal."""
    add = log.file("a.parquet", numbers(0), deletionVector=inline([1]))
    log.commit(add)
    assert kept.take_all() == 9
    log.commit(removed(add, deletionVector=inline([1])), add)
    log.commit({"add": add["add"] | {"dataChange": False}})
    assert kept.take_all() == 0


@pytest.mark.parametrize("split", [False, True])
def test_change_files_count_and_not_the_files_beside_them(log: WrittenLog, tmp_path: Path, split: bool) -> None:
    more = {"maxFilesPerBatch": 1} if split else {}
    kept = Kept(changing(str(log.folder), tmp_path / "other", startingVersion=0, **more))
    add = log.file("a.parquet", numbers(0))
    log.commit(add)
    again = log.file("b.parquet", numbers(0, 9))
    sets = change_rows((1, "b", "update_postimage"), (20, "new", "insert"), (2, "1", "update_postimage"))
    deletes = change_rows((1, "1", "update_preimage"), (9, "9", "delete"), (2, "2", "update_preimage"))
    log.commit(removed(add), again, changes(log, "one.parquet", sets), changes(log, "two.parquet", deletes))
    kept.take_all()
    assert [len(batch) for batch in kept.batches] == ([10, 3, 3] if split else [16])
    assert ids_of(kept) == {0, 1, 2, 3, 4, 5, 6, 7, 8, 20}
    assert [kept.rows[key,]["city"] for key in (1, 2, 20)] == ["b", "1", "new"]


def test_a_data_file_that_is_also_a_change_file_counts_once(log: WrittenLog, kept: Kept) -> None:
    content = change_rows((1, "a", "insert"), (2, "b", "insert"))
    add = log.file("both.parquet", content)
    log.commit(add, {"cdc": {"path": "both.parquet", "partitionValues": {}, "size": 1, "dataChange": False}})
    assert kept.take_all() == 2
    log.commit(removed(add))
    assert kept.take_all() == 2
    assert kept.rows == {}


def test_changes_are_read_where_files_have_other_names_of_columns(tmp_path: Path) -> None:
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    fields = [column("id", "long", "c-1", 1), column("city", "string", "c-2", 2)]
    log = WrittenLog(tmp_path / "table", fields, ["columnMapping"], **FEED, **mode)
    log._metadata["partitionColumns"] = ["city"]
    content = pa.table({"c-1": pa.array([1, 2], pa.int64())})
    add = log.file("a.parquet", content, partitionValues={"c-2": "x"})
    log.commit(log.renamed(fields), add)
    typed = content.append_column("_change_type", pa.array(["update_postimage", "delete"]))
    log.commit(changes(log, "c.parquet", typed, partitionValues={"c-2": "y"}))
    log._metadata["partitionColumns"] = ["town"]
    log.commit(log.renamed([column("number", "long", "c-1", 1), column("town", "string", "c-2", 2)]))
    source = changing(
        str(log.folder), tmp_path / "state", "NUMBER BIGINT, town STRING", keys=("NUMBER",), startingVersion=1
    )
    kept = Kept(source, ("NUMBER",))
    kept.take_all()
    assert kept.rows == {(1,): {"NUMBER": 1, "town": "y"}}


def test_the_rows_of_a_removed_file_are_deleted_without_its_size_and_partition(tmp_path: Path) -> None:
    """Size and values of the partition are optional there."""
    log = WrittenLog(tmp_path / "table", PLAIN, **FEED)
    log._metadata["partitionColumns"] = ["city"]
    log.commit(log.renamed(PLAIN))
    files = {
        name: log.file(f"{name}.parquet", numbers(0).select(["id"]), partitionValues={"city": name}) for name in "ab"
    }
    log.commit(*files.values())
    log.commit(removed(files["a"], names=()))
    source = changing(str(log.folder), tmp_path / "state", keys=("city", "id"), startingVersion=1)
    kept = Kept(source, ("city", "id"))
    assert kept.take() == 30
    assert set(kept.rows) == {("b", number) for number in range(10)}


def test_times_never_go_back_so_that_later_commits_count(log: WrittenLog, kept: Kept) -> None:
    for number, info in enumerate((at(9_000), at(4_000), at(1_000, inCommitTimestamp=9_500), at(9_400))):
        log.commit(info, log.file(f"{number}.parquet", numbers(number, 1)))
    kept.take_all()
    times = {each["id"]: each["_changed_at"].timestamp() for batch in kept.batches for each in batch}
    start = times[0]
    assert start >= 9.0, "the first version has no time but that of its file"
    assert len(set(times.values())) == 1

    source = changing(str(log.folder), log.folder.parent / "later", startingVersion=1)
    later = Kept(source)
    later.take(most=1)
    later.take_all()
    times = {each["id"]: each["_changed_at"].timestamp() for batch in later.batches for each in batch}
    assert times == {0: 9.0, 1: 9.0, 2: 9.5, 3: 9.5}


def test_a_version_is_read_from_its_checkpoint_alone(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    create(place, {1: "a"})
    DeltaTable(place).create_checkpoint()
    (tmp_path / "table" / "_delta_log" / f"{0:020d}.json").unlink()
    kept = Kept(changing(place, tmp_path / "state"))
    kept.take_all()
    assert kept.rows == {(1,): {"id": 1, "city": "a"}}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda log: changes(log, "x.parquet", change_rows((1, "a", "upsert"))), "a row has the _change_type upsert"),
        (lambda log: changes(log, "x.parquet", change_rows((1, "a", None))), "a row has the _change_type None"),
        (lambda log: changes(log, "x.parquet", numbers(0)), "_change_type None"),
        (lambda log: log.file("x.parquet", numbers(0), deletionVector=inline([1]) | {"pathOrInlineDv": "0" * 40}),
         "the deletion vector does not begin with its number"),
        (lambda log: log.file("x.parquet", numbers(0), deletionVector=stored(log, [1])[0] | {"sizeInBytes": 9}),
         "the deletion vector has another size or checksum than its file says"),
        (lambda log: log.file("x.parquet", numbers(0), deletionVector=inline([1]) | {"storageType": "z"}),
         "is of an unknown kind"),
    ],
)  # fmt: skip
def test_a_damaged_change_is_an_error_that_names_the_damage(
    log: WrittenLog, kept: Kept, damage: Any, message: str
) -> None:
    log.commit(damage(log))
    with pytest.raises(MillraceError) as raised:
        kept.take()
    assert message in str(raised.value)


@pytest.mark.parametrize("path", OUTSIDE)
def test_files_outside_of_the_table_are_refused(log: WrittenLog, kept: Kept, path: str) -> None:
    vector = inline([1]) | {"storageType": "p", "pathOrInlineDv": path.format(table=log.folder)}
    add = log.file("a.parquet", numbers(0))
    for actions in (
        [changes(log, "a.parquet", numbers(0), path=path.format(table=log.folder))],
        [log.file("a.parquet", numbers(0), deletionVector=vector)],
        [removed({"add": add["add"] | {"path": path.format(table=log.folder)}})],
    ):
        log.commit(*actions)
        with pytest.raises(MillraceError, match=r"has files elsewhere, such as .*other/a\.parquet"):
            kept.take()
        log.version -= 1


def test_a_deletion_vector_that_is_gone_is_an_error(log: WrittenLog, kept: Kept) -> None:
    log.commit(log.file("a.parquet", numbers(0), deletionVector=stored(log, [1])[0]))
    for file in log.folder.glob("*.bin"):
        file.unlink()
    with pytest.raises(MillraceError, match="has removed a file that is still to be read"):
        kept.take()


def test_a_table_with_a_column_named_like_the_kind_of_a_change_is_refused(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "table", [*PLAIN, column("_change_type", "string")], **FEED)
    with pytest.raises(MillraceError, match="has a column _change_type of its own"):
        changing(str(log.folder), tmp_path / "state")


def test_a_deletion_vector_marks_rows_beyond_32_bits() -> None:
    maps = b"".join(struct.pack("<i", number) + BitMap([number]).serialize() for number in range(3))
    content = bitmap([])[:4] + struct.pack("<q", 3) + maps
    vector = DeletionVector("", 0, len(content), z85(content + b"\0" * (-len(content) % 4)))
    assert vector.rows().tolist() == [0, 2**32 + 1, 2**33 + 2]
