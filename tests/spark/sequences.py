"""Random sequences of what befalls a query, and what its results have to be after each step.

A sequence follows from its seed. Files of records have numbers from 1, and each is read in a batch of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millrace_jobs.sinks.files.sink import BATCH_ID

from .answers import Row, rows_of
from .questions import Hop, Question
from .tables import table_of

START = datetime(2024, 5, 1, 12)
DELAY = 30
"""Seconds of the watermark's delay."""

SCHEMA = pa.schema([("moment", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64()), ("grade", pa.int32())])
COLUMNS = "moment TIMESTAMP, key STRING, value BIGINT, grade INT"
Record = tuple[datetime, str | None, int | None, int]

AGGREGATES = {
    "records": "count(*)",
    "total": "sum(value)",
    "least": "min(value)",
    "mean": "avg(value)",
    "squares": "sum(value * value)",
    "known": "count(value)",
    "high": "sum(value) FILTER (WHERE value > 20)",
    "latest": "max(moment)",
}
UNKNOWN = "unknown"
"""Name of an aggregate that no state has."""

CALLS = AGGREGATES | {UNKNOWN: "sum(value * 7)"}

WINDOWS = (None, Hop("moment", size=60, slide=60), Hop("moment", size=60, slide=25, start=5))
ALGORITHMS = ("hash", "pkg", "shuffle", "dchoices", "native")


@dataclass(frozen=True)
class Version:
    """What the SQL asks at one time."""

    aggregates: tuple[str, ...]
    grade: int = 0
    """Records of lower grades are filtered out."""
    repeated: bool = False
    """Whether groups of one record are left out."""
    in_capitals: bool = False

    def sql(self, window: Hop | None) -> str:
        """Return the SQL, over groups by the key and the window."""
        calls = {name: CALLS[name] for name in self.aggregates}
        if self.in_capitals:
            calls = {name: call.upper() for name, call in calls.items()}
        having = "count(*) > 1" if self.repeated else ""
        return Question(calls, {"key": "key"}, window, where=f"grade >= {self.grade}", having=having).spark


@dataclass(frozen=True)
class Step:
    """What befalls the query; printed, a list of them can be read as a story."""

    kind: str
    files: int = 0
    """Files that arrive for it."""
    version: Version | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    """The number of state partitions, of a snapshot, of a step, or of files whose batches end before a kill."""


def records(chance: random.Random, number: int) -> list[Record]:
    """Return the records of a file. None is late; the newest one has the highest grade, and one has none too low."""
    newest = START + timedelta(seconds=40 * number)
    made: list[Record] = [(newest, "key 0", number, 9)]
    for _ in range(39):
        key = int(chance.paretovariate(0.8)) % 12
        value = None if chance.random() < 0.1 else chance.randrange(-50, 50)
        moment = newest - timedelta(milliseconds=chance.randrange(25_000))
        made.append((moment, None if key == 7 else f"key {key}", value, chance.randrange(10)))
    chance.shuffle(made)
    return made


def steps(chance: random.Random, length: int, *, closes: bool) -> Iterator[Step]:
    """Yield a random sequence; the first step is a run. With ``closes``, results come when windows close."""
    version, taken = Version(("records", *chance.sample(list(AGGREGATES)[1:], chance.randint(2, 4)))), 0
    yield Step("run", files=2, version=version)
    for kind in _kinds(chance, length):
        files = chance.randint(1, 2)
        match kind:
            case "change the SQL":
                version = _changed(chance, version, closes=closes)
                yield Step(kind, version=version)
                if chance.random() < 0.3:
                    yield Step("kill while adding", files=files, number=chance.randrange(6))
                yield Step(chance.choice(["run", "run", "kill in a batch"]), files=files)
            case "add too much":
                yield Step(kind)
            case "change the plan":
                yield Step(kind, spec=_plan(chance))
            case "snapshot":
                taken += 1
                yield Step(kind, number=taken)
            case "snapshot of a run":
                taken += 1
                yield Step(kind, files=2 + files, number=taken)
            case "restore" | "damaged snapshot":
                if taken:
                    yield Step(kind, number=chance.randint(1, taken))
            case "repartition":
                yield Step(kind, number=chance.randint(1, 6))
            case "kill when written":
                yield Step(kind, files=files, number=0 if closes else files - 1)
            case _:
                yield Step(kind, files=files)


