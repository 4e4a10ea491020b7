"""MySQL and MariaDB as places for results: their tables and types, and how results get there.

Results are rows of an INSERT, which Spark's tasks encode: one text ``(1,'a',NULL),`` for each. So no value passes
through Python: the driver sends the bytes of Arrow's strings as they are. LOAD DATA LOCAL would be a
little less text, but many servers refuse it, and it turns every error of a value into a warning. The text of a value:

- BOOLEAN and integers: as Spark casts it
- FLOAT, DOUBLE: with an exponent, which MySQL reads exactly; NaN and infinity as a number that it refuses
- DECIMAL: in quotes, so that MySQL reads it as a decimal even with an exponent
- STRING: in quotes, with backslashes and quotes escaped, which the sessions' ``sql_mode`` allows
- TIMESTAMP, TIMESTAMP_NTZ: in UTC, as sessions have it
- BINARY: hexadecimal digits
- ARRAY, STRUCT, MAP: JSON, as in Kafka messages
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pymysql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql import types as T  # noqa: N812 - the conventional name
from pyspark.sql.types import DataType, StructType

from millrace_api.errors import MillraceError
from millrace_jobs.changes import WEIGHT
from millrace_jobs.databases.connection import Session, time_limit
from millrace_jobs.databases.mysql import MySqlSession, is_conflict, is_denied, mysql_problem, number_of
from millrace_jobs.sinks.base import ADMITTED, named
from millrace_jobs.sinks.databases.dialect import (
    JSON,
    NESTED,
    PART,
    REMOVED,
    ROW,
    TEXTS,
    ColumnType,
    ColumnTypes,
    Dialect,
    FoundTable,
    Obstacle,
    Staging,
    TableColumn,
    TargetTable,
    texts,
)

DIGEST = "millrace_digest"
"""Staged column of weighted changes: rows are the same exactly if it is, whatever the collations of their columns."""

TEXT = "longtext CHARACTER SET utf8mb4"
"""The type for texts of any length, in any language."""

_DOCUMENT = ColumnType("json", frozenset({"json", "longtext"}))
_EXACT_DOCUMENT = ColumnType(
    TEXT, frozenset({"longtext"}), lossy={"json": "in which MySQL changes FLOAT, DOUBLE and DECIMAL"}
)
"""MySQL reads all of JSON's numbers but integers of 64 bits as doubles, not always as the closest one, and without a
warning (its bug 116160). MariaDB keeps JSON as its text, and reports the type as longtext."""


_TYPES = ColumnTypes(
    decimal="decimal",
    integers={T.ByteType: "tinyint", T.ShortType: "smallint", T.IntegerType: "int", T.LongType: "bigint"},
    holds={"tinyint": 3, "smallint": 5, "mediumint": 7, "int": 10, "bigint": 19},
    others=(
        ((T.BooleanType,), ColumnType("tinyint(1)", frozenset({"tinyint"}))),
        ((T.FloatType,), ColumnType("float", frozenset({"float"}))),
        ((T.DoubleType,), ColumnType("double", frozenset({"double"}))),
        (TEXTS, ColumnType(TEXT, frozenset({"varchar", "tinytext", "text", "mediumtext", "longtext", "json"}))),
        (
            (T.BinaryType,),
            ColumnType("longblob", frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})),
        ),
        ((T.DateType,), ColumnType("date", frozenset({"date"}))),
        ((T.TimestampType,), ColumnType("datetime(6)", frozenset({"datetime(6)", "timestamp(6)"}))),
        ((T.TimestampNTZType,), ColumnType("datetime(6)", frozenset({"datetime(6)"}))),
    ),
    most_scale=30,
)

_TABLE = """
SELECT t.TABLE_SCHEMA, t.TABLE_NAME, t.TABLE_TYPE, t.ENGINE, e.TRANSACTIONS, @@explicit_defaults_for_timestamp
FROM information_schema.TABLES t LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE
WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s
"""
_COLUMNS = """
SELECT COLUMN_NAME, COLUMN_TYPE, DATA_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA,
       COALESCE(GENERATION_EXPRESSION, ''), CHARACTER_SET_NAME, COLLATION_NAME
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_UNIQUE = """
SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
"""
_BATCHES = """
CREATE TABLE IF NOT EXISTS {} (
    `table` varchar(64) NOT NULL,
    checkpoint varchar(320) NOT NULL,
    query varchar(255) NOT NULL,
    batch bigint NOT NULL,
    epoch bigint,
    driver char(36) NOT NULL,
    written datetime NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (`table`, checkpoint)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"""
