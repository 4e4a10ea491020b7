"""Databases: how to reach a server, the table that results go to, and what is read as a static table."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field

from millrace_api.model.base import Model, Rule, exactly_one
from millrace_api.model.changes import FREE
from millrace_api.model.secrets import SecretValue, Tls
from millrace_api.model.sink_kind import SinkKind
from millrace_api.model.values import ColumnName, Text, text

_SERVER = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?"
_NAME = r"[^.\"]{1,63}"

Servers = Annotated[
    str,
    *text(
        f"{_SERVER}( ?, ?{_SERVER})*",
        1024,
        "a database server",
        "write host or host:port, and several separated by commas, such as db-1.example.org,db-2.example.org:15432",
    ),
]
TableName = Annotated[
    str,
    *text(
        rf"{_NAME}(\.{_NAME})?",
        127,
        "the name of a table",
        "write table or schema.table, such as trips_by_cell or sales.trips_by_cell, without quotes",
    ),
]


class DatabaseServerSpec(Model):
    """How to reach a database of a server; each kind of server says which port is the default."""

    port: ClassVar[int]
    """Port of a server that names none."""

    host: Servers
    database: Text = Field(description="Database.", examples=["sales"])
    user: Annotated[Text, FREE] = Field(description="User name.", examples=["millrace"])
    password: Annotated[SecretValue | None, FREE] = Field(
        default=None, description="Password.", examples=["{env: DATABASE_PASSWORD}"]
    )
    tls: Annotated[Tls | None, FREE] = Field(
        default=None,
        description="Use TLS, and verify the server's certificate and name; default: TLS without verification where "
        "the server offers it.",
    )

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host, in lower case and without brackets, and port of each server."""
        return tuple(self._address(each.strip()) for each in self.host.split(","))

    def _address(self, server: str) -> tuple[str, int]:
        host, colon, port = server.rpartition(":") if not server.endswith("]") else (server, "", "")
        if not colon:
            host, port = server, str(self.port)
        return host.strip("[]").lower(), int(port)


class DatabaseSourceSpec(DatabaseServerSpec):
    """Reads a table, or the result of a query, as a static table."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("table", "query", hint="write one of them, such as table: sales.customers"),
    )

    table: TableName | None = Field(
        default=None,
        description="Table or view to read, table or schema.table; only the columns of schema are read.",
        examples=["sales.customers"],
    )
    query: Text | None = Field(
        default=None,
        description="Query of the database whose result is read, instead of a table; only the columns of schema are.",
        examples=["SELECT id, tier FROM customers WHERE active"],
    )


class DatabaseSinkSpec(SinkKind, DatabaseServerSpec):
    """Replaces rows of a table by key, or appends to it; one transaction per batch."""

    table: TableName = Field(
        description="Table for the results, table or schema.table; it has to exist.", examples=["trips_by_cell"]
    )
    key: tuple[ColumnName, ...] = Field(
        default=(),
        max_length=32,
        description="Columns of the table's primary key, or of a unique constraint: a result replaces the row with its "
        "key; default: none, and final results are appended.",
    )

    def is_table_of(self, other: Self) -> bool:
        """Return whether both name the same table: database and table are the same, and they share a server."""
        same = (self.database, self.table) == (other.database, other.table)
        return same and not set(self.addresses).isdisjoint(other.addresses)

    def is_place_of(self, other: SinkKind) -> bool:
        """Return whether both write to the same table."""
        return isinstance(other, type(self)) and self.is_table_of(other)
