"""Compaction of Delta tables that other engines write to, too: whatever a file is, its rows stay as they are."""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from millrace_api.model.lakehouse import DeltaSinkSpec
from millrace_jobs.sinks.base import ResultBatch, ResultKeys
from millrace_jobs.sinks.lakehouse import delta_sink
from millrace_jobs.sinks.lakehouse.delta_files import commit_rewrites
from millrace_jobs.sinks.lakehouse.delta_sink import DeltaSink, DeltaTarget

from .delta_logs import PLAIN, WrittenLog, bitmap, column, inline, numbers, z85
from .streamed import ids, opened, rows
from .tables import FRESH, delta_table

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


def taken(log: WrittenLog, columns: pa.Schema = SCHEMA) -> DeltaTarget:
    """Return the table as a sink has it."""
    found = DeltaTarget(log.folder, spec_of(log), columns, "counts", "a-checkpoint")
    found.take(FRESH)
    return found


def spec_of(log: WrittenLog, **fields: Any) -> DeltaSinkSpec:
    return DeltaSinkSpec.model_validate({"path": str(log.folder), **fields})


def found_in(log: WrittenLog, state: Path) -> list[int]:
    """Return the numbers of all rows of a table."""
    source = opened("delta", {"path": str(log.folder)}, state)
    start = source.initial()
    return ids(rows(source, start, source.latest(start, everything=True)))


def files_of(log: WrittenLog) -> list[str]:
    """Return the names of the table's files."""
    return sorted(uri.rpartition("/")[2] for uri in delta_table(str(log.folder)).file_uris())


def test_files_with_deletion_vectors_stay_as_they_are(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "a table, 50% done", PLAIN, ["deletionVectors"])
    log.commit(log.file("a.parquet", numbers(0), deletionVector=inline([0, 3, 5])))
    log.commit(*(log.file(f"{name}.parquet", numbers(first)) for name, first in (("b", 10), ("c", 20))))
    taken(log).compact()
    assert found_in(log, tmp_path / "state") == [each for each in range(30) if each not in (0, 3, 5)]
    kept, merged = files_of(log)
    assert kept == "a.parquet"
    assert merged.startswith("compacted-")


def test_a_deletion_vector_that_comes_before_the_commit_stops_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = WrittenLog(tmp_path / "table", PLAIN, ["deletionVectors"])
    first, second = log.file("a.parquet", numbers(0)), log.file("b.parquet", numbers(10))
    log.commit(first, second)
    to = taken(log)
    log.version = delta_table(str(log.folder)).version() + 1
    remove = {"path": "a.parquet", "dataChange": True, "deletionTimestamp": 1}

    def pause(*arguments: Any) -> None:
        log.commit({"remove": remove}, {"add": first["add"] | {"deletionVector": inline([0, 3, 5])}})
        commit_rewrites(*arguments)

    monkeypatch.setattr(delta_sink, "commit_rewrites", pause)
    to.compact()
    assert found_in(log, tmp_path / "state") == [each for each in range(20) if each not in (0, 3, 5)]
    assert files_of(log) == ["a.parquet", "b.parquet"]


def test_files_of_deletion_vectors_are_not_removed_as_old_ones(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "table", PLAIN, ["deletionVectors"])
    name, content = uuid.uuid4(), bitmap([0, 3, 5])
    vectors = log.folder / f"deletion_vector_{name}.bin"
    vectors.write_bytes(b"\1" + struct.pack(">i", len(content)) + content + struct.pack(">I", zlib.crc32(content)))
    place = {"storageType": "u", "pathOrInlineDv": z85(name.bytes), "offset": 1}
    vector = place | {"sizeInBytes": len(content), "cardinality": 3}
    log.commit(log.file("a.parquet", numbers(0), deletionVector=vector))
    os.utime(vectors, (0, 0))
    taken(log).compact()
    assert found_in(log, tmp_path / "state") == [1, 2, 4, 6, 7, 8, 9]


@pytest.mark.parametrize("path", ["../other/a.parquet", "%2E%2E/other/a.parquet", "b=/../../other/a.parquet"])
def test_files_outside_of_the_folder_are_not_compacted(tmp_path: Path, path: str) -> None:
    (tmp_path / "other").mkdir()
    log = WrittenLog(tmp_path / "table", PLAIN)
    log.commit(log.file("../other/a.parquet", numbers(0), path=path), log.file("b.parquet", numbers(10)))
    taken(log).compact()
    assert files_of(log) == ["a.parquet", "b.parquet"]


def test_compaction_keeps_times_that_do_not_fit_nanoseconds(tmp_path: Path) -> None:
    """Spark's Parquet has times in 96 bits by default, with nanoseconds of the day."""
    log = WrittenLog(tmp_path / "table", [column("id", "long"), column("at", "timestamp")])
    at = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 0, 0, 0, 123_456, UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ]
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    content = pa.table([range(3), at], columns)
    log.commit(*(log.file(f"{name}.parquet", content, in_96_bits=True) for name in "ab"))
    taken(log, columns).compact()
    (merged,) = files_of(log)
    assert sorted(pq.read_table(log.folder / merged)["at"].to_pylist()) == sorted([*at, *at])


def test_a_compaction_that_fails_for_good_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = WrittenLog(tmp_path / "table", PLAIN)
    log.commit(*(log.file(f"{name}.parquet", numbers(first)) for name, first in (("a", 0), ("b", 10))))
    (log.folder / "a.parquet").write_bytes(b"no Parquet")
    results: Any = StructType([StructField("id", LongType()), StructField("city", StringType())])
    sink = DeltaSink(spec_of(log, maintenance={"compactEvery": 1}), ResultKeys(None), results, "counts", "a-checkpoint")
    sink.prepare(FRESH)
    monkeypatch.setattr(DeltaSink, "_write", lambda *_: 7)
    assert sink.write(results, ResultBatch(0, 1, 0)) == 7
    (warning,) = caplog.messages
    assert warning.startswith("query counts, after batch 0: spec.sink.delta: compacting the table ")
    assert files_of(log) == ["a.parquet", "b.parquet"]
