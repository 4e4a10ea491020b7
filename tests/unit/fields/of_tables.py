"""Probes of sources that are tables of a database or a lakehouse, and of how static tables are refreshed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace_api.errors import MillraceError
from millrace_api.model.iceberg import IcebergCatalogSpec
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.databases.connection import DatabaseConnection
from millrace_jobs.queries.execution import source_step
from millrace_jobs.run.table_refresh import RefreshedTables
from millrace_jobs.sources.connector import open_table
from millrace_jobs.sources.database_table import DatabaseTable
from millrace_jobs.sources.lakehouse.delta_snapshot import DeltaSnapshot
from millrace_jobs.sources.lakehouse.iceberg_snapshot import IcebergSnapshot
from millrace_jobs.sources.mysql.table import MySqlTable
from millrace_jobs.sources.postgres.table import PostgresTable

from .documents import FILES, query
from .of_sinks import REST, catalog_probes, server_probes
from .probe import ABSENT, Document, Probe, probes, written

SOURCE = "spec.sources.*"
DATABASE = {"host": "db", "database": "sales", "user": "millrace", "table": "cities"}
ICEBERG = {"catalog": {"rest": REST}, "table": "a.cities"}
KINDS = {"postgres": DATABASE, "mysql": DATABASE, "delta": {"path": "cities"}, "iceberg": ICEBERG}
ROWS = {"schema": "city STRING, n INT", "table": {"keys": ["n"], "static": True}}


def with_table(table: Document) -> Document:
    """Return a query with this table as its first source."""
    found = query(FILES)
    found["spec"]["sources"] = {"cities": table} | found["spec"]["sources"]
    return found


def spec_of(asked: StreamQuery) -> SourceSpec:
    """Return the table of a query."""
    return asked.spec.sources["cities"]


def described(asked: StreamQuery) -> object:
    """Return what a source reads; nothing is asked."""
    opened = open_table("cities", spec_of(asked), Path())
    if isinstance(opened, PostgresTable):
        return opened._relation.as_string()
    if isinstance(opened, MySqlTable):
        return opened._relation
    if isinstance(opened, DeltaSnapshot):
        return str(opened._place)
    assert isinstance(opened, IcebergSnapshot)
    return opened._spec.table, opened._spec.location, opened._spec.catalog


def connection(asked: StreamQuery) -> DatabaseConnection:
    """Return the connection of a table in a database."""
    opened = open_table("cities", spec_of(asked), Path())
    assert isinstance(opened, DatabaseTable)
    return opened._connection


def catalog(asked: StreamQuery) -> IcebergCatalogSpec:
    """Return the catalog of an Iceberg table."""
    opened = open_table("cities", spec_of(asked), Path())
    assert isinstance(opened, IcebergSnapshot)
    return opened._spec.catalog


def step(asked: StreamQuery) -> object:
    """Return what ``explain`` says of the table, and whether the checkpoint has its contents."""
    return source_step("cities", spec_of(asked)), spec_of(asked).has_contents


def contents(asked: StreamQuery) -> object:
    """Return how many rows the table has, or why it has none."""
    with TemporaryDirectory() as folder:
        tables = RefreshedTables(asked.spec, Path(folder, "tables"), Path(folder), dict)
        tables.begin()
        try:
            tables.wait(lambda: False)
        except MillraceError as error:
            return str(error)
        finally:
            tables.close()
        return {name: state.rows for name, state in tables.states().items()}


def of_tables() -> Iterator[Probe]:
    """Yield the probes of all tables that are read as a whole."""
    documents = {kind: with_table(ROWS | {kind: given}) for kind, given in KINDS.items()}
    none = with_table(ROWS)
    yield from (Probe(f"{SOURCE}.{kind}", none, (ABSENT, given), described) for kind, given in KINDS.items())
    for kind in ("postgres", "mysql"):
        place = f"{SOURCE}.{kind}"
        yield from server_probes(place, documents[kind], connection)
        yield Probe(f"{place}.table", documents[kind], ("cities", "sales.cities"), described)
        neither = written(documents[kind], f"{place}.table", ABSENT)
        yield Probe(f"{place}.query", neither, ("SELECT 'Rome' AS city, 1 AS n", "TABLE cities"), described)
    yield Probe(f"{SOURCE}.delta.path", documents["delta"], ("cities", "s3a://lake/cities"), described)
    place = f"{SOURCE}.iceberg"
    yield from probes(
        documents["iceberg"],
        described,
        place,
        table=("a.cities", "a.b.cities"),
        location=(ABSENT, "cities", "s3a://lake/cities"),
    )
    yield from catalog_probes(place, documents["iceberg"], described, catalog)
    rows = {"files": {"path": "cities.csv", "format": "csv"}, "schema": "n INT"}
    files = with_table(rows | {"table": {"keys": ["n"], "static": True, "refreshEvery": "1h"}})
    place = f"{SOURCE}.table"
    yield Probe(f"{place}.refreshEvery", files, (ABSENT, "1h", "5m"), step)
    yield Probe(f"{place}.maxRows", files, (ABSENT, 2), contents)
    many = written(files, f"{SOURCE}.files.path", "numbers.csv")
    yield Probe(f"{place}.maxSize", many, (ABSENT, "1k"), contents)
