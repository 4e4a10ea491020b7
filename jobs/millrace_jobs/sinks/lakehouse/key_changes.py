"""The changes of a batch by key, computed by tasks: the last row of each key, and whether it is removed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.changes import WEIGHT
from millrace_jobs.sinks.base import ADMITTED, ResultKeys
from millrace_jobs.sinks.column_names import named, quoted

REMOVED = "millrace_removed"
"""Boolean column that is true for a key whose row is removed."""

_ORDER, _ROW = "millrace_order", "millrace_row"


def key_changes(results: DataFrame, keys: ResultKeys, field: str) -> DataFrame:
    """Return one row for each key of the results, with the column REMOVED.

    The last row of a key counts, in the order of partitions and of the rows in them. Of weighted changes, the row
    that is added counts.

    Args:
        results: the results of a batch, with the columns that mark them.
        keys: their key.
        field: the field of the spec that describes the table, for the error that ends a batch with a NULL in its key,
            or with two rows of one key.
    """
    assert keys.columns, "results without a key are appended"
    mark = WEIGHT if keys.weighted else ADMITTED if keys.retracts else None
    columns = [name for name in results.columns if name != mark]
    if keys.weighted:
        net = results.groupBy(*map(named, columns)).agg(F.sum(named(WEIGHT)).alias(WEIGHT))
        rows = net.where(named(WEIGHT) != 0).withColumn(_ORDER, named(WEIGHT))
    else:
        rows = results.withColumn(_ORDER, F.monotonically_increasing_id())
    removed = F.lit(False) if mark is None else named(WEIGHT) < 0 if keys.weighted else ~named(ADMITTED)
    row = F.struct(*map(named, columns), removed.alias(REMOVED))
    latest = rows.groupBy(*map(named, keys.columns)).agg(
        F.max_by(row, named(_ORDER)).alias(_ROW), F.count_if(~removed).alias(_ORDER)
    )
    missing = [named(name).isNull() for name in keys.columns]
    checked = F.when(_any(missing), _fails(_null_key(keys.columns, field)))
    if keys.weighted:
        checked = checked.when(named(_ORDER) > 1, _fails(_repeated_key(keys.columns, field)))
    fields = [F.col(f"{_ROW}.{quoted(name)}").alias(name) for name in columns]
    return latest.select(*fields, checked.otherwise(F.col(f"{_ROW}.{REMOVED}")).alias(REMOVED))


def _null_key(key: tuple[str, ...], field: str) -> Problem:
    message = f"a row of the result has NULL in its key {', '.join(key)}, by which no other row could replace it"
    return Problem(message, f"exclude such rows, as in WHERE {key[0]} IS NOT NULL", field=f"{field}.key")


def _repeated_key(key: tuple[str, ...], field: str) -> Problem:
    message = f"two rows of the result have the same {', '.join(key)}, so one of them would be lost"
    return Problem(message, "write a key that identifies the rows of the result", field=f"{field}.key")


def _fails(problem: Problem) -> Column:
    failure = f"{MillraceError.__module__}.{MillraceError.__name__}: {problem}"  # the form that run.failures knows
    return F.raise_error(F.lit(failure)).cast("boolean")


def _any(conditions: list[Column]) -> Column:
    first, *others = conditions
    for each in others:
        first = first | each
    return first
