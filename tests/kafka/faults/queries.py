"""The queries that run under faults, each with checks of its output during the run and at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import duckdb
import pyarrow as pa

from lab.topics import Message, table_of
from spark.answers import Row, assert_same
from spark.questions import Hop, Question

from .changelog import Positions, batch_of, tables_by_batch, up_to

NAME = "steady"
BATCH, PARTITION = "Batch", "Partition"


@dataclass(frozen=True)
class Joined:
    """A query over several tables for DuckDB, whose first ``key_columns`` columns identify a row."""

    duckdb: str
    key_columns: int


Read = Callable[[int], Positions | None]
"""Function that returns how far a batch has read; None if that is no longer known."""


@dataclass(frozen=True)
class Case:
    """A query in a job's file, and the same question for DuckDB.

    ``columns`` are the fields of a message that make up DuckDB's row. ``query`` and ``sink`` are parts of the StreamQuery.
    ``sink_options`` are fields of the sink, ``sink_config`` settings of its topic. ``others`` are sources that read the same
    topic, each with what it has beside the fields of the first one. ``key`` is the primary key of the table. ``partitioner``
    is the query's; None is two replicas with ``pkg``.
    """

    id: str
    question: Question | Joined
    columns: Sequence[str]
    query: Mapping[str, Any]
    emit: str
    sink: str
    sink_config: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    key: Sequence[str] = ()
    partitioner: Mapping[str, Any] | None = None

    @property
    def is_dedicated(self) -> bool:
        """Whether the query begins with replicas in processes of their own."""
        return self.partitioner is not None and self.partitioner.get("placement") == "Dedicated"

    @property
    def is_by_tasks(self) -> bool:
        """Whether tasks write the results, so that readers see a batch partition by partition of the state."""
        return self.sink_options.get("transaction") == PARTITION

    def document(self, bootstrap: str, source: str, sink: str, checkpoint: str) -> dict[str, Any]:
        """Return the StreamQuery, from topic to topic."""
        events = {
            "kafka": {"bootstrapServers": bootstrap, "topic": source},
            "schema": "id BIGINT, moment TIMESTAMP, key STRING, value BIGINT",
            "watermark": {"column": "moment", "delay": "2m"},
        }
        key = {"key": list(self.key)} if self.key else {}
        return {
            "apiVersion": "millrace.io/v1alpha1",
            "kind": "StreamQuery",
            "metadata": {"name": NAME},
            "spec": {
                "sources": {"events": events} | {name: events | own for name, own in self.others.items()},
                "query": dict(self.query),
                "sink": {self.sink: {"bootstrapServers": bootstrap, "topic": sink} | key | dict(self.sink_options)},
                "emit": self.emit,
                "batchInterval": "1s",
                "parallelism": {"initial": 2, "max": 4},
                "partitioner": dict(self.partitioner or {"algorithm": "pkg", "replicas": {"initial": 2}}),
                "checkpoint": {"uri": checkpoint},
            },
        }

    def check(self, output: Sequence[Message], events: pa.Table, read: Read, *, ended: bool) -> None:
        """Compare the output with DuckDB's answer, or with the part of it that is due if the query still runs."""
        if self.is_by_tasks and not ended:
            newest = max(map(batch_of, output), default=0)  # of which readers may see a part
            output = [message for message in output if batch_of(message) < newest]
        exact = self._answer(dict.fromkeys(["events", *self.others], events))
        if self.sink == "table":
            self._check_table(output, events, read, exact if ended else None)
        elif self.emit == "OnUpdate":
            self._check_updates(output, events, read, exact if ended else None)
        else:
            rows = [self._row(message.value or b"") for message in output]
            closed = max((row[1] for row in rows), default=datetime.min)
            so_far = [row for row in exact if row[1] <= closed]
            assert_same(rows, exact if ended else so_far, self.question.key_columns)

    def _check_updates(self, output: Sequence[Message], events: pa.Table, read: Read, exact: list[Row] | None) -> None:
        """Compare the newest updates with ``exact``, and those so far with DuckDB's answer for what was read by then.

        The latter after each batch; while the query runs, ``exact`` is None, and only the newest batch is compared.
        """
        keys, latest = self.question.key_columns, dict[Row, Row]()
        self._each_once_per_batch(output, [self._row(message.value or b"")[:keys] for message in output])
        batches = [(number, list(found)) for number, found in groupby(sorted(output, key=batch_of), batch_of)]
        for batch, messages in batches:
            latest |= {row[:keys]: row for row in (self._row(message.value or b"") for message in messages)}
            if exact is None and batch != batches[-1][0]:
                continue
            if (positions := read(batch)) is not None:
                so_far = self._answer({name: up_to(events, position) for name, position in positions.items()})
                assert_same(latest.values(), so_far, keys)
        if exact is not None:
            assert_same(latest.values(), exact, keys)

    def _check_table(self, output: Sequence[Message], events: pa.Table, read: Read, exact: list[Row] | None) -> None:
        """Compare the table with ``exact``, and what each batch left with DuckDB's answer for what was read by then.

        While the query runs, ``exact`` is None, and only the newest batch is compared.
        """
        tables = list(tables_by_batch(output))
        for batch, table in tables if exact is not None else tables[-1:]:
            if (positions := read(batch)) is not None:
                so_far = self._answer({name: up_to(events, position) for name, position in positions.items()})
                assert_same(map(self._row, table.values()), so_far, self.question.key_columns)
        if exact is not None:
            assert_same(map(self._row, table_of(output).values()), exact, self.question.key_columns)

    def _answer(self, tables: Mapping[str, pa.Table]) -> list[Row]:
        with duckdb.connect() as connection:
            for name, table in tables.items():
                connection.register(name, table)
            return connection.execute(self.question.duckdb).fetchall()

    def _each_once_per_batch(self, output: Sequence[Message], keys: Sequence[Any]) -> None:
        often = Counter((batch_of(message), key) for message, key in zip(output, keys, strict=True))
        double = [place for place, count in often.items() if count > 1]
        assert not double, f"{len(double)} rows are there twice, such as (batch, key) {double[:3]}"

    def _row(self, value: bytes) -> Row:
        found = json.loads(value)
        if isinstance(found.get("window"), dict):
            found |= {f"window_{end}": text for end, text in found["window"].items()}
        return tuple(_value(name, found[name]) for name in self.columns)