_NO_SUCH_TABLE, _TABLE_EXISTS = 1146, 1050

_EXACT = ("_0900_bin", "_nopad_bin")
"""Ends of the names of collations under which texts are equal only if all of their characters are."""

_DIGITS_IN_TYPE = ("datetime", "timestamp", "float", "double")
"""Types whose digits decide what they hold: a DATETIME has no fractions of a second."""

STATEMENT_BYTES = 1 << 20
"""Size of an INSERT, of as many rows as fit."""

_TOO_LARGE = 1153
"""The server's number for a statement that is larger than ``max_allowed_packet``."""

_LATEST = "`millrace_latest`"
_MARKS = {ADMITTED: "tinyint(1)", WEIGHT: "bigint"}


def column_type(kind: DataType) -> ColumnType | None:
    """Return the types of a table's column for a result's type; None if no column holds it."""
    if isinstance(kind, NESTED):
        return _EXACT_DOCUMENT if _has_inexact(kind) else _DOCUMENT
    return _TYPES.of(kind)


def _has_inexact(kind: DataType) -> bool:
    """Return whether values of a type have FLOAT, DOUBLE or DECIMAL in them; keys of maps are texts in JSON."""
    if isinstance(kind, T.ArrayType):
        return _has_inexact(kind.elementType)
    if isinstance(kind, T.MapType):
        return _has_inexact(kind.valueType)
    if isinstance(kind, StructType):
        return any(_has_inexact(each.dataType) for each in kind)
    return isinstance(kind, T.FloatType | T.DoubleType | T.DecimalType)


def rows(results: DataFrame, columns: Sequence[str], mark: str | None) -> DataFrame:
    """Return the results as one column, each row with a comma at its end; weighted changes with DIGEST."""
    fields = [F.coalesce(_literal(results, name), F.lit("NULL")) for name in columns]
    if mark == WEIGHT:
        values = [field for field, name in zip(fields, columns, strict=True) if name not in (WEIGHT, PART)]
        fields.append(F.concat(F.lit("x'"), F.sha2(F.concat_ws(",", *values), 256), F.lit("'")))
    return results.select(F.concat(F.lit("("), F.concat_ws(",", *fields), F.lit("),")).alias("row"))


def _literal(results: DataFrame, name: str) -> Column:
    column, kind = named(name), results.schema[name].dataType
    if isinstance(kind, NESTED):
        return _quoted(_escaped(F.to_json(column, JSON)))
    if isinstance(kind, TEXTS):
        return _quoted(_escaped(column))
    if isinstance(kind, T.BinaryType):
        return F.concat(F.lit("x"), _quoted(F.hex(column)))
    if isinstance(kind, T.TimestampType | T.TimestampNTZType | T.DateType | T.DecimalType):
        return _quoted(column.cast("string"))
    if isinstance(kind, T.FloatType | T.DoubleType):
        number = column.cast("double")
        text = number.cast("string")
        is_none = F.isnan(number) | (F.abs(number) == float("inf"))
        return (
            F.when(is_none, F.lit("1e999"))
            .when(F.contains(text, F.lit("E")), text)
            .otherwise(F.concat(text, F.lit("E0")))
        )
    return column.cast("string")


def _quoted(text: Column) -> Column:
    return F.concat(F.lit("'"), text, F.lit("'"))


def _escaped(text: Column) -> Column:
    return F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit("'"), F.lit("''"))


