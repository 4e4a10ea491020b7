"""Iceberg tables of tests: sinks that write to them, and what an independent engine finds in their files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from millrace_api.model.iceberg import IcebergSinkSpec
from millrace_jobs.lakehouse.iceberg_catalog import open_catalog
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.lakehouse.iceberg_sink import IcebergSink
from millrace_jobs.stores.objects import ObjectPath


def iceberg_spec(fields: dict[str, Any], **more: Any) -> IcebergSinkSpec:
    """Return the description of a sink."""
    return IcebergSinkSpec.model_validate(fields | more)


def iceberg_sink(
    fields: dict[str, Any],
    results: DataFrame,
    *,
    checkpoint: str = "a-checkpoint",
    query: str = "counts",
    keys: ResultKeys | None = None,
    hidden: Sequence[str] = (),
    **more: Any,
) -> IcebergSink:
    """Return a sink for results with these columns, of which ``hidden`` are none of the table's."""
    spec = iceberg_spec(fields, **more)
    columns = results.drop(*hidden).schema
    return IcebergSink(spec, keys or ResultKeys(spec.key or None), columns, query, checkpoint)


def iceberg_table(fields: dict[str, Any]) -> Table:
    """Return the table's newest version."""
    return open_catalog(iceberg_spec(fields)).load_table(fields["table"])


def data_files(fields: dict[str, Any]) -> list[str]:
    """Return the places of the table's files with rows."""
    return [task.file.file_path for task in iceberg_table(fields).scan().plan_files()]


def iceberg_content(fields: dict[str, Any]) -> pa.Table:
    """Return all rows of the files that the table lists, read without Iceberg."""
    parts = []
    for place in data_files(fields):
        if place.startswith("s3"):
            with ObjectPath.of_file(place).open() as stream:
                parts.append(pq.read_table(stream))
        else:
            parts.append(pq.read_table(place.removeprefix("file://").removeprefix("file:"), partitioning=None))
    return pa.concat_tables(parts, promote_options="default") if parts else iceberg_table(fields).scan().to_arrow()


def iceberg_asked(fields: dict[str, Any], sql: str) -> list[tuple[Any, ...]]:
    """Return what DuckDB answers to a question about the rows of a table, which it knows as ``results``."""
    results = iceberg_content(fields)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("results", results)
        return connection.sql(sql).fetchall()
