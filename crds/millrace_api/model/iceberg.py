"""Iceberg tables, as sinks and sources: their catalog, their name there, and where their files are."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, at_most_one, exactly_one
from millrace_api.model.changes import FREE, START
from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.lakehouse import OBJECTS, LakehouseSinkSpec, LakehouseSourceSpec, TablePath
from millrace_api.model.postgres import PostgresServerSpec
from millrace_api.model.secrets import SecretValue
from millrace_api.model.sink_kind import ResultFiles, SinkKind
from millrace_api.model.values import Path, Text, text

CatalogUrl = Annotated[
    str,
    *text(
        r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~%/-]*)?",
        1024,
        "the URL of a catalog",
        "write scheme, host and path, such as https://catalog.example.org/iceberg",
    ),
]
MetastoreUri = Annotated[
    str,
    *text(
        r"thrift://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}",
        1024,
        "the URI of a Hive metastore",
        "write thrift, host and port, such as thrift://metastore.example.org:9083",
    ),
]
TableIdentifier = Annotated[
    str,
    *text(
        r"[^.\s/\"`]{1,128}(?:\.[^.\s/\"`]{1,128}){1,7}",
        512,
        "a table in a namespace",
        "write namespace.table, such as sales.trips",
    ),
]

_METASTORE_TABLE = "[A-Za-z0-9_]+[.][A-Za-z0-9_]+"
"""A table of a Hive metastore, whose databases are in no other ones."""

_Location = Annotated[
    TablePath | None,
    External(ExternalKind.TABLES),
    Field(
        description="Folder or s3a:// prefix of the table; one that exists has to be there. Default: where the catalog "
        "has it, or puts it.",
        examples=["s3a://lake/trips"],
    ),
]
SnapshotId = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]


class RestCatalogSpec(Model):
    """How to reach a catalog that speaks Iceberg's REST protocol."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "clientId and clientSecret belong together",
            "write both, or neither",
            ("client_id", "client_secret"),
            "has(self.clientId) == has(self.clientSecret)",
            lambda rest: (rest.client_id is None) == (rest.client_secret is None),
        ),
        Rule(
            "a token and a client's login exclude each other",
            "write token, or clientId and clientSecret",
            ("token", "client_id"),
            "!(has(self.token) && has(self.clientId))",
            lambda rest: rest.token is None or rest.client_id is None,
        ),
    )

    uri: Annotated[CatalogUrl, External(ExternalKind.CATALOGS)] = Field(
        description="URL of the catalog.", examples=["https://catalog.example.org/iceberg"]
    )
    warehouse: Text | None = Field(
        default=None, description="Warehouse, for catalogs that have several.", examples=["lake"]
    )
    token: Annotated[SecretValue | None, FREE] = Field(default=None, description="Token that each request bears.")
    client_id: Annotated[Text | None, FREE] = Field(
        default=None, description="Client of OAuth 2, which gets tokens by its login."
    )
    client_secret: Annotated[SecretValue | None, FREE] = Field(default=None, description="Secret of the client.")
    token_uri: Annotated[CatalogUrl | None, External(ExternalKind.CATALOGS), FREE] = Field(
        default=None, description="URL that the client gets its tokens from; default: the catalog's own."
    )
    scope: Annotated[Text | None, FREE] = Field(
        default=None, description="Scope of the client's tokens; default: catalog."
    )


class PostgresCatalogSpec(PostgresServerSpec):
    """How to reach a catalog in PostgreSQL, in the tables that Iceberg's JDBC catalog has, too."""

    name: Text = Field(default="millrace", description="Name of the catalog in its tables.", examples=["lake"])


class HiveCatalogSpec(Model):
    """How to reach a Hive metastore, by Thrift without a login."""

    uri: Annotated[MetastoreUri, External(ExternalKind.CATALOGS)] = Field(
        description="URI of the metastore. One that asks for a login (SASL, Kerberos) or TLS is not supported.",
        examples=["thrift://metastore.example.org:9083"],
    )


