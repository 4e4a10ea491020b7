"""Batches committed to an Iceberg table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.lakehouse.data_files import DataFile, FileWriter, reported_files
from millrace_jobs.sinks.lakehouse.iceberg_sink import Changes, IcebergTarget

from .iceberg_tables import iceberg_asked, iceberg_spec
from .tables import FRESH

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
Fields = dict[str, Any]


def target(fields: Fields, checkpoint: str = "a-checkpoint", query: str = "counts", **more) -> IcebergTarget:
    return IcebergTarget(iceberg_spec(fields, **more), SCHEMA, query, checkpoint)


def taken(fields: Fields, last: LastBatch = FRESH, **more) -> IcebergTarget:
    found = target(fields, **more)
    found.take(last)
    return found


def files(to: IcebergTarget, rows: list[tuple[str, int]]) -> list[DataFile]:
    """Write a file as a task would."""
    batch = pa.RecordBatch.from_pylist([{"k": k, "n": n} for k, n in rows], SCHEMA)
    return reported_files(pa.Table.from_batches(FileWriter(to.folder, "batch-", to.columns)(iter([batch]))))


def append(to: IcebergTarget, number: int) -> None:
    to.write(Changes(files(to, [("a", number)])), ResultBatch(number, 1, 0))


def numbers(fields: Fields) -> list[int]:
    return [n for (n,) in iceberg_asked(fields, "SELECT n FROM results ORDER BY n")]
