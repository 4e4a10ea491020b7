"""Probes of the sources other than Kafka: what records they yield, how many are due, and when."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.queries.reading import watermark_of
from millrace_jobs.run.inputs import open_sources, read_static_tables
from millrace_jobs.sources.base import Position, Rejected, Source
from millrace_jobs.sources.connector import open_source
from millrace_jobs.sources.generated.rows import GeneratedSource
from millrace_jobs.sources.replay.connector import ReplaySource

from .documents import COLUMNS, FILES, query
from .probe import ABSENT, Probe, probes, written

SOURCE = "spec.sources.*"
DEAD = ("dead", "graves")
"""Folders of dead letters."""


def records(asked: StreamQuery) -> object:
    """Return all records of the source, those that were left out, and the dead letters."""
    with TemporaryDirectory() as folder:
        source = _opened(asked, folder)
        start = source.initial()
        found = list(_read(source, start, source.latest(start, everything=True)))
    letters = [(path.as_posix(), path.read_text()) for name in DEAD for path in sorted(Path(name).glob("*"))]
    for name in DEAD:
        shutil.rmtree(name, ignore_errors=True)
    return str(source.schema), found, letters


def records_or_failure(asked: StreamQuery) -> object:
    """Return the records, or how the query fails at one of them."""
    try:
        return records(asked)
    except MillraceError as error:
        return str(error)


def first_batch(asked: StreamQuery) -> object:
    """Return how far the first batch goes."""
    with TemporaryDirectory() as folder:
        source = _opened(asked, folder)
        return source.latest(source.initial(), everything=True)


def file_order(asked: StreamQuery) -> object:
    """Return the names of the files of the first batch in their order, all but the first by name written earlier."""
    for age, path in enumerate(sorted(Path().glob("*s.csv"))):
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    with TemporaryDirectory() as folder:
        source = _opened(asked, folder)
        end = source.latest(source.initial(), everything=True)
        return [piece.path for found in source.slices(source.initial(), end, 1) for piece in found.pieces]


def due(asked: StreamQuery) -> object:
    """Return how many records are due at a few times, in seconds after the start."""
    with TemporaryDirectory() as folder:
        source = _opened(asked, folder)
        assert isinstance(source, ReplaySource | GeneratedSource)
        times = itertools.chain([0.0], itertools.cycle([5.0, 20.0, 45.0]))
        source._clock = lambda: next(times)
        return [source.latest(source.initial(), everything=False)["row"] for _ in range(3)]


def generated(asked: StreamQuery) -> object:
    """Return the first records of a source that generates them, with their times since the start."""
    with TemporaryDirectory() as folder:
        source = _opened(asked, folder)
    return list(_read(source, {"row": 0, "epoch": 0}, {"row": 300, "epoch": 0}))


def static_rows(asked: StreamQuery) -> object:
    """Return the rows of the static tables, and the names of the sources that stream."""
    with TemporaryDirectory() as folder:
        tables = read_static_tables(asked.spec, Path(folder), print)
        streams = open_sources(asked.spec, Path(folder, "state"), Path(folder))
        return {name: rows.to_pylist() for name, rows in tables.items()}, sorted(streams)


def watermark(asked: StreamQuery) -> object:
    """Return the event-time column and the delay that Spark gets."""
    return watermark_of(asked.spec, "trips")


def _opened(asked: StreamQuery, folder: str) -> Source:
    return open_source("trips", asked.spec.sources["trips"], Path(folder, "state"), Path(folder, "cache"))


def _read(source: Source, start: Position, end: Position) -> Iterator[object]:
    for piece in source.slices(start, end, 1):
        for item in source.read(piece, "0"):
            assert isinstance(item, pa.RecordBatch | Rejected)
            yield item if isinstance(item, Rejected) else item.to_pylist()


REPLAY = {
    "replay": {"path": "cities.csv", "format": "csv", "timeColumn": "at"},
    "schema": COLUMNS,
    "timestampFormat": "seconds",
}
BARE = {"schema": COLUMNS, "timestampFormat": "seconds"}
COUNT = {"query": {"sql": "SELECT count(*) AS k FROM trips"}}
RATE = query({"rate": {"recordsPerSecond": 10.0, "keys": 50, "skew": 1.0}}, **COUNT)
NEXMARK = query({"nexmark": {"recordsPerSecond": 500.0, "skew": 1.0}}, **COUNT)
BAD = query(FILES | {"files": {"path": "bad.csv", "format": "csv"}, "corruptRecords": {"policy": "Drop"}})
LETTERS = query(FILES | {"files": {"path": "bad.csv", "format": "csv"},
                         "corruptRecords": {"policy": "DeadLetter", "path": "dead"}})  # fmt: skip
HERE = __name__
PYTHON = {"python": {"read": f"{HERE}:Numbers", "options": {"step": 2}}, "schema": "n INT"}
LOOKED_UP = {"files": {"path": "cities.csv", "format": "csv"}, "schema": COLUMNS, "timestampFormat": "seconds"}
STATIC = query(FILES)
STATIC["spec"]["sources"] = {"cities": LOOKED_UP | {"table": {"keys": ["city", "n"], "static": True}}} | STATIC["spec"][
    "sources"
]


class Numbers:
    """A hundred multiples of a number."""

    def __init__(self, step: int) -> None:
        self._step = step

    def latest(self) -> int:
        """Return the offset behind the last one."""
        return 100

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield those with these offsets."""
        yield pa.RecordBatch.from_pydict({"n": range(start * self._step, end * self._step, self._step)})


