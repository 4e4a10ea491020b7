"""Results as CSV, in the dialect that the source reads: RFC 4180, where a quote is doubled and nothing else escapes.

NULL is an empty field, and the empty string is ``""``. Every other value is as it is: Spark would by default drop the
blanks around it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sinks.column_names import named

_FIELD = "spec.sink.files"
_NULL = Problem(
    "a NULL cannot be written to a CSV file with one column of text, where it would be the empty string",
    "select another column beside it, or write json or parquet",
    field=_FIELD,
)

_NESTED = (StructType, ArrayType, MapType, VariantType)


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
    if len(names) > 1 or not isinstance(results.schema[names[0]].dataType, StringType):
        return columns
    failure = f"{MillraceError.__module__}.{MillraceError.__name__}: {_NULL}"  # the form that run.failures knows
    return [F.coalesce(columns[0], F.raise_error(F.lit(failure)).cast("string")).alias(names[0])]


def require_csv(schema: StructType, field: str) -> None:
    """Check that results with this schema can be written as CSV.

    Raises:
        MillraceError: a column has no text that the source would read back, or two columns have the same name.
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
    if isinstance(kind, BinaryType):
        return f"select base64({name}) AS {name}"
    if isinstance(kind, StructType):
        return f"select its fields one by one, such as {name}.{kind.names[0]}" if kind.names else "leave it out"
    return f"select to_json({name}) AS {name}" if isinstance(kind, _NESTED) else ""
