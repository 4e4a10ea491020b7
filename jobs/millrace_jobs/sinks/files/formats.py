"""The form of results in files: CSV, and folders for partitions.

CSV is in the dialect that the source reads: RFC 4180, where a quote is doubled and nothing else escapes. NULL is an
empty field, and the empty string is ``""``. Every other value is as it is: Spark would by default drop the blanks
around it. Partitions are one folder for each combination of values, named as Hive and Spark name it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql import types as T  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType, StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.sql.name_checks import repeated_name
from millrace_jobs.sinks.base import named

_FIELD = "spec.sink.files"
_NULL = Problem(
    "a NULL cannot be written to a CSV file with one column of text, where it would be the empty string",
    "select another column beside it, or write json or parquet",
    field=_FIELD,
)

_NESTED = (StructType, T.ArrayType, T.MapType, T.VariantType)

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What stands for NULL, and for the empty string, in the name of a folder."""

MOST_FILES = 10_000
"""Files that a batch may write: the driver knows each of them, and a reader has to open each of them."""

_ESCAPED = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
"""Characters that Spark and Hive escape in names of folders."""

_TYPES: tuple[type[DataType], ...] = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.StringType,
    T.DateType,
)
"""Types whose values have one text, which stays the same wherever it is read."""


def csv_options(names: Sequence[str]) -> Mapping[str, str]:
    """Return the options of Spark's writer for results with these columns.

    A single column is quoted always: a line that is empty or blank would not be a record.
    """
    return {
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "quoteAll": "true" if len(names) == 1 else "false",
    }


def csv_header(names: Sequence[str]) -> bytes:
    """Return the line with the names of these columns; those with more than letters and digits are quoted."""
    quoted = (
        name if re.fullmatch(r"\w+", name) and len(names) > 1 else '"' + name.replace('"', '""') + '"' for name in names
    )
    return (",".join(quoted) + "\n").encode()


def csv_columns(results: DataFrame, names: Sequence[str]) -> list[Column]:
    """Return these columns as they are written; a NULL that would be the empty string ends the query."""
    columns = [named(name) for name in names]
    if len(names) > 1 or not isinstance(results.schema[names[0]].dataType, T.StringType):
        return columns
    failure = f"{MillraceError.__module__}.{MillraceError.__name__}: {_NULL}"  # the form that run.failures knows
    return [F.coalesce(columns[0], F.raise_error(F.lit(failure)).cast("string")).alias(names[0])]


def require_csv(schema: StructType, field: str) -> None:
    """Check that results with this schema can be written as CSV.

    Raises MillraceError if a column has no text that the source would read back, or two columns have the same name.
    """
    (name, times), *_ = Counter(schema.names).most_common(1) or [("", 1)]
    if times > 1:
        message = f"the result has {times} columns with the name {name!r}"
        raise MillraceError(Problem(message, "give each a name of its own: SELECT ... AS name", field=field))
    for column in schema:
        hint = _instead(column.name, column.dataType)
        if hint:
            message = f"column {column.name} of type {column.dataType.simpleString()} cannot be written to csv"
            raise MillraceError(Problem(message, f"{hint}, or write format: parquet", field=f"{field}.format"))


def _instead(name: str, kind: DataType) -> str:
    """Return what to select in place of a column that CSV has no text for; empty for any other."""
    if isinstance(kind, T.BinaryType):
        return f"select base64({name}) AS {name}"
    if isinstance(kind, StructType):
        return f"select its fields one by one, such as {name}.{kind.names[0]}" if kind.names else "leave it out"
    return f"select to_json({name}) AS {name}" if isinstance(kind, _NESTED) else ""


def require_partitions(results: StructType, names: Sequence[str], field: str) -> None:
    """Check that the rows of files can be divided by these columns; ``field`` is that of the sink.

    Raises MillraceError if there is no such column, none would be left, or values of its type have no place in a path.
    """
    if not names:
        return
    at = f"{field}.partitionBy"
    if (repeated := repeated_name(results.names)) is not None:
        raise MillraceError(Problem(*repeated, field=field))
    for place, name in enumerate(names):
        if name not in results.names:
            message = f'the result has no column "{name}"'
            raise MillraceError(Problem(message, f"write one of {', '.join(results.names)}", field=at))
        if name in names[:place]:
            raise MillraceError(Problem(f'"{name}" is there twice', "leave one out", field=at))
        kind = results[name].dataType
        if not isinstance(kind, _TYPES):
            message = f"files cannot be partitioned by {name}, which is {kind.simpleString().upper()}"
            hint = "partition them by a BOOLEAN, integer, STRING or DATE column, such as CAST(at AS DATE) AS day"
            raise MillraceError(Problem(message, hint, field=at))
    if set(names) == set(results.names):
        raise MillraceError(Problem("files are partitioned by all columns", "leave one out", field=at))


def spread(results: DataFrame, names: Sequence[str], files: int | None) -> DataFrame:
    """Return the rows in tasks such that a batch adds at most ``files`` files to each partition.

    The default is one, or without partitions one for each task that there is. Which task gets a row depends on the
    values of the row and on the task that it comes from, so that a repeated task gives the same rows to the same one.
    """
    if not names:
        return results if files is None else results.repartition(files)
    if files is None or files == 1:
        return results.repartition(*map(named, names))
    return results.repartition(*map(named, names), F.pmod(F.spark_partition_id(), F.lit(files)))


def folder_texts(names: Iterable[str]) -> list[Column]:
    """Return the texts of these columns in names of folders, before they are escaped; NULL for no value."""
    return [F.nullif(named(name).cast("string"), F.lit("")) for name in names]


def partition_folder(names: Sequence[str], texts: Sequence[str | None]) -> str:
    """Return the folder of a partition, such as ``day=2026-01-01/hour=3``."""
    return "/".join(
        f"{_escaped(name)}={NO_VALUE if not text else _escaped(text)}" for name, text in zip(names, texts, strict=True)
    )


def require_few_files(count: int, batch: int, field: str) -> None:
    """Check the number of files of a batch. Raises MillraceError if there are too many."""
    if count > MOST_FILES:
        message = f"batch {batch} has rows for {count:,} files, and a batch may write {MOST_FILES:,}"
        hint = "partition by columns with fewer values, such as a day in place of a time"
        raise MillraceError(Problem(message, hint, field=f"{field}.partitionBy"))


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