class NegativeNumbers(Numbers):
    """The same numbers below 0."""

    def __init__(self, step: int) -> None:
        super().__init__(-step)


def of_files(kind: str, base: dict[str, object]) -> Iterator[Probe]:
    """Yield the probes of what files and replay have in common."""
    dropping = written(base, f"{SOURCE}.corruptRecords", {"policy": "Drop"})
    bare = written(dropping, f"{SOURCE}.{kind}.header", False)
    yield Probe(f"{SOURCE}.{kind}.path", base, ("cities.csv", "others.csv"), records)
    yield Probe(f"{SOURCE}.{kind}.header", dropping, (True, False), records)
    yield Probe(f"{SOURCE}.{kind}.format", bare, ("csv", "json"), records)
    stored = written(written(base, f"{SOURCE}.{kind}.path", "cities.parquet"), f"{SOURCE}.timestampFormat", ABSENT)
    yield Probe(f"{SOURCE}.{kind}.format", stored, ("parquet",), records)
    yield Probe(f"{SOURCE}.{kind}.delimiter", bare, (",", ";"), records)


def of_sources() -> Iterator[Probe]:
    """Yield the probes of all sources but Kafka, and of what sources have in common."""
    files, replay = query(FILES), query(REPLAY)
    yield from of_files("files", files)
    yield from of_files("replay", replay)
    many = query(FILES | {"files": {"path": "*s.csv", "format": "csv"}})
    yield from probes(many, first_batch, f"{SOURCE}.files", maxFilesPerBatch=(ABSENT, 1, 2))
    yield from probes(many, file_order, f"{SOURCE}.files", order=("ByTime", "ByName"))
    parted = written(files, f"{SOURCE}.files.path", "n=7/cities.csv")
    yield from probes(parted, records, f"{SOURCE}.files", partitionColumns=(ABSENT, ["n"]))
    yield from probes(
        replay, due, f"{SOURCE}.replay", timeColumn=("at", "seen"), speed=(ABSENT, 2.0), rate=(ABSENT, 0.1)
    )
    yield from probes(RATE, due, f"{SOURCE}.rate", recordsPerSecond=(10.0, 20.0))
    yield from probes(RATE, generated, f"{SOURCE}.rate", keys=(50, 60), skew=(1.0, 0.0), seed=(0, 1))
    yield from probes(NEXMARK, due, f"{SOURCE}.nexmark", recordsPerSecond=(500.0, 900.0))
    yield from probes(
        NEXMARK,
        generated,
        f"{SOURCE}.nexmark",
        stream=("bid", "auction", "person"),
        skew=(1.0, 0.0),
        drift=(ABSENT, "100s"),
        seed=(0, 1),
    )
    one = (ABSENT, {"recordsPerSecond": 1.0})
    yield from (Probe(f"{SOURCE}.{kind}", query({}, **COUNT), one, due) for kind in ("rate", "nexmark"))
    numbers = query(PYTHON, **COUNT)
    yield from probes(
        numbers, records, f"{SOURCE}.python", read=(f"{HERE}:Numbers", f"{HERE}:NegativeNumbers"),
        options=({"step": 2}, {"step": 3}),
    )  # fmt: skip
    yield from probes(numbers, first_batch, f"{SOURCE}.python", maxRecordsPerBatch=(ABSENT, 30, 60))
    yield Probe(f"{SOURCE}.python", query({"schema": "n INT"}, **COUNT), (ABSENT, PYTHON["python"]), records)
    for kind in ("files", "replay"):
        yield Probe(f"{SOURCE}.{kind}", query(BARE, **COUNT), (ABSENT, REPLAY["replay"] if kind == "replay" else
                    FILES["files"]), records)  # fmt: skip
    yield from of_all_kinds(files)
    yield Probe("spec.sources", files, (STATIC["spec"]["sources"], files["spec"]["sources"], {}), static_rows)


def of_all_kinds(files: dict[str, object]) -> Iterator[Probe]:
    """Yield the probes of what is beside the kind of a source."""
    no_city = COLUMNS.replace(", city STRING", "")
    yield Probe(
        f"{SOURCE}.schema", query(FILES, **COUNT), (COLUMNS, COLUMNS.replace("INT", "DOUBLE"), no_city), records
    )
    yield Probe(f"{SOURCE}.timestampFormat", files, ("iso", "seconds", "milliseconds", "microseconds"), records)
    formats = (ABSENT, {"at": "iso"}, {"at": "milliseconds"}, {"at": "dd.MM.yyyy"})
    yield Probe(f"{SOURCE}.timeFormats", files, formats, records)
    yield from probes(BAD, records_or_failure, f"{SOURCE}.corruptRecords", policy=("Fail", "Drop", "DeadLetter"))
    yield from probes(LETTERS, records, f"{SOURCE}.corruptRecords", path=(*DEAD, ABSENT), policy=("DeadLetter", "Drop"))
    yield Probe(f"{SOURCE}.watermark", query(FILES, **COUNT), (ABSENT, FILES["watermark"]), watermark)
    yield from probes(files, watermark, f"{SOURCE}.watermark", column=("at", "seen"), delay=("10s", "20s"))
    yield Probe(f"{SOURCE}.table.keys", STATIC, (["city"], ["city", "n"]), static_rows)
    yield Probe(f"{SOURCE}.table.static", STATIC, (True, False), static_rows, one_fits=True)
    yield Probe(f"{SOURCE}.table", STATIC, (ABSENT, {"keys": ["at"], "static": True}), static_rows)
