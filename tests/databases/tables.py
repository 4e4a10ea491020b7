"""Tables of the server of a test as sources of queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lab.mariadb import MariaDbServer
from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.connector import schema_of
from millrace_jobs.sources.mysql.table import MySqlTable
from millrace_jobs.sources.postgres.table import PostgresTable

from .sinks import Server, login


def source(server: Server, columns: str, keys: list[str], **fields: Any) -> dict[str, Any]:
    """Return a source that reads a table or a query once; ``fields`` are those of its kind of database."""
    kind = "mysql" if isinstance(server, MariaDbServer) else "postgres"
    return {kind: login(server) | fields, "schema": columns, "table": {"keys": keys, "static": True}}


def read(server: Server, columns: str, **fields: Any) -> pa.Table:
    """Return the rows of a table or a query."""
    schema, records = begin_to_read(server, columns, **fields)
    return pa.Table.from_batches(list(records), schema)


def begin_to_read(server: Server, columns: str, **fields: Any) -> tuple[pa.Schema, Iterator[Any]]:
    """Return the columns of a table or a query, and its rows, which are read as they are taken."""
    spec = SourceSpec.model_validate(source(server, columns, [columns.split()[0]], **fields))
    schema = schema_of(spec)
    if spec.mysql is not None:
        return schema, MySqlTable("customers", spec.mysql, schema).read(None).records
    assert spec.postgres is not None
    return schema, PostgresTable("customers", spec.postgres, schema).read(None).records