def _kinds(chance: random.Random, length: int) -> list[str]:
    others = ["change the plan", "restore", "repartition", "snapshot of a run", "add too much", "damaged snapshot"]
    kinds = ["change the SQL", "snapshot", "run", "restore", "repartition", "run"]
    kinds += [chance.choice(["kill in a batch", "kill when written"])]
    kinds += [chance.choice([*others, "change the SQL", "run", "change the SQL"]) for _ in range(length - len(kinds))]
    chance.shuffle(kinds)
    return ["snapshot", *kinds] if kinds.index("restore") < kinds.index("snapshot") else kinds


def _changed(chance: random.Random, version: Version, *, closes: bool) -> Version:
    """Return a version whose aggregates leave, return, move, or are new; with a new one, the filter often stays."""
    known = list(AGGREGATES) if chance.random() < 0.6 else version.aggregates
    kept = chance.sample(known, chance.randint(1, len(known)))
    changed = replace(version, aggregates=tuple(kept), in_capitals=chance.random() < 0.3)
    if chance.random() < 0.3:
        changed = replace(changed, grade=chance.choice((0, 3, 6)))
    return replace(changed, repeated=not closes and chance.random() < 0.3)


def _plan(chance: random.Random) -> dict[str, Any]:
    return {
        "partitioner": {"algorithm": chance.choice(ALGORITHMS), "replicas": {"initial": chance.randint(1, 3)}},
        "parallelism": {"initial": chance.randint(1, 4), "max": chance.choice((8, 16))},
    }


@dataclass(frozen=True)
class Written:
    """The results of one batch."""

    batch: int
    names: tuple[str, ...]
    rows: tuple[Row, ...]


def written_in(folder: Path, last: int) -> list[Written]:
    """Return the results in a sink, batch by batch up to the one with this number."""
    found: dict[int, list[pa.Table]] = {}
    for file in sorted(folder.glob("batch-*.parquet")):
        found.setdefault(int(file.name.split("-")[1].partition(".")[0]), []).append(pq.read_table(file))
    made = []
    for batch, tables in sorted(found.items()):
        table = pa.concat_tables(tables)
        table = table.select([name for name in table.column_names if name != BATCH_ID])
        made.append(Written(batch, tuple(table.column_names), tuple(rows_of(table))))
    return [each for each in made if each.batch <= last]


def stream_of(files: Sequence[Sequence[Record]], versions: Sequence[Version]) -> pa.Table:
    """Return the records that were read, each with the number of its file, without those that its version leaves out."""
    schema = SCHEMA.append(pa.field("file", pa.int64()))
    kept = [
        (*record, number)
        for number, (content, version) in enumerate(zip(files, versions, strict=False), 1)
        for record in content
        if record[3] >= version.grade
    ]
    return table_of(schema, kept)


def updates_of(number: int, version: Version, window: Hop | None) -> Question:
    """Return the question for the groups that the file with this number has changed, with their values after it."""
    having = f"max(file) = {number}" + (" AND count(*) > 1" if version.repeated else "")
    return _question(version, window, where=f"file <= {number}", having=having)


def totals_of(aggregates: Sequence[str], window: Hop | None) -> Question:
    """Return the question for the values of all groups."""
    return _question(Version(tuple(aggregates)), window)


def _question(version: Version, window: Hop | None, **clauses: str) -> Question:
    return Question({name: AGGREGATES[name] for name in version.aggregates}, {"key": "key"}, window, **clauses)
