"""The expected results, and comparisons with them: doubles to nine digits, everything else exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from millrace_jobs.sinks.files.sink import BATCH_ID

from .questions import Question

Row = tuple[Any, ...]

_ERROR = 0.05
"""Relative standard deviation of ``approx_count_distinct``."""


def duckdb_rows(events: pa.Table, sql: str) -> list[Row]:
    """Return DuckDB's rows for a query over the table ``events``."""
    with duckdb.connect() as connection:
        connection.register("given", without_zones(events))
        connection.execute("CREATE TABLE events AS SELECT * FROM given")
        return connection.execute(sql).fetchall()


def expected_rows(spark: SparkSession, events: pa.Table, question: Question) -> list[Row]:
    """Return DuckDB's answer, with Spark's estimates over the whole table for values that are estimates."""
    exact = duckdb_rows(events, question.duckdb)
    if not question.estimates:
        return exact
    spark.createDataFrame(with_zones(events)).createOrReplaceTempView("events")
    answered = spark.sql(question.spark).toArrow()
    whole = _by_key(rows_of(answered), question.key_columns)
    rows = []
    for row in exact:
        estimated = list(row)
        for name in question.estimates:
            at = answered.column_names.index(name)
            estimated[at] = whole[comparable(row[: question.key_columns])][at]
            assert abs(estimated[at] - row[at]) <= max(1, 3 * _ERROR * row[at]), f"{name} is off at {row}"
        rows.append(tuple(estimated))
    return rows


def with_zones(table: pa.Table) -> pa.Table:
    """Return a table whose times without a zone are times in UTC, which is Spark's TIMESTAMP."""
    return _with_times(table, pa.timestamp("us", tz="UTC"))


def without_zones(table: pa.Table) -> pa.Table:
    """Return a table whose times in UTC are times without a zone, which is DuckDB's TIMESTAMP."""
    return _with_times(table, pa.timestamp("us"))


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table, with times without a zone."""
    plain = without_zones(table)
    return list(zip(*(column.to_pylist() for column in plain.columns), strict=True))


def latest(results: pa.Table, key_columns: int) -> list[Row]:
    """Return the answer of an update stream: per key the row with the highest batch id, which must be unique."""
    newest: dict[Row, tuple[int, Row]] = {}
    seen: set[tuple[Row, int]] = set()
    names = [name for name in results.column_names if name != BATCH_ID]
    for row, batch in zip(rows_of(results.select(names)), results.column(BATCH_ID).to_pylist(), strict=True):
        key = comparable(row[:key_columns])
        assert (key, batch) not in seen, f"batch {batch} has two rows of {key}"
        seen.add((key, batch))
        if key not in newest or newest[key][0] < batch:
            newest[key] = (batch, row)
    return [row for _, row in newest.values()]


def assert_same(actual: Iterable[Row], expected: Iterable[Row], key_columns: int) -> None:
    """Check that both have the same keys, each once, with the same values."""
    ours, theirs = _by_key(actual, key_columns), _by_key(expected, key_columns)
    missing, extra = theirs.keys() - ours.keys(), ours.keys() - theirs.keys()
    assert not missing, f"{len(missing)} of {len(theirs)} rows are missing, such as {_some(missing)}"
    assert not extra, f"{len(extra)} rows are too many, such as {_some(extra)}"
    different = [key for key in theirs if not _same_values(ours[key], theirs[key])]
    shown = [(key, ours[key], theirs[key]) for key in different[:3]]
    assert not different, f"{len(different)} of {len(theirs)} rows differ (key, is, should be): {shown}"


def comparable(key: Sequence[Any]) -> Row:
    """Return a key that equals itself: NaN becomes its name."""
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in key)


def micros(moment: datetime) -> int:
    """Return the microseconds since 1970 of a time in UTC, with or without that zone."""
    return round((moment.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds() * 1_000_000)


def _with_times(table: pa.Table, kind: pa.DataType) -> pa.Table:
    times = [pa.types.is_timestamp(field.type) for field in table.schema]
    fields = [field.with_type(kind) if time else field for field, time in zip(table.schema, times, strict=True)]
    return table.cast(pa.schema(fields))


def _by_key(rows: Iterable[Row], key_columns: int) -> dict[Row, Row]:
    found: dict[Row, Row] = {}
    for row in rows:
        key = comparable(row[:key_columns])
        assert key not in found, f"{key} is there twice: {found[key]} and {row}"
        found[key] = row
    return found


def _same_values(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def _some(keys: set[Row]) -> list[Row]:
    return sorted(keys, key=repr)[:3]