def _value(name: str, value: Any) -> Any:
    if name.startswith("window_"):
        return datetime.fromisoformat(value).astimezone(UTC).replace(tzinfo=None)
    return value


def by_tasks(case: Case) -> Case:
    """Return a case whose results the tasks write, each its partition of the state."""
    return replace(case, id=f"{case.id}, by tasks", sink_options={"transaction": PARTITION})


_WINDOWS = Question(
    keys={"key": "key"},
    values={"records": "count(*)", "total": "sum(value)", "first": "min(id)", "last": "max(id)"},
    window=Hop("moment", size=20, slide=10),
)
_POSITIVE = Question(
    keys={"key": "key"},
    values={"records": "count(*)", "total": "sum(value)", "last": "max(id)"},
    having="sum(value) > 0",
)
_SPREAD = Question(
    keys={"key": "key"},
    values={"spread": "max(value) - min(value)", "seen": "count(value)"},
    window=Hop("moment", size=30, slide=30),
)
_WINDOW_COLUMNS = ("window_start", "window_end", "key")

FINAL_WINDOWS = Case(
    id="windows, once each when they close",
    question=_WINDOWS,
    columns=(*_WINDOW_COLUMNS, "records", "total", "first", "last"),
    query={"sql": _WINDOWS.spark},
    emit="OnWindowClose",
    sink="kafka",
)
TABLE = Case(
    id="a table with retractions",
    question=_POSITIVE,
    columns=("key", "records", "total", "last"),
    query={"sql": _POSITIVE.spark},
    emit="OnUpdate",
    sink="table",
    sink_config={"cleanup_policy": "compact"},
)
PYTHON = Case(
    id="a Python aggregator, every update",
    question=_SPREAD,
    columns=(*_WINDOW_COLUMNS, "spread", "seen"),
    query={
        "python": {
            "aggregator": "spark.aggregators:Spread",
            "groupBy": ["key"],
            "window": {"column": "moment", "size": "30s"},
            "options": {"column": "value"},
        }
    },
    emit="OnUpdate",
    sink="kafka",
)

_ANSWERED = """FROM events e LEFT JOIN answers a ON a.key = e.key AND a.value > 60
    AND a.moment BETWEEN e.moment AND e.moment + INTERVAL 3 SECONDS"""
_PAIRS = f"SELECT e.id, a.id AS answer, e.key, e.value, a.value AS answered {_ANSWERED}"
_GROUPS = f"""SELECT e.key, count(*) AS pairs, count(a.id) AS answers, sum(a.value) AS total, avg(e.value) AS mean
    {_ANSWERED} GROUP BY e.key HAVING count(*) % 3 > 0"""
_PRICED = "SELECT e.id, e.value, p.id AS latest, p.value AS price FROM events e {join} latest p ON p.key = concat('key ', e.id % 4)"

JOIN = Case(
    id="an outer join, every change",
    question=Joined(_PAIRS, key_columns=2),
    columns=("id", "answer", "key", "value", "answered"),
    query={"sql": _PAIRS},
    emit="OnUpdate",
    sink="table",
    sink_config={"cleanup_policy": "compact"},
    others={"answers": {}},
    key=("id", "answer"),
)
GROUPED_JOIN = Case(
    id="groups of a join whose results are taken back",
    question=Joined(_GROUPS, key_columns=1),
    columns=("key", "pairs", "answers", "total", "mean"),
    query={"sql": _GROUPS},
    emit="OnUpdate",
    sink="table",
    sink_config={"cleanup_policy": "compact"},
    others={"answers": {}},
)
VERSIONS = Case(
    id="a join with the versions of a table",
    question=Joined(f"{_PRICED.format(join='ASOF LEFT JOIN')} AND p.moment <= e.moment", key_columns=1),
    columns=("id", "value", "latest", "price"),
    query={"sql": _PRICED.format(join="LEFT JOIN")},
    emit="OnUpdate",
    sink="table",
    sink_config={"cleanup_policy": "compact"},
    others={"latest": {"table": {"keys": ["key"]}}},
    key=("id",),
)
JOINS = (JOIN, GROUPED_JOIN, VERSIONS)
"""Queries by the operators on tables, whose results change."""

DEDICATED_TABLE = replace(
    TABLE,
    id="a table with retractions, by replicas in processes of their own",
    partitioner={"algorithm": "cam", "replicas": {"initial": 2}, "placement": "Dedicated"},
)
DEDICATED_WINDOWS = replace(
    FINAL_WINDOWS,
    id="windows, by three replicas that learn together",
    partitioner={"algorithm": "dalton", "replicas": {"initial": 3}, "placement": "Dedicated"},
)
DEDICATED = (DEDICATED_TABLE, DEDICATED_WINDOWS)
"""Queries whose records are placed before they are in a batch."""

CASES: Mapping[str, Sequence[Case]] = {
    BATCH: (FINAL_WINDOWS, TABLE, PYTHON, *DEDICATED, *JOINS),
    PARTITION: tuple(map(by_tasks, (FINAL_WINDOWS, PYTHON, DEDICATED_WINDOWS))),
}
"""The queries by ``transaction``: who writes them. Tables are written by the driver."""
