"""Tables of the server of a test as sources of queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from databases.sinks import login
from lab.mariadb import MariaDbServer
from millrace_api.model.sources import SourceSpec
from millrace_jobs.sources.mysql.table import MySqlTable
from millrace_jobs.sources.source_factory import schema_of


def source(server: MariaDbServer, columns: str, keys: list[str], **mysql: Any) -> dict[str, Any]:
    """Return a source that reads a table or a query once."""
    return {"mysql": login(server) | mysql, "schema": columns, "table": {"keys": keys, "static": True}}


def read(server: MariaDbServer, columns: str, **mysql: Any) -> pa.Table:
    """Return the rows of a table or a query."""
    schema, records = begin_to_read(server, columns, **mysql)
    return pa.Table.from_batches(list(records), schema)


def begin_to_read(server: MariaDbServer, columns: str, **mysql: Any) -> tuple[pa.Schema, Iterator[Any]]:
    """Return the columns of a table or a query, and its rows, which are read as they are taken."""
    spec = SourceSpec.model_validate(source(server, columns, [columns.split()[0]], **mysql))
    assert spec.mysql is not None
    schema = schema_of(spec)
    return schema, MySqlTable("customers", spec.mysql, schema).read(None).records
