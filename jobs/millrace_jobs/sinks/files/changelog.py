"""The changelog of a table in files: one row for each key that a batch changes (definition 55).

The operation is ``upsert``, with the new row, or ``delete``, with the row that is gone. Changes of a row within a batch
cancel out, so of each key, the row with the highest ``_batch_id`` says what the table has.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.sinks import BATCH_ID
from millrace_jobs.changes import CHANGE, FOREVER, FROM, NO_TIME, TO, WEIGHT
from millrace_jobs.sinks.base import ResultKeys, named, quoted

OPERATION = "_operation"
"""Column that says what happened to the row: ``UPSERT`` or ``DELETE``."""

TIME = "_time"
"""Column with the event time from which the row is valid, or at which a deleted one ended; NULL without event time."""

UPSERT, DELETE = "upsert", "delete"

MARKS = StructType([StructField(OPERATION, StringType()), StructField(TIME, TimestampType())])
"""The columns that each row of a changelog has after its values, before the number of the batch."""

_FIELD = "spec.sink.files"
KEY_FIELD = f"{_FIELD}.key"
"""Field of the key."""

_ROW, _RANK, _ROWS, _ENDED = "millrace_row", "millrace_rank", "millrace_rows", "millrace_ended"
_REPLACED = "millrace_replaced"
_IS_EARLIER, _IS_REMOVED, _IS_ADDED = 0, 1, 2


def changelog(results: DataFrame, keys: ResultKeys) -> DataFrame:
    """Return one row for each key whose row a batch changes, with the columns of ``MARKS``.

    Of a table with all versions, the latest counts. A row that was replaced says when it ended, and thus when one that
    is gone was deleted.

    Args:
        results: the changes of a batch, with the columns of ``changes.CHANGE``; without these, each row is new.
        keys: their key. NULL is a value of a key like others: rows of outer joins have it.
    """
    assert keys.columns is not None, "a changelog has a key"
    values = [name for name in results.columns if name not in CHANGE.names]
    if WEIGHT not in results.columns:
        return results.select(
            *map(named, values), F.lit(UPSERT).alias(OPERATION), F.lit(None).cast("timestamp").alias(TIME)
        )
    net = results.groupBy(*map(named, (*values, FROM, TO))).agg(F.sum(named(WEIGHT)).alias(WEIGHT))
    is_latest = F.col(TO) == FOREVER if keys.versioned else F.lit(True)
    is_added = F.col(WEIGHT) > 0
    rank = F.when(~is_latest, _IS_EARLIER).when(is_added, _IS_ADDED).otherwise(_IS_REMOVED)
    ranked = net.where(F.col(WEIGHT) != 0).withColumn(_RANK, rank)
    is_earlier = F.col(_RANK) == _IS_EARLIER
    row = F.struct(*map(named, values), F.col(FROM), F.col(_RANK))
    by_key = ranked.groupBy(*map(named, keys.columns)).agg(
        F.max_by(row, F.col(_RANK)).alias(_ROW),
        F.sum(F.when(F.col(_RANK) == _IS_ADDED, F.col(WEIGHT))).alias(_ROWS),
        F.max(F.when(is_earlier & is_added, F.col(TO))).alias(_ENDED),
        F.max(F.when(is_earlier & ~is_added, F.col(TO))).alias(_REPLACED),
    )
    by_key = by_key.where(F.col(f"{_ROW}.{_RANK}") != _IS_EARLIER)
    is_removed = F.col(f"{_ROW}.{_RANK}") == _IS_REMOVED
    start = F.col(f"{_ROW}.{FROM}")
    # unless the row before it is gone, too, a row that is gone from its first instant on was deleted then
    ended = F.when(F.col(_REPLACED) == start, F.coalesce(F.col(_ENDED), start)).otherwise(
        F.greatest(F.col(_ENDED), start)
    )
    time = F.when(is_removed, ended).otherwise(start)
    operation = F.when(F.col(_ROWS) > 1, _fails(keys)).when(is_removed, DELETE).otherwise(UPSERT)
    return by_key.select(
        *(F.col(f"{_ROW}.{quoted(name)}").alias(name) for name in values),
        operation.alias(OPERATION),
        F.when(time > NO_TIME, F.timestamp_micros(time)).alias(TIME),
    )


def require_names(names: Iterable[str], *, is_changelog: bool) -> None:
    """Check that no column of the results is called like one that the files have beside them.

    ``is_changelog``: the files are a changelog, rather than results of which only ``BATCH_ID`` says the order.

    Raises MillraceError if one is, as its values would be lost.
    """
    added = {*MARKS.names, BATCH_ID} if is_changelog else {BATCH_ID}
    where, field = ("the changelog has", KEY_FIELD) if is_changelog else ("files of results have", _FIELD)
    for name in names:
        if name.lower() in added:
            message = f"{where} a column {name.lower()} of {'its' if is_changelog else 'their'} own"
            raise MillraceError(Problem(message, "give the result's column another name", field=field))


def collision(key: Iterable[str]) -> str:
    """Return the text of the failure when two rows of a batch have one key, in the form that ``run.failures`` knows."""
    message = f"two rows of the result have the same {', '.join(key)}, so one of them would be lost"
    problem = Problem(message, "write a key that identifies the rows of the result", field=KEY_FIELD)
    return f"{MillraceError.__module__}.{MillraceError.__name__}: {problem}"


def _fails(keys: ResultKeys) -> Column:
    return F.raise_error(F.lit(collision(keys.columns or ()))).cast("string")
