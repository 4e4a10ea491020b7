"""Sinks on the server of a test, and batches that are written to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame

from lab.postgres import DATABASE, OWNER, PASSWORD, PostgresServer
from millrace_api.model.postgres import PostgresSinkSpec
from millrace_jobs.postgres.connection import PostgresConnection
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.postgres.sink import PostgresSink

PASSWORD_VARIABLE = "MILLRACE_TEST_PASSWORD"
os.environ[PASSWORD_VARIABLE] = PASSWORD

FRESH = LastBatch(None, None)
"""The last batches of a checkpoint that has none."""


def spec(server: PostgresServer, table: str, **fields: Any) -> dict[str, Any]:
    """Return ``spec.sink.postgres`` for a table on a server."""
    login = {"user": OWNER, "password": {"env": PASSWORD_VARIABLE}}
    return {"host": server.host, "database": DATABASE, "table": table, **login, **fields}


def open_sink(
    server: PostgresServer,
    table: str,
    results: DataFrame,
    key: Sequence[str] = (),
    *,
    checkpoint: str = "a-checkpoint",
    query: str = "counts",
    keys: ResultKeys | None = None,
    hidden: Sequence[str] = (),
    **fields: Any,
) -> PostgresSink:
    """Return a sink for results with these columns, of which ``hidden`` are none of the table's."""
    connection = PostgresConnection.of(PostgresSinkSpec.model_validate(spec(server, table, **fields)))
    columns = results.drop(*hidden).schema
    return PostgresSink(connection, table, keys or ResultKeys(tuple(key) or None), columns, query, checkpoint)


def write(sink: PostgresSink, results: DataFrame, number: int) -> int:
    """Write a batch, and return the number of rows."""
    return sink.write(sink.shape(results), ResultBatch(number, 1, 0))


def rows(server: PostgresServer, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table in the order of their columns."""
    return sorted(server.execute(f"SELECT * FROM {table}"), key=repr)


Batch = Callable[[str], DataFrame]
