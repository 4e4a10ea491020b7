"""Tables of the server of a test as sources of queries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from databases.sinks import PASSWORD_VARIABLE
from lab.postgres import DATABASE, OWNER, PostgresServer
from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.postgres.table import PostgresTable
from millrace_jobs.sources.source_factory import schema_of


def source(server: PostgresServer, columns: str, keys: list[str], **postgres: Any) -> dict[str, Any]:
    """Return a source that reads a table or a query once."""
    login = {"host": server.host, "database": DATABASE, "user": OWNER, "password": {"env": PASSWORD_VARIABLE}}
    return {"postgres": login | postgres, "schema": columns, "table": {"keys": keys, "static": True}}


def read(server: PostgresServer, columns: str, **postgres: Any) -> pa.Table:
    """Return the rows of a table or a query."""
    spec = SourceSpec.model_validate(source(server, columns, [columns.split()[0]], **postgres))
    assert spec.postgres is not None
    found = PostgresTable("customers", spec.postgres, schema_of(spec)).read(None)
    return pa.Table.from_batches(list(found.records), schema_of(spec))  # type: ignore[arg-type]