class MySqlDialect(Dialect):
    """MySQL, 8.0 or later, and MariaDB, 10.6 or later."""

    error = pymysql.err.Error
    insert_if_missing = "INSERT IGNORE INTO {rest}"
    changed_type = "MODIFY {name} {type}"
    without_null = "MODIFY {name} {type} NOT NULL"

    def problem(self, error: Exception, doing: str) -> MillraceError:
        """Return an error of the client library as a sentence; a TransientError if it may pass by itself."""
        assert isinstance(error, pymysql.err.Error)
        return mysql_problem(error, doing, self.connection)

    def is_conflict(self, error: Exception) -> bool:
        """Return whether a transaction has failed because of another one, so that it can be tried again."""
        return is_conflict(error)

    def is_denied(self, error: Exception) -> bool:
        """Return whether the user lacks a right."""
        return is_denied(error)

    def is_there(self, error: Exception) -> bool:
        """Return whether a table could not be created because another session has just done so."""
        return number_of(error) == _TABLE_EXISTS

    def quoted(self, *names: str) -> str:
        """Return a name, or names joined by dots, for a statement without values."""
        return ".".join("`{}`".format(name.replace("`", "``")) for name in names)

    def literal(self, text: str) -> str:
        """Return a text for a statement."""
        escaped = text.replace("\\", "\\\\").replace("'", "''")
        return f"'{escaped}'"

    def grantee(self, session: Session) -> str:
        """Return this session's user for GRANT."""
        user, _, host = str(session.execute("SELECT CURRENT_USER()").fetchone()[0]).rpartition("@")
        return f"{self.literal(user)}@{self.literal(host)}"

    def column_type(self, kind: DataType) -> ColumnType | None:
        """Return the types of a table's column for a result's type; None if no column holds it."""
        return column_type(kind)

    def find(self, session: Session, name: str) -> FoundTable | None:
        """Return the table with the name that the user wrote; None if there is none that the user may see."""
        schema, _, table = name.rpartition(".")
        found = session.execute(_TABLE, [schema or self.connection.database, table]).fetchone()
        if found is None:
            return None
        schema, table, kind, engine, transactions, explicit = found
        collation = "utf8mb4" + _EXACT[cast(MySqlSession, session).is_mariadb]
        columns = {
            each[0]: self._column(each, collation, nulls_are_now=not explicit)
            for each in session.execute(_COLUMNS, [schema, table]).fetchall()
        }
        indexes: dict[str, set[str | None]] = {}
        for index, column, prefix in session.execute(_UNIQUE, [schema, table]).fetchall():
            # of an expression there is no column, and the beginning of a text is not all of it
            indexes.setdefault(index, set()).add(column if prefix is None else None)
        unique = [frozenset(map(str, each)) for each in indexes.values() if None not in each]
        refusal = None
        if kind not in ("BASE TABLE", "SYSTEM VERSIONED"):
            refusal = "is no table", "write the name of a table"
        elif transactions != "YES":
            what = f"is of the engine {engine}, which has no transactions, so a batch could be there twice"
            refusal = what, f"ALTER TABLE {self.quoted(schema, table)} ENGINE=InnoDB;"
        return FoundTable(schema, table, columns, unique, refusal)

    def missing_rights(self, session: Session, table: FoundTable, wanted: Sequence[str]) -> list[str]:
        """Return nothing: rights may come from roles and patterns, so staging tries the statements instead."""
        return []

    def definition(self, session: Session, name: str, kind: ColumnType, *, is_key: bool) -> str:
        """Return a column for CREATE TABLE."""
        if not is_key:
            return f"{self.quoted(name)} {kind.name}"
        collation = _EXACT[cast(MySqlSession, session).is_mariadb]
        limited = {TEXT: f"varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4{collation}", "longblob": "varbinary(255)"}
        return f"{self.quoted(name)} {limited.get(kind.name, kind.name)} NOT NULL"

    def batches(self, session: Session, table: str) -> tuple[bool, str]:
        """Return whether the table of batches exists, and the command that creates it.

        To a user without rights on it, the server does not say whether it exists.
        """
        try:
            session.execute(f"SELECT 1 FROM {table} LIMIT 0")
        except pymysql.err.Error as error:
            if number_of(error) != _NO_SUCH_TABLE and not is_denied(error):
                raise
            return False, _BATCHES.format(table)
        return True, _BATCHES.format(table)

    def encoded(self, results: DataFrame, columns: Sequence[str], mark: str | None) -> DataFrame:
        """Return the results as rows of an INSERT."""
        return rows(results, columns, mark)

    def staging(self, table: TargetTable, mark: str | None) -> MySqlStaging:
        """Return what stages the results for a table."""
        return MySqlStaging(self, table, mark)

    def _column(self, found: Sequence[Any], collation: str, *, nulls_are_now: bool) -> TableColumn:
        """Return a column of ``_COLUMNS``; under ``collation`` of this server, only equal texts are equal."""
        name, type, base, precision, scale, nullable, default, extra, expression, charset, collation_name = found
        base = type if base in _DIGITS_IN_TYPE else f"{base} unsigned" if "unsigned" in type else base
        digits = (precision - (scale or 0), scale or 0) if base == "decimal" and precision is not None else None
        staged = type if charset is None else f"{type} CHARACTER SET {charset} COLLATE {collation_name}"
        not_null, generates = nullable == "NO", "auto_increment" in extra
        obstacle = key_obstacle = None
        if nulls_are_now and not_null and base.startswith("timestamp"):
            what = "is NOT NULL, so the server would write the current time for NULL"
            obstacle = Obstacle(what, f"MODIFY {self.quoted(name)} {type} NULL")
        if collation_name is not None and not collation_name.endswith(_EXACT):
            what = f"has the collation {collation_name}, under which texts that differ can be one key, and rows be lost"
            exact = f"{type} CHARACTER SET utf8mb4 COLLATE {collation} NOT NULL"
            key_obstacle = Obstacle(what, f"MODIFY {self.quoted(name)} {exact}")
        return TableColumn(
            name=name,
            type=type,
            base=base,
            digits=digits,
            not_null=not_null,
            has_default=default is not None or generates or "DEFAULT_GENERATED" in extra,
            generated=expression != "" or generates,
            staged=staged,
            obstacle=obstacle,
            key_obstacle=key_obstacle,
        )


