"""Results as plain Python values for encoders: maps as dicts, and names that a schema can have."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem


def rows_of(values: pa.Array) -> list[dict[str, Any]]:
    """Return the rows of a column of structs.

    Raises:
        MillraceError: a time is beyond the year 9999, which neither Avro's nor Protobuf's libraries can write.
    """
    try:
        return list(values.to_pylist(maps_as_pydicts="strict"))
    except (OverflowError, ValueError) as error:
        message = f"a result cannot be written with a schema: {error}"
        raise MillraceError(Problem(message, "filter out times outside the years 1 to 9999 in the SQL")) from None


def field_name(name: str) -> str:
    """Return a column's name, if a field of Avro and Protobuf can have it.

    Raises:
        MillraceError: it cannot.
    """
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        message = f"column {name} cannot be a field of a schema"
        raise MillraceError(Problem(message, "name it with letters, digits and _, such as AS fare_sum"))
    return name


def unsupported(column: str, kind: object, format: str) -> MillraceError:
    """Return the error for a column that a format has no type for."""
    shown = kind.simpleString() if hasattr(kind, "simpleString") else str(kind)
    message = f"column {column} is {shown}, which cannot be written in {format}"
    return MillraceError(
        Problem(message, f"convert it in the SQL, such as CAST({column} AS STRING) or to_json({column})")
    )
