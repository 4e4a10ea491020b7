"""Delta tables with features that the library does not write: their logs are written here, as the protocol says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError

from .delta_logs import OUTSIDE, PLAIN, WrittenLog, column, inline, numbers
from .streamed import COLUMNS, ids, next_rows, opened, rows


def test_rows_that_deletion_vectors_mark_are_not_read(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "a table", PLAIN, ["deletionVectors"])
    log.commit(log.file("a.parquet", numbers(0, 1000), deletionVector=inline([0, 3, 500, 999])))
    log.commit(log.file("b.parquet", numbers(1000)))
    state, spec = tmp_path / "state", {"path": str(log.folder)}
    for replicas in (1, 3, 7):
        source = opened("delta", spec, state)
        at = dict(source.initial())
        expected = [number for number in range(1010) if number not in (0, 3, 500, 999)]
        assert ids(next_rows(source, at, replicas)) == expected
    log.commit(log.file("c.parquet", numbers(2000)))
    assert ids(next_rows(source, at)) == list(range(2000, 2010))
    remove = {"path": "b.parquet", "dataChange": True, "deletionTimestamp": 1}
    log.commit({"remove": remove}, log.file("b.parquet", numbers(1000), deletionVector=inline([2])))
    log.commit(log.file("d.parquet", numbers(3000)))
    with pytest.raises(MillraceError, match="changes or removes rows, not only adds some"):
        next_rows(source, at)
    skipping = opened("delta", spec | {"otherCommits": "Skip"}, state)
    assert ids(next_rows(skipping, at)) == list(range(3000, 3010))


def test_columns_are_read_where_files_have_other_names(tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [column("x", "long", "c-3", 3), column("y", "string", "c-4", 4)]}
    fields = [column("id", "long", "c-1", 1), column("n", inner, "c-2", 2), column("p", "integer", "c-5", 5)]
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "5"}
    log = WrittenLog(tmp_path / "table", fields, ["columnMapping"], **mode)
    content = pa.table({"c-1": pa.array([1, 2], pa.int64()), "c-2": [{"c-3": 7, "c-4": "a"}, None], "id": [9, 9]})
    log.commit(log.file("a.parquet", content, partitionValues={"c-5": "5"}))
    columns = "id BIGINT, n STRUCT<x: BIGINT, y: STRING>"
    source = opened("delta", {"path": str(log.folder), "startingVersion": 0}, tmp_path / "state", columns)
    start = source.initial()
    expected = [{"id": 1, "n": {"x": 7, "y": "a"}}, {"id": 2, "n": None}]
    assert rows(source, start, source.latest(start, everything=True)) == expected
    inner = {"type": "struct", "fields": [column("z", "long", "c-3", 3), column("y", "string", "c-4", 4)]}
    log.commit(log.renamed([column("number", "long", "c-1", 1), column("n", inner, "c-2", 2), fields[2]]))
    columns = "NUMBER BIGINT, n STRUCT<Z: BIGINT, y: STRING>"
    source = opened("delta", {"path": str(log.folder)}, tmp_path / "state", columns)
    expected = [{"NUMBER": 1, "n": {"Z": 7, "y": "a"}}, {"NUMBER": 2, "n": None}]
    assert rows(source, start, source.latest(start, everything=True)) == expected


def test_partitions_are_read_where_files_have_other_names(tmp_path: Path) -> None:
    fields = [column("id", "long", "c-1", 1), column("p", "integer", "c-5", 5)]
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "5"}
    log = WrittenLog(tmp_path / "table", fields, ["columnMapping"], **mode)
    log._metadata["partitionColumns"] = ["p"]
    log.commit(log.renamed(fields), log.file("a.parquet", pa.table({"c-1": [1, 2]}), partitionValues={"c-5": "5"}))
    for name, how in (("added", {"startingVersion": 1}), ("whole", {})):
        source = opened("delta", {"path": str(log.folder)} | how, tmp_path / name, "id BIGINT, p INT")
        start = source.initial()
        assert rows(source, start, source.latest(start, everything=True)) == [{"id": 1, "p": 5}, {"id": 2, "p": 5}]


@pytest.mark.parametrize(
    ("features", "configuration", "name"),
    [
        (["variantType"], {}, "variantType"),
        (["catalogManaged"], {}, "catalog-managed"),
        (["columnMapping"], {"delta.columnMapping.mode": "id"}, "columnMapping by id"),
    ],
)
def test_features_that_cannot_be_read_are_refused_by_name(tmp_path: Path, features, configuration, name) -> None:
    log = WrittenLog(tmp_path / "table", [column("id", "long", "c-1", 1)], features, **configuration)
    with pytest.raises(MillraceError) as raised:
        opened("delta", {"path": str(log.folder)}, tmp_path / "state", "id BIGINT")
    assert name in str(raised.value)


def test_files_without_a_size_are_read(tmp_path: Path) -> None:
    """A log may have 0 as the size of a file."""
    log = WrittenLog(tmp_path / "table", PLAIN)
    log.commit(*(log.file(f"{name}.parquet", numbers(first), size=0) for name, first in (("a", 0), ("b", 10))))
    for name, how in (("added", {"startingVersion": 0}), ("whole", {})):
        source = opened("delta", {"path": str(log.folder)} | how, tmp_path / name, COLUMNS)
        start = source.initial()
        assert ids(rows(source, start, source.latest(start, everything=True), 2)) == list(range(20))


def test_files_outside_of_the_table_are_refused(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "table", PLAIN)
    log.commit(log.file("a.parquet", numbers(0), path=f"file://{tmp_path}/other/a.parquet"))
    source = opened("delta", {"path": str(log.folder), "startingVersion": 0}, tmp_path / "state", COLUMNS)
    with pytest.raises(MillraceError, match="as shallow clones have; read the table that was cloned"):
        source.latest(source.initial(), everything=True)


@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_that_lead_out_of_the_table_are_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "other").mkdir()
    log = WrittenLog(tmp_path / "table", PLAIN)
    log.commit(log.file("../other/a.parquet", numbers(0), path=path.format(table=log.folder)))
    for name, how in (("added", {"startingVersion": 0}), ("whole", {})):
        source = opened("delta", {"path": str(log.folder)} | how, tmp_path / name, COLUMNS)
        with pytest.raises(MillraceError, match=r"has files elsewhere, such as .*other/a\.parquet"):
            source.latest(source.initial(), everything=True)