class IcebergCatalogSpec(Model):
    """Where the current version of a table is registered."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("rest", "hive", "postgres", "file", hint="write one kind, such as rest: {uri: ...}"),
    )

    rest: RestCatalogSpec | None = Field(default=None, description="A catalog that speaks Iceberg's REST protocol.")
    hive: HiveCatalogSpec | None = Field(default=None, description="A Hive metastore.")
    postgres: PostgresCatalogSpec | None = Field(default=None, description="A catalog in PostgreSQL.")
    file: Annotated[Path | None, External(ExternalKind.FILES)] = Field(
        default=None,
        description="A catalog in a SQLite file, for one machine; a sink creates it if it does not exist.",
        examples=["lake/catalog.db"],
    )

    @property
    def has_places(self) -> bool:
        """Whether the catalog knows a place for a new table."""
        return self.rest is not None or self.hive is not None


class IcebergTableSpec(Model):
    """Where an Iceberg table is registered, and where its files are."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a Hive metastore has no such table",
            "write database.table, each of letters, digits and _, such as sales.trips",
            ("table",),
            f"!has(self.catalog.hive) || self.table.matches('^{_METASTORE_TABLE}$')",
            lambda of: of.catalog.hive is None or re.fullmatch(_METASTORE_TABLE, of.table) is not None,
        ),
    )

    catalog: IcebergCatalogSpec = Field(description="Catalog of the table.")
    table: TableIdentifier = Field(
        description="The table, namespace.table; a sink creates it if it does not exist.", examples=["sales.trips"]
    )
    location: _Location = None

    @property
    def namespace(self) -> tuple[str, ...]:
        """The namespace of the table."""
        return tuple(self.table.split(".")[:-1])

    @property
    def is_local(self) -> bool:
        """Whether the table is known to be in a folder."""
        return self.location is not None and not self.location.startswith(OBJECTS)

    @property
    def _name(self) -> str:
        return self.table if self.catalog.hive is None else self.table.lower()

    def is_table_of(self, other: IcebergTableSpec) -> bool:
        """Return whether both name the same table."""
        if self._name == other._name and _catalog(self.catalog) == _catalog(other.catalog):
            return True
        return self.location is not None and self.location.rstrip("/") == (other.location or "").rstrip("/")


class IcebergSourceSpec(IcebergTableSpec, LakehouseSourceSpec):
    """Reads an Iceberg table and the rows that are added to it; or, as a static table, its current snapshot."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *IcebergTableSpec.rules,
        at_most_one("start_from", "starting_snapshot", hint="keep one of them, or none to start with the whole table"),
    )

    location: Annotated[_Location, FREE] = None
    starting_snapshot: Annotated[SnapshotId | None, START] = Field(
        default=None,
        description="Snapshot whose added rows are the first ones that a new query reads.",
        examples=[3051729675574597004],
    )

    @property
    def streams(self) -> bool:
        """Whether a field is set that only a stream has."""
        return super().streams or self.starting_snapshot is not None


class IcebergSinkSpec(LakehouseSinkSpec, IcebergTableSpec):
    """Appends to an Iceberg table, or replaces its rows by key; one commit per batch."""

    @property
    def result_files(self) -> ResultFiles | None:
        """The files of the table, of which the first is named as far as it is known; None without a location."""
        if self.location is None:
            return None
        return ResultFiles("location", self.location, f"{self.location}/data/batch-0000000000-.parquet")

    @property
    def catalog_table(self) -> str:
        """The name of the table in its catalog."""
        return self.table

    def is_place_of(self, other: SinkKind) -> bool:
        """Return whether both write to the same table."""
        return isinstance(other, IcebergSinkSpec) and self.is_table_of(other)


def _catalog(spec: IcebergCatalogSpec) -> object:
    if spec.postgres is not None:
        return spec.postgres.addresses, spec.postgres.database, spec.postgres.name
    if spec.rest is not None:
        return spec.rest.uri.rstrip("/").lower(), spec.rest.warehouse
    if spec.hive is not None:
        return spec.hive.uri.lower()
    return spec.file