class MySqlStaging(Staging):
    """Results in temporary tables of the session, into which INSERTs of many rows bring them.

    The merge is an UPDATE of the rows whose key is in the table and an INSERT of the others. ``INSERT ... ON DUPLICATE
    KEY UPDATE`` would replace a row that has the same value in any unique index, not only in that of the key, and
    ``REPLACE`` deletes rows. MySQL opens a temporary table only once in a statement, so the last row of each key is in
    a second one.
    """

    staged = "`millrace_staged`"

    def create(self, session: Session) -> None:
        """Create the temporary tables, and merge no rows, which fails if this user lacks a right."""
        columns = [f"{self.quoted(name)} {kind} NULL" for name, kind in zip(self.columns, self.types, strict=True)]
        columns += [] if self.mark is None else [f"{self.mark} {_MARKS[self.mark]}"]
        columns += [f"{PART} int", *([f"{DIGEST} binary(32)"] if self.mark == WEIGHT else [])]
        columns += [f"{ROW} bigint AUTO_INCREMENT PRIMARY KEY"]
        session.execute(f"CREATE TEMPORARY TABLE {self.staged} ({', '.join(columns)}) ENGINE=InnoDB")
        latest = f"{ROW} bigint PRIMARY KEY, {REMOVED} tinyint(1) NOT NULL"
        session.execute(f"CREATE TEMPORARY TABLE {_LATEST} ({latest}) ENGINE=InnoDB")
        with session.transaction():
            self.merge(session)

    def fill(self, session: Session, batches: Iterator[pa.RecordBatch]) -> None:
        """Insert the results into the temporary table as they come; each INSERT waits for the one before it."""
        mysql = cast(MySqlSession, session)
        columns = [*self.columns, *([] if self.mark is None else [self.mark]), PART]
        columns += [DIGEST] if self.mark == WEIGHT else []
        begin = f"INSERT INTO {self.staged} ({self.listed(columns)}) VALUES ".encode()
        room = min(STATEMENT_BYTES, mysql.largest_packet - len(begin) - 1)
        for rows in joined(batches, room):
            if len(begin) + len(rows) >= mysql.largest_packet:
                text = f"one of {len(rows):,} bytes, with max_allowed_packet of {mysql.largest_packet:,}"
                raise pymysql.err.OperationalError(_TOO_LARGE, text)
            with time_limit(session):
                mysql.write(begin + rows)

    def merge(self, session: Session) -> int:
        """Bring the staged rows into the table, and return the number of rows that were inserted or replaced."""
        mysql = cast(MySqlSession, session)
        if not self.key:
            return mysql.write(self.append)
        rows, removed, last_first = self.latest
        place = f"ROW_NUMBER() OVER (PARTITION BY {self.listed(self.key)} ORDER BY {last_first})"
        ranked = f"SELECT {ROW}, {removed} AS {REMOVED}, {place} AS place FROM {rows}"
        mysql.execute(f"DELETE FROM {_LATEST}")
        mysql.execute(f"INSERT INTO {_LATEST} (SELECT {ROW}, {REMOVED} FROM ({ranked}) AS ranked WHERE place = 1)")
        # in this order, so that a large table is read by its key: the server knows little of temporary tables
        staged = f"{_LATEST} AS latest STRAIGHT_JOIN {self.staged} AS staged ON staged.{ROW} = latest.{ROW}"
        keys = list(map(self.quoted, self.key))
        same = " AND ".join(f"kept.{name} = staged.{name}" for name in keys)
        found = f"{staged} STRAIGHT_JOIN {self.table} AS kept ON {same}"
        if self.mark is not None:
            mysql.execute(f"DELETE kept FROM {found} WHERE latest.{REMOVED}")
        replaced = 0
        if self.others:
            changes = ", ".join(f"kept.{name} = staged.{name}" for name in self.others)
            replaced = mysql.write(f"UPDATE {found} SET {changes} WHERE NOT latest.{REMOVED}")
        values = ", ".join(f"staged.{self.quoted(name)}" for name in self.columns)
        missing = f"NOT latest.{REMOVED} AND kept.{keys[0]} IS NULL"
        select = f"SELECT {values} FROM {staged} LEFT JOIN {self.table} AS kept ON {same} WHERE {missing}"
        order = ", ".join(f"staged.{name}" for name in keys)
        return replaced + mysql.write(
            f"INSERT INTO {self.table} ({self.listed(self.columns)}) {select} ORDER BY {order}"
        )

    @property
    def net(self) -> str:
        """Selects one of the same staged rows with the sum of their weights, if these do not cancel each other out."""
        key = self.listed(self.key)
        sums = f"SELECT {key}, MAX({ROW}) AS {ROW}, SUM({WEIGHT}) AS {WEIGHT} FROM {self.staged}"
        return f"{sums} GROUP BY {DIGEST}, {key} HAVING SUM({WEIGHT}) <> 0"


def joined(batches: Iterator[pa.RecordBatch], room: int) -> Iterator[bytes]:
    """Yield the rows of batches as lists for one INSERT each, of at most ``room`` bytes if they have several rows."""
    kept = bytearray()
    for batch in batches:
        for rows in _parts(*texts(batch), room):
            if kept and len(kept) + len(rows) > room:
                yield bytes(kept[:-1])  # without the last comma
                kept.clear()
            kept += rows
    if kept:
        yield bytes(kept[:-1])


def _parts(text: memoryview, ends: npt.NDArray[np.int64], room: int) -> Iterator[memoryview]:
    begin = first = 0
    while first < len(ends):
        first = max(int(np.searchsorted(ends, begin + room, "right")), first + 1)
        end = int(ends[first - 1])
        yield text[begin:end]
        begin = end
