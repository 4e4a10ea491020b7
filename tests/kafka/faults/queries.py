"""The queries that run under faults, each with checks of its output during the run and at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from kafka.topics import Message, table_of
from spark.answers import Row, assert_same, duckdb_rows
from spark.questions import Hop, Question

NAME = "steady"


@dataclass(frozen=True)
class Case:
    """A query in a job's file, and the same question for DuckDB.

    ``columns`` are the fields of a message that make up DuckDB's row. ``query`` and ``sink`` are parts of the StreamQuery.
    """

    id: str
    question: Question
    columns: Sequence[str]
    query: Mapping[str, Any]
    emit: str
    sink: str
    sink_config: Mapping[str, str] = field(default_factory=dict)

    def document(self, bootstrap: str, source: str, sink: str, checkpoint: str) -> dict[str, Any]:
        """Return the StreamQuery, from topic to topic."""
        return {
            "apiVersion": "millrace.io/v1alpha1",
            "kind": "StreamQuery",
            "metadata": {"name": NAME},
            "spec": {
                "sources": {
                    "events": {
                        "kafka": {"bootstrapServers": bootstrap, "topic": source},
                        "schema": "id BIGINT, moment TIMESTAMP, key STRING, value BIGINT",
                        "watermark": {"column": "moment", "delay": "2 minutes"},
                    }
                },
                "query": dict(self.query),
                "sink": {self.sink: {"bootstrapServers": bootstrap, "topic": sink}},
                "emit": self.emit,
                "batchInterval": "1s",
                "parallelism": {"initial": 2, "max": 4},
                "partitioner": {"algorithm": "pkg", "replicas": {"initial": 2}},
                "checkpoint": {"uri": checkpoint},
            },
        }

    def check(self, output: Sequence[Message], events: pa.Table, *, ended: bool) -> None:
        """Compare the output with DuckDB's answer, or with the part of it that is due if the query still runs."""
        exact = duckdb_rows(events, self.question.duckdb)
        if self.sink == "table":
            self._each_once_per_batch(output, [message.key for message in output])
            if ended:
                assert_same(map(self._row, table_of(output).values()), exact, self.question.key_columns)
        elif self.emit == "OnUpdate":
            rows = [self._row(message.value or b"") for message in output]
            self._each_once_per_batch(output, [row[: self.question.key_columns] for row in rows])
            if ended:
                latest = {row[: self.question.key_columns]: row for row in self._in_order(output)}
                assert_same(latest.values(), exact, self.question.key_columns)
        else:
            rows = [self._row(message.value or b"") for message in output]
            closed = max((row[1] for row in rows), default=datetime.min)
            so_far = [row for row in exact if row[1] <= closed]
            assert_same(rows, exact if ended else so_far, self.question.key_columns)

    def _in_order(self, output: Sequence[Message]) -> list[Row]:
        """Return the rows by batch, the newest last."""
        return [self._row(message.value or b"") for message in sorted(output, key=batch_of)]

    def _each_once_per_batch(self, output: Sequence[Message], keys: Sequence[Any]) -> None:
        often = Counter((batch_of(message), key) for message, key in zip(output, keys, strict=True))
        double = [place for place, count in often.items() if count > 1]
        assert not double, f"{len(double)} rows are there twice, such as (batch, key) {double[:3]}"

    def _row(self, value: bytes) -> Row:
        found = json.loads(value)
        if isinstance(found.get("window"), dict):
            found |= {f"window_{end}": text for end, text in found["window"].items()}
        return tuple(_value(name, found[name]) for name in self.columns)


def batch_of(message: Message) -> int:
    """Return the batch that wrote a record."""
    return int(message.headers["millrace-batch"] or b"")


def _value(name: str, value: Any) -> Any:
    if name.startswith("window_"):
        return datetime.fromisoformat(value).astimezone(UTC).replace(tzinfo=None)
    return value


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
            "window": {"column": "moment", "size": "30 seconds"},
            "options": {"column": "value"},
        }
    },
    emit="OnUpdate",
    sink="kafka",
)
CASES = (FINAL_WINDOWS, TABLE, PYTHON)
