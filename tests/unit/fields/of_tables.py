"""Probes of sources that stream the rows of tables of a lakehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from millrace_api.errors import MillraceError
from millrace_api.model.iceberg import IcebergCatalogSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.lakehouse.iceberg_catalog import rest_secrets, rest_settings
from millrace_jobs.postgres.connection import PostgresConnection
from millrace_jobs.secrets import Secret
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.source_factory import open_source

from .documents import query
from .of_kafka import ENV, secret_probes
from .of_sinks import server_probes
from .probe import ABSENT, Document, Probe, probes, written

SOURCE = "spec.sources.*"
COLUMNS = {"schema": "city STRING, n INT"}
COUNT = {"query": {"sql": "SELECT count(*) AS k FROM trips"}}
DELTA = query({"delta": {"path": "cities-delta"}} | COLUMNS, **COUNT)
CATALOG = {"file": "cities.db"}
ICEBERG = query({"iceberg": {"catalog": CATALOG, "table": "a.cities"}} | COLUMNS, **COUNT)
REST = {"uri": "https://catalog", "clientId": "a", "clientSecret": ENV[0]}
SERVER = {"host": "db", "database": "lake", "user": "millrace"}


OSLO, ROME = (pa.table({"city": [city], "n": pa.array([n], pa.int32())}) for city, n in (("Oslo", 1), ("Rome", 2)))


def write_tables() -> None:
    """Write the tables of the documents, unless they are there."""
    if Path("cities.db").exists():
        return
    for content in (OSLO, ROME):
        write_deltalake("cities-delta", content, mode="append")
    write_deltalake("others-delta", ROME)
    for name, contents in (("cities.db", [OSLO, ROME]), ("others.db", [ROME])):
        catalog = catalog_in(name)
        catalog.create_namespace("a")
        for table, rows in (("a.cities", contents), ("a.others", [ROME, ROME])):
            created = catalog.create_table(table, OSLO.schema)
            for each in rows:
                created.append(each)


def catalog_in(name: str) -> SqlCatalog:
    return SqlCatalog(
        "millrace", uri=f"sqlite:///{Path(name).absolute()}", warehouse=f"file://{Path.cwd()}/lake-{name}"
    )


def streamed(asked: StreamQuery) -> object:
    """Return all rows that a source streams, batch by batch."""
    write_tables()
    with TemporaryDirectory() as folder:
        return list(_batches(open_source("trips", asked.spec.sources["trips"], Path(folder), Path(folder))))


def changed(asked: StreamQuery) -> object:
    """Return what is streamed of a table after a commit that removes rows."""
    source = asked.spec.sources["trips"]
    write_deltalake("changed-delta", pa.concat_tables([OSLO, ROME]), mode="overwrite")
    write_tables()
    catalog = catalog_in("cities.db")
    if catalog.table_exists("a.changed"):
        catalog.drop_table("a.changed")
    catalog.create_table("a.changed", OSLO.schema).append(pa.concat_tables([OSLO, ROME]))
    with TemporaryDirectory() as folder:
        opened = open_source("trips", source, Path(folder), Path(folder))
        opened.initial()
        DeltaTable("changed-delta").delete("n = 1")
        write_deltalake("changed-delta", ROME, mode="append")
        catalog.load_table("a.changed").delete("n = 1")
        catalog.load_table("a.changed").append(ROME)
        try:
            return list(_batches(opened))
        except MillraceError:
            return "refused"


def _batches(source: Source) -> Iterator[list[object]]:
    at = source.initial()
    while (end := source.latest(at, everything=True)) != at:
        pieces = source.slices(at, end, 1)
        yield [
            item.to_pylist() for piece in pieces for item in source.read(piece, "0") if isinstance(item, pa.RecordBatch)
        ]
        at = end


def of_catalog(place: str, base: Document) -> Iterator[Probe]:
    """Yield the probes of the catalog; none is asked but one in a file."""

    def catalog(asked: StreamQuery) -> IcebergCatalogSpec:
        found = asked.spec.sources["trips"].iceberg
        assert found is not None
        return found.catalog

    def rest(asked: StreamQuery) -> object:
        found = catalog(asked).rest
        return None if found is None else rest_settings(found)

    def references(asked: StreamQuery) -> Iterator[tuple[str, Secret]]:
        found = catalog(asked).rest
        yield from () if found is None else rest_secrets(found).items()

    def connection(asked: StreamQuery) -> PostgresConnection:
        found = catalog(asked).postgres
        assert found is not None
        return PostgresConnection.of(found)

    at = f"{place}.catalog.rest"
    none = written(base, f"{place}.catalog", {})
    by_rest = written(base, f"{place}.catalog", {"rest": REST})
    in_postgres = written(base, f"{place}.catalog", {"postgres": SERVER})
    yield Probe(at, none, (ABSENT, REST), rest)
    yield Probe(f"{place}.catalog.postgres", none, (ABSENT, SERVER), connection)
    yield Probe(f"{place}.catalog.file", base, ("cities.db", "others.db"), streamed)
    yield from probes(
        by_rest,
        rest,
        at,
        uri=("https://catalog", "https://catalog/iceberg"),
        warehouse=(ABSENT, "lake"),
        clientId=("a", "b"),
        tokenUri=(ABSENT, "https://login/token"),
        scope=(ABSENT, "all"),
    )
    with_token = written(base, f"{place}.catalog", {"rest": {"uri": "https://catalog", "token": ENV[0]}})
    secrets = [(f"{at}.token", with_token), (f"{at}.clientSecret", by_rest)]
    yield from secret_probes(secrets, rest, references)
    yield Probe(f"{at}.clientSecret", by_rest, (ABSENT, *ENV), rest)
    bare = written(base, f"{place}.catalog", {"rest": {"uri": "https://catalog"}})
    yield Probe(f"{at}.token", bare, (ABSENT, *ENV), rest)
    names = ("millrace", "lake")
    yield Probe(f"{place}.catalog.postgres.name", in_postgres, names, lambda asked: catalog(asked).postgres.name)
    yield from server_probes(f"{place}.catalog.postgres", in_postgres, connection)


def of_tables() -> Iterator[Probe]:
    """Yield the probes of Delta and Iceberg tables."""
    at = f"{SOURCE}.delta"
    none = query(COLUMNS, **COUNT)
    yield Probe(at, none, (ABSENT, {"path": "cities-delta"}), streamed)
    yield from probes(DELTA, streamed, at, path=("cities-delta", "others-delta"), startFrom=("Table", "Latest"))
    added = written(DELTA, f"{at}.startingVersion", 0)
    yield from probes(added, streamed, at, startingVersion=(0, 1), maxFilesPerBatch=(ABSENT, 1))
    late = query({"delta": {"path": "changed-delta", "startFrom": "Latest"}} | COLUMNS, **COUNT)
    yield Probe(f"{at}.otherCommits", late, ("Refuse", "Skip"), changed)
    at = f"{SOURCE}.iceberg"
    yield Probe(at, none, (ABSENT, {"catalog": CATALOG, "table": "a.cities"}), streamed)
    yield from probes(
        ICEBERG,
        streamed,
        at,
        table=("a.cities", "a.others"),
        location=(ABSENT, "elsewhere"),
        startFrom=("Table", "Latest"),
    )
    late = query({"iceberg": {"catalog": CATALOG, "table": "a.changed", "startFrom": "Latest"}} | COLUMNS, **COUNT)
    yield Probe(f"{at}.otherCommits", late, ("Refuse", "Skip"), changed)
    yield from probes(ICEBERG, streamed, at, maxFilesPerBatch=(ABSENT, 1), startingSnapshot=(ABSENT, 7))
    yield Probe(f"{at}.catalog", ICEBERG, (CATALOG, {"file": "others.db"}), streamed)
    yield from of_catalog(at, ICEBERG)
