"""MySQL and MariaDB as places for results: their tables, names and types, and what their errors mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pymysql
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from millrace_api.errors import MillraceError
from millrace_jobs.databases.connection import Session
from millrace_jobs.databases.mysql import MySqlSession, is_conflict, is_denied, mysql_problem, number_of
from millrace_jobs.sinks.databases.dialect import ColumnType, Dialect, FoundTable, Obstacle, TableColumn, TargetTable
from millrace_jobs.sinks.mysql.literals import TEXT, column_type, rows
from millrace_jobs.sinks.mysql.staging import MySqlStaging, quoted

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


class MySqlDialect(Dialect):
    """MySQL, 8.0 or later, and MariaDB, 10.6 or later."""

    error = pymysql.err.Error

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
        return ".".join(map(quoted, names))

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
            each[0]: _column(*each, collation=collation, nulls_are_now=not explicit)
            for each in session.execute(_COLUMNS, [schema, table]).fetchall()
        }
        indexes: dict[str, set[str | None]] = {}
        for index, column, prefix in session.execute(_UNIQUE, [schema, table]).fetchall():
            # of an expression there is no column, and the beginning of a text is not all of it
            indexes.setdefault(index, set()).add(column if prefix is None else None)
        unique = [frozenset(map(str, each)) for each in indexes.values() if None not in each]
        return FoundTable(schema, table, columns, unique, self._refusal(kind, engine, transactions, schema, table))

    def missing_rights(self, session: Session, table: FoundTable, wanted: Sequence[str]) -> list[str]:
        """Return nothing: rights may come from roles and patterns, so staging tries the statements instead."""
        return []

    def definition(self, session: Session, name: str, kind: ColumnType, *, is_key: bool) -> str:
        """Return a column for CREATE TABLE."""
        if not is_key:
            return f"{quoted(name)} {kind.name}"
        collation = _EXACT[cast(MySqlSession, session).is_mariadb]
        limited = {TEXT: f"varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4{collation}", "longblob": "varbinary(255)"}
        return f"{quoted(name)} {limited.get(kind.name, kind.name)} NOT NULL"

    def changed_type(self, name: str, type: str) -> str:
        """Return the part of ALTER TABLE that gives a column another type."""
        return f"MODIFY {quoted(name)} {type}"

    def without_null(self, column: TableColumn) -> str:
        """Return the part of ALTER TABLE that makes a column NOT NULL."""
        return f"MODIFY {quoted(column.name)} {column.staged} NOT NULL"

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

    def insert_if_missing(self, rest: str) -> str:
        """Return the statement that inserts a row, whose table and values are ``rest``, unless its key is there."""
        return f"INSERT IGNORE INTO {rest}"

    def encoded(self, results: DataFrame, columns: Sequence[str], mark: str | None) -> DataFrame:
        """Return the results as rows of an INSERT."""
        return rows(results, columns, mark)

    def staging(self, table: TargetTable, mark: str | None) -> MySqlStaging:
        """Return what stages the results for a table."""
        return MySqlStaging(table, mark)

    def _refusal(
        self, kind: str, engine: str | None, transactions: str | None, schema: str, table: str
    ) -> tuple[str, str] | None:
        if kind not in ("BASE TABLE", "SYSTEM VERSIONED"):
            return "is no table", "write the name of a table"
        if transactions != "YES":
            command = f"ALTER TABLE {self.quoted(schema, table)} ENGINE=InnoDB;"
            return f"is of the engine {engine}, which has no transactions, so a batch could be there twice", command
        return None


def _column(
    name: str,
    type: str,
    base: str,
    precision: int | None,
    scale: int | None,
    nullable: str,
    default: Any,
    extra: str,
    expression: str,
    charset: str | None,
    collation_name: str | None,
    *,
    collation: str,
    nulls_are_now: bool,
) -> TableColumn:
    """Return a column; ``collation`` is that of the server under which only equal texts are equal."""
    base = type if base in _DIGITS_IN_TYPE else f"{base} unsigned" if "unsigned" in type else base
    digits = (precision - (scale or 0), scale or 0) if base == "decimal" and precision is not None else None
    staged = type if charset is None else f"{type} CHARACTER SET {charset} COLLATE {collation_name}"
    not_null, generates = nullable == "NO", "auto_increment" in extra
    obstacle = key_obstacle = None
    if nulls_are_now and not_null and base.startswith("timestamp"):
        what = "is NOT NULL, so the server would write the current time for NULL"
        obstacle = Obstacle(what, f"MODIFY {quoted(name)} {type} NULL")
    if collation_name is not None and not collation_name.endswith(_EXACT):
        what = f"has the collation {collation_name}, under which texts that differ can be one key, and rows be lost"
        exact = f"{type} CHARACTER SET utf8mb4 COLLATE {collation} NOT NULL"
        key_obstacle = Obstacle(what, f"MODIFY {quoted(name)} {exact}")
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
