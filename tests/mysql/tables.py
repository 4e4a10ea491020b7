"""Tables of the server of a test as sources of queries."""

from __future__ import annotations

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
    spec = SourceSpec.model_validate(source(server, columns, [columns.split()[0]], **mysql))
    assert spec.mysql is not None
    found = MySqlTable("customers", spec.mysql, schema_of(spec)).read(None)
    return pa.Table.from_batches(list(found.records), schema_of(spec))  # type: ignore[arg-type]
