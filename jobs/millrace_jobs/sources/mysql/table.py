"""A table or a query of MySQL that is read as a whole: by one SELECT of lines of CSV, which the server writes.

One SELECT sees one state of the database. Its rows come as they are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
import pymysql
from pymysql.constants import FIELD_TYPE, FLAG

from millrace_api.model.mysql import MySqlSourceSpec
from millrace_jobs.databases.connection import time_limit
from millrace_jobs.databases.mysql import MySqlConnection, MySqlSession, mysql_problem
from millrace_jobs.sources.database_table import DatabaseTable, ServerType
from millrace_jobs.sources.formats.column_types import TIMESTAMP

_BEGIN = "START TRANSACTION READ ONLY"

_SMALL = ("tinyint", "tinyint unsigned", "smallint", "year")
_NORMAL = (*_SMALL, "smallint unsigned", "mediumint", "mediumint unsigned", "int")
_LARGE = (*_NORMAL, "int unsigned", "bigint")

_HOLDS: Final = {
    "BOOLEAN": ("tinyint", "bit"),
    "SMALLINT": _SMALL,
    "INT": _NORMAL,
    "BIGINT": (*_LARGE, "bigint unsigned"),
    "FLOAT": ("float",),
    "DOUBLE": ("float", "double", *_NORMAL, "int unsigned"),
    "DATE": ("date",),
    "TIMESTAMP": ("datetime", "timestamp"),
    "BINARY": ("binary",),
    "DECIMAL": ("decimal", *_LARGE, "bigint unsigned"),
}
"""Types of MySQL whose values each type can have without loss.

Of a DECIMAL, a BOOLEAN and an unsigned BIGINT, each value is looked at.
"""

_DECIMAL = "DECIMAL(p,s) with the digits that its values have"
_WRITTEN: Final = {
    "tinyint": "BOOLEAN or SMALLINT",
    "bit": "BOOLEAN",
    **dict.fromkeys(_SMALL[1:], "SMALLINT"),
    **dict.fromkeys(_NORMAL[len(_SMALL) :], "INT"),
    "int unsigned": "BIGINT",
    "bigint": "BIGINT",
    "bigint unsigned": "BIGINT or DECIMAL(20,0)",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "datetime": "TIMESTAMP",
    "timestamp": "TIMESTAMP",
    "binary": "BINARY",
    "decimal": _DECIMAL,
}
"""What to write for a type of MySQL; for any other one, STRING."""

_NUMBERS: Final = {
    FIELD_TYPE.DECIMAL: "decimal",
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.BIT: "bit",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.DATETIME: "datetime",
    FIELD_TYPE.TIMESTAMP: "timestamp",
    FIELD_TYPE.TIME: "time",
    FIELD_TYPE.GEOMETRY: "geometry",
}
"""Types of the protocol; all others are texts, or binary if their character set is."""

_BINARY = 63  # number of the character set of values that are no text


class MySqlTable(DatabaseTable):
    """The rows of a table or a query of MySQL."""

    nested_as_text = "JSON_EXTRACT({}, '$')"

    def __init__(self, name: str, spec: MySqlSourceSpec, schema: pa.Schema) -> None:
        self._server = MySqlConnection.of(spec, f"spec.sources.{name}.mysql")
        self._relation = _relation(spec)
        super().__init__(name, spec, schema, self._server)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        try:
            with closing(self._server.open(reads=True)) as session, time_limit(session):
                session.execute(_BEGIN)
                yield from self._blocks(self._lines(session, self._types(session)))
        except pymysql.err.Error as error:
            raise mysql_problem(error, f"reading {self._what}", self._connection, reads=True) from error

    def _types(self, session: MySqlSession) -> list[ServerType]:
        columns = ", ".join(map(_quoted, self._schema.names))
        cursor: Any = session.execute(f"SELECT {columns} FROM {self._relation} LIMIT 0")
        types = [_type_of(each) for each in cursor._result.fields]  # its description lacks signs and character sets
        for column, kind in zip(self._schema, types, strict=True):
            is_text = kind.name not in ("binary", "bit", "geometry")
            self._require_held(column, kind, _HOLDS, _WRITTEN, is_text=is_text)
        return types

    def _lines(self, session: MySqlSession, types: Sequence[ServerType]) -> Iterator[bytes]:
        pairs = zip(self._schema, types, strict=True)
        texts = [_field(_text_of(_quoted(column.name), kind, column.type)) for column, kind in pairs]
        # as binary, so that the client leaves the bytes as they are
        fields = ", ',', ".join(texts)
        line = f"CAST(CONCAT({fields}, '\\n') AS BINARY)"
        with closing(session.stream(f"SELECT {line} FROM {self._relation}")) as taken:
            for (row,) in taken:
                if row is None:  # CONCAT warns of a text that is too long, and returns NULL
                    message = f"a row of {self._what} is larger than the server's max_allowed_packet"
                    raise self._error(message, "raise that, or select less of it in a query")
                yield row


def _relation(spec: MySqlSourceSpec) -> str:
    if spec.table is not None:
        return ".".join(map(_quoted, spec.table.split(".")))
    text = (spec.query or "").strip().rstrip(";")
    # a comment at its end must not hide the bracket
    return f"({text}\n) AS source"


def _type_of(field: Any) -> ServerType:
    name = _NUMBERS.get(field.type_code)
    if name is None:
        name = "binary" if field.charsetnr == _BINARY and field.type_code != FIELD_TYPE.JSON else "text"
    elif field.flags & FLAG.UNSIGNED and (name.endswith("int")):
        name = f"{name} unsigned"
    return ServerType(name, name)


def _text_of(column: str, kind: ServerType, declared: pa.DataType) -> str:
    """Return the expression of a value's text; a TIMESTAMP is in UTC, as the session is, and a DATETIME as in files."""
    if pa.types.is_boolean(declared):
        return f"CASE {column} + 0 WHEN 0 THEN 'f' WHEN 1 THEN 't' ELSE {column} + 0 END"
    if kind.name in ("datetime", "timestamp") and declared == TIMESTAMP:
        return f"CONCAT({column}, '+00')"
    if kind.name == "float":
        return f"{column} + 0E0"  # a FLOAT's own text has six digits
    return f"HEX({column})" if kind.name == "binary" else column


def _field(text: str) -> str:
    """Return the expression of a field of CSV: empty for NULL, else in quotes; the comparison is one of bytes."""
    shown = f"CONVERT({text} USING utf8mb4) COLLATE utf8mb4_bin"
    return f"""IF({text} IS NULL, '', CONCAT('"', REPLACE({shown}, '"', '""'), '"'))"""


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
