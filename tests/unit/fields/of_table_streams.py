"""Probes of sources that stream the rows of tables of a lakehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.connector import open_source

from .documents import query
from .probe import ABSENT, Probe, probes, written

SOURCE = "spec.sources.*"
COLUMNS = {"schema": "city STRING, n INT"}
COUNT = {"query": {"sql": "SELECT count(*) AS k FROM trips"}}
DELTA = query({"delta": {"path": "cities-delta"}} | COLUMNS, **COUNT)
CATALOG = {"file": "cities.db"}
ICEBERG = query({"iceberg": {"catalog": CATALOG, "table": "a.cities"}} | COLUMNS, **COUNT)


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


def streamed_from(asked: StreamQuery) -> object:
    """Return all rows from a snapshot of an Iceberg table on, which the document names by its place in the history."""
    write_tables()
    source = asked.spec.sources["trips"]
    assert source.iceberg is not None
    number = catalog_in("cities.db").load_table("a.cities").snapshots()[source.iceberg.starting_snapshot].snapshot_id
    at_snapshot = source.iceberg.model_copy(update={"starting_snapshot": number})
    sources = {"trips": source.model_copy(update={"iceberg": at_snapshot})}
    return streamed(asked.model_copy(update={"spec": asked.spec.model_copy(update={"sources": sources})}))


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


def of_table_streams() -> Iterator[Probe]:
    """Yield the probes of Delta and Iceberg tables as streams."""
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
    yield from probes(ICEBERG, streamed, at, maxFilesPerBatch=(ABSENT, 1))
    yield Probe(f"{at}.startingSnapshot", ICEBERG, (0, 1), streamed_from)
    yield Probe(f"{at}.catalog.file", ICEBERG, ("cities.db", "others.db"), streamed)
