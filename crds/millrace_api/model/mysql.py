"""MySQL and MariaDB: their servers, the table that results go to, and what is read as a static table."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.changes import FREE
from millrace_api.model.databases import DatabaseServerSpec, DatabaseSinkSpec, DatabaseSourceSpec, Servers
from millrace_api.model.externals import External, ExternalKind

PORT = 3306
"""Port of a server that names none."""


class MySqlServerSpec(DatabaseServerSpec):
    """How to reach a database of a MySQL or MariaDB server."""

    port: ClassVar[int] = PORT

    host: Annotated[Servers, External(ExternalKind.DATABASES, PORT), FREE] = Field(
        description=f"Server, host or host:port (default: {PORT}); of several, separated by commas, the "
        "first one that answers; for results, the one that accepts writes.",
        examples=["db.example.org"],
    )


class MySqlSourceSpec(MySqlServerSpec, DatabaseSourceSpec):
    """Reads a table, or the result of a query, of MySQL as a static table."""


class MySqlSinkSpec(MySqlServerSpec, DatabaseSinkSpec):
    """Replaces rows of a MySQL table by key, or appends to it; one transaction per batch."""
