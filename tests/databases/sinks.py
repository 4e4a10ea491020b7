"""Sinks on the database server of a test, and batches that are written to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame

from lab import mariadb, postgres
from lab.database_server import DatabaseServer
from lab.mariadb import MariaDbServer
from lab.postgres import PostgresServer
from millrace_api.model.mysql import MySqlSinkSpec
from millrace_api.model.postgres import PostgresSinkSpec
from millrace_jobs.databases.mysql import MySqlConnection
from millrace_jobs.databases.postgres import PostgresConnection
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.databases.dialect import Dialect
from millrace_jobs.sinks.databases.sink import DatabaseSink
from millrace_jobs.sinks.mysql.dialect import MySqlDialect
from millrace_jobs.sinks.postgres.dialect import PostgresDialect

assert mariadb.PASSWORD == postgres.PASSWORD
PASSWORD_VARIABLE = "MILLRACE_TEST_PASSWORD"
os.environ[PASSWORD_VARIABLE] = postgres.PASSWORD

FRESH = LastBatch(None, None)
"""The last batches of a checkpoint that has none."""

Server = PostgresServer | MariaDbServer
Batch = Callable[[str], DataFrame]


def login(server: DatabaseServer) -> dict[str, Any]:
    """Return the address and the login of a server, as fields of a query."""
    owner, database = (
        (mariadb.OWNER, mariadb.DATABASE) if isinstance(server, MariaDbServer) else (postgres.OWNER, postgres.DATABASE)
    )
    return {"host": server.host, "database": database, "user": owner, "password": {"env": PASSWORD_VARIABLE}}


def spec(server: DatabaseServer, table: str, **fields: Any) -> dict[str, Any]:
    """Return ``spec.sink.postgres`` or ``spec.sink.mysql`` for a table on a server."""
    return login(server) | {"table": table} | fields


def dialect(server: DatabaseServer, table: str, **fields: Any) -> Dialect:
    """Return the dialect of a server, with a connection to it."""
    given = spec(server, table, **fields)
    if isinstance(server, MariaDbServer):
        return MySqlDialect(MySqlConnection.of(MySqlSinkSpec.model_validate(given)))
    return PostgresDialect(PostgresConnection.of(PostgresSinkSpec.model_validate(given)))


def open_sink(
    server: DatabaseServer,
    table: str,
    results: DataFrame,
    key: Sequence[str] = (),
    *,
    checkpoint: str = "a-checkpoint",
    query: str = "counts",
    keys: ResultKeys | None = None,
    hidden: Sequence[str] = (),
    **fields: Any,
) -> DatabaseSink:
    """Return a sink for results with these columns, of which ``hidden`` are none of the table's."""
    columns = results.drop(*hidden).schema
    chosen = keys or ResultKeys(tuple(key) or None)
    return DatabaseSink(dialect(server, table, **fields), table, chosen, columns, query, checkpoint)


def write(sink: DatabaseSink, results: DataFrame, number: int) -> int:
    """Write a batch, and return the number of rows."""
    return sink.write(sink.shape(results), ResultBatch(number, 1, 0))


def rows(server: Server, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table in the order of their columns."""
    return sorted(server.execute(f"SELECT * FROM {table}"), key=repr)
