"""Delta tables of tests: sinks that write to them, and what an independent engine finds in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from millrace_api.model.lakehouse import DeltaSinkSpec
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.lakehouse.delta_sink import DeltaSink
from millrace_jobs.stores.clients import s3_endpoint

FRESH = LastBatch(None, None)
"""The last batches of a checkpoint that has none."""


def delta_sink(
    place: str,
    results: DataFrame,
    key: Sequence[str] = (),
    *,
    checkpoint: str = "a-checkpoint",
    query: str = "counts",
    keys: ResultKeys | None = None,
    hidden: Sequence[str] = (),
    **fields: Any,
) -> DeltaSink:
    """Return a sink for results with these columns, of which ``hidden`` are none of the table's."""
    spec = DeltaSinkSpec.model_validate({"path": place, "key": list(key), **fields})
    columns = results.drop(*hidden).schema
    return DeltaSink(spec, keys or ResultKeys(tuple(key) or None), columns, query, checkpoint)


def write(sink: DeltaSink, results: DataFrame, number: int) -> int:
    """Write a batch, and return the number of rows."""
    return sink.write(sink.shape(results), ResultBatch(number, 1, 0))


def delta_table(place: str) -> DeltaTable:
    """Return the table's newest version."""
    url = s3_endpoint()
    options = {"allow_http": "true", "aws_endpoint_url": url} if place.startswith("s3") and url else {}
    return DeltaTable(place, storage_options=options)


def content(place: str) -> pa.Table:
    """Return all rows of a table."""
    return delta_table(place).to_pyarrow_table()  # a scan would hold Python's lock, which the S3 server's proxy needs


def asked(place: str, sql: str) -> list[tuple[Any, ...]]:
    """Return what DuckDB answers to a question about the rows of a table, which it knows as ``results``."""
    results = content(place)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("results", results)
        return connection.sql(sql).fetchall()
