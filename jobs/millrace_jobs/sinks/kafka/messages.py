"""Results as Kafka messages: key and value are JSON objects in UTF-8, encoded by Spark in its tasks.

The value has every column of a result, including NULL columns. The key has the columns of ``ResultKeys``, in their
order, and is absent if results have no key. The encoding by type:

- TIMESTAMP: ISO 8601 in UTC with microseconds, ``"2013-01-01T00:10:00.000000Z"``; TIMESTAMP_NTZ the same without ``Z``;
  DATE ``"2013-01-01"``
- integers and DECIMAL: a number with all its digits; DOUBLE and FLOAT: a number, or ``"NaN"``, ``"Infinity"``,
  ``"-Infinity"``; in a key, -0.0 is 0.0, to which it is equal
- BINARY: base64; STRING, BOOLEAN: the JSON types; intervals: text as in SQL
- STRUCT, such as a window: an object, ``{"start": ..., "end": ...}``; ARRAY: an array; MAP: an object whose names are
  the map's keys
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql import types as T  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType, StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.name_checks import repeated_name
from millrace_jobs.changes import CHANGE, WEIGHT, net
from millrace_jobs.sinks.base import ADMITTED, TIMES_AS_TEXT, ResultKeys, WindowColumn, named, quoted

NO_END = (1 << 63) - 1
"""Window end of a row that does not expire."""

Row = tuple[str | None, str | None, int]
"""Key, value, and end of the window in microseconds since 1970; a row without a value is to be retracted."""

KeyAndValue = tuple[str | None, str | None]
"""The key and the value of a message."""

_FORMATS = {"ignoreNullFields": "false", "timeZone": "UTC", **TIMES_AS_TEXT}


def encoded(results: DataFrame, keys: ResultKeys) -> DataFrame:
    """Return the results as the columns ``key``, ``value`` and ``end`` (see ``Row``), and those of their changes."""
    columns = [name for name in results.columns if name not in (ADMITTED, *CHANGE.names)]
    value = _json(columns)
    if keys.retracts:
        value = F.when(F.col(ADMITTED), value)
    key = key_column(results, keys)
    end = window_end(keys.window) if keys.window is not None else F.lit(NO_END)
    change = CHANGE.names if keys.versioned else [WEIGHT] if keys.weighted else []
    return results.select(key.alias("key"), value.alias("value"), end.alias("end"), *change)


def key_column(results: DataFrame, keys: ResultKeys) -> Column:
    """Return the keys of results as JSON objects; NULL if results have no key."""
    return F.lit(None).cast("string") if keys.columns is None else _json(keys.columns, _one_zero(results))


def netted(fetched: pa.Table) -> pa.Table:
    """Return what a batch of changes leaves of the rows of ``encoded``: one for each key, without a value if removed.

    Raises ValueError if two rows have the same key; the text is the key.
    """
    net_rows = net(fetched)
    added = added_once(net_rows, ["key"])
    removed = net_rows.filter(pc.less(net_rows.column(WEIGHT), 0)).drop_columns([WEIGHT])
    removed = removed.filter(pc.invert(pc.is_in(removed.column("key"), value_set=added.column("key").combine_chunks())))
    deleted = removed.group_by("key").aggregate([("end", "max")]).rename_columns(["key", "end"])
    kept = [
        deleted.column(field.name) if field.name in ("key", "end") else pa.nulls(deleted.num_rows, field.type)
        for field in added.schema
    ]
    return pa.concat_tables([added, pa.table(kept, schema=added.schema)])


def added_once(net_rows: pa.Table, identity: list[str]) -> pa.Table:
    """Return the rows that net changes add, without their weights.

    Raises ValueError if two of them have the same values in the columns ``identity``; the text is their key.
    """
    added = net_rows.filter(pc.greater(net_rows.column(WEIGHT), 0)).drop_columns([WEIGHT])
    counts = added.group_by(identity).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts.column("count_all"), 1))
    if twice.num_rows:
        raise ValueError(twice.column("key")[0].as_py())
    return added


def fetched_rows(fetched: pa.Table) -> Iterator[Row]:
    """Yield the rows of ``encoded`` after the driver has fetched them."""
    for batch in fetched.select(["key", "value", "end"]).to_batches(max_chunksize=10_000):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def rows_of_batch(batch: pa.RecordBatch) -> Iterator[KeyAndValue]:
    """Yield the keys and values in a record batch of ``encoded``."""
    for part in range(0, batch.num_rows, 10_000):
        few = batch.slice(part, 10_000)
        yield from zip(few.column("key").to_pylist(), few.column("value").to_pylist(), strict=True)


def window_end(window: WindowColumn) -> Column:
    """Return a column with the watermark, in microseconds since 1970, that a row expires at; ``NO_END`` without one."""
    column = quoted(window.name) + (".end" if window.part == "window" else "")
    return F.coalesce(F.unix_micros(F.col(column)) + window.after, F.lit(NO_END))


def require_json(schema: StructType, field: str) -> None:
    """Check that results with this schema can be written as JSON without ambiguity.

    Raises MillraceError if two columns have the same name, or a map has keys that are neither text nor numbers.
    """
    if (repeated := repeated_name(schema.names)) is not None:
        raise MillraceError(Problem(*repeated, field=field))
    for column in schema:
        kind = _odd_map(column.dataType)
        if kind is not None:
            message = f"column {column.name} cannot be written as JSON: it has a {kind.simpleString()}"
            raise MillraceError(Problem(message, "convert its keys to text with transform_keys", field=field))


def _json(columns: Sequence[str], changed: Mapping[str, Column] = MappingProxyType({})) -> Column:
    """Return columns as a JSON object; ``changed`` has those of them that are written with other values."""
    if not columns:
        return F.lit("{}")
    return F.to_json(F.struct(*(changed.get(name, named(name)).alias(name) for name in columns)), _FORMATS)


def _one_zero(results: DataFrame) -> dict[str, Column]:
    """Return the columns of floats, with -0.0 as 0.0: keys that are equal in Spark are one key, and have one text."""
    floats = [field for field in results.schema if isinstance(field.dataType, T.FloatType | T.DoubleType)]
    columns = {field.name: (named(field.name), F.lit(0.0).cast(field.dataType)) for field in floats}
    return {name: F.when(column == zero, zero).otherwise(column) for name, (column, zero) in columns.items()}


def _odd_map(kind: DataType) -> T.MapType | None:
    """Return a map type within ``kind`` whose keys Spark would write in its internal form, if it has one."""
    if isinstance(kind, T.MapType):
        return _odd_map(kind.valueType) if isinstance(kind.keyType, T.StringType | T.NumericType) else kind
    if isinstance(kind, T.ArrayType):
        return _odd_map(kind.elementType)
    if isinstance(kind, StructType):
        return next(filter(None, (_odd_map(field.dataType) for field in kind)), None)
    return None
