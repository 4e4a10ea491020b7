"""Operators one behind the other, as the stages of a query: each batch has one watermark, and promises are checked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from change_tables import MemoryStore, Row, changes_from, comparable
from millrace_jobs.changes import BEGINNING, FOREVER, changes_of
from millrace_jobs.queries.tables.operators.interface import TableOperator
from millrace_jobs.queries.tables.operators.join_side import MATCH_FROM, MATCH_TO

Event = tuple[int, str, Any, Any]
"""What arrives: its time, its source, and its key and value; a value of None is a delete where the source is a table."""

Shape = Callable[..., Sequence[Any] | None]
"""Function of the values and the start of a stage's row: its values in the next stage, or None to leave it out."""

END = 1 << 40
"""A watermark after all events."""


class Stage:
    """An operator in one bucket, with the sources and stages that it reads, and the sum of its changes.

    It is called if there is input or its time has come, as in Spark, and keeps nothing between batches but its store.
    ``weights`` are those of all rows that it has emitted, in order.
    """

    def __init__(self, operator: TableOperator, *inputs: str | Stage | tuple[Stage, Shape]) -> None:
        self.operator = operator
        self.inputs = inputs
        self.store = MemoryStore()
        self.rows: Counter[Row] = Counter()
        self.weights: list[int] = []
        self.late = 0
        self.wake: int | None = None
        self._before = BEGINNING

    def batch(self, sources: Mapping[str, pa.Table], watermark: int) -> pa.Table:
        """Process a batch in this stage and in those before it, and return the changes."""
        inputs = [
            self._read(given, schema, sources, watermark)
            for given, schema in zip(self.inputs, self.operator.inputs, strict=True)
        ]
        changes = self.operator.output.empty_table()
        if any(each.num_rows for each in inputs) or (self.wake is not None and self.wake <= watermark):
            outcome = self.operator.process(self.store, inputs, watermark)
            made = list(outcome.changes)
            assert all(table.schema == self.operator.output for table in made)
            assert outcome.wake is None or outcome.wake > watermark
            self.late += outcome.late
            self.wake = outcome.wake
            changes = pa.concat_tables([changes, *made])
        self._check_promise(changes)
        self._before = watermark
        signs: dict[Row, set[bool]] = defaultdict(set)
        for *row, weight in rows_in(changes):
            assert row[-2] < row[-1], "a row without a period"
            self.rows[comparable(row)] += weight
            self.weights.append(weight)
            signs[comparable(row)].add(weight > 0)
        assert all(len(each) == 1 for each in signs.values()), "a row was removed and added in one batch"
        self.rows = Counter({row: weight for row, weight in self.rows.items() if weight})
        assert all(weight > 0 for weight in self.rows.values()), "a row was removed that was not there"
        return changes

    def versions(self, times: Iterable[int]) -> dict[int, Counter[Row]]:
        """Return the rows of each version, without their periods."""
        return {t: Counter({row[:-2]: n for row, n in self.rows.items() if row[-2] <= t < row[-1]}) for t in times}

    @property
    def latest(self) -> Counter[Row]:
        """The rows of the latest version, without their periods."""
        return self.versions([FOREVER - 1])[FOREVER - 1]

    @property
    def held(self) -> list[str]:
        """The names of the tables with rows in the store."""
        return [name for name in self.store.tables if name[-1].isdigit()]

    def _read(
        self,
        given: str | Stage | tuple[Stage, Shape],
        schema: pa.Schema,
        sources: Mapping[str, pa.Table],
        watermark: int,
    ) -> pa.Table:
        if isinstance(given, str):
            return sources.get(given, schema.empty_table())
        stage, shape = given if isinstance(given, tuple) else (given, lambda *row: row[:-1])
        rows = []
        for *values, start, end, weight in rows_in(stage.batch(sources, watermark)):
            shaped = shape(*values, start)
            if shaped is not None:
                rows.append((*shaped, start, end, weight))
        return changes_from(rows, schema)

    def _check_promise(self, changes: pa.Table) -> None:
        lag = self.operator.lag
        if lag is not None and self._before != BEGINNING:
            first = first_change(changes)
            assert first >= self._before - lag, f"version {first} changed after watermark {self._before} with lag {lag}"


def rows_in(changes: pa.Table) -> list[Row]:
    """Return the rows of a table of changes, each with its start, end and weight."""
    return list(zip(*(column.to_pylist() for column in changes.columns), strict=True))


def first_change(changes: pa.Table) -> int:
    """Return the first version that the changes, summed up, alter; FOREVER without one."""
    differences: dict[Row, Counter[int]] = defaultdict(Counter)
    for *values, start, end, weight in rows_in(changes):
        differences[comparable(values)][start] += weight
        differences[comparable(values)][end] -= weight
    return min((time for each in differences.values() for time, weight in each.items() if weight), default=FOREVER)


def values(*columns: str, banded: bool = False) -> pa.Schema:
    """Return the schema of columns, which are text if their names end with k, and integers otherwise."""
    fields = [pa.field(name, pa.string() if name.endswith("k") else pa.int64()) for name in columns]
    match = [pa.field(name, pa.int64()) for name in (MATCH_FROM, MATCH_TO)] if banded else []
    return pa.schema([*fields, *match])


def records(events: Iterable[Event], source: str, band: tuple[int, int] | None = None) -> pa.Table:
    """Return the records of a source as changes of key and value; ``band`` is the matching period around their time."""
    period = (lambda t: (t + band[0], t + band[1] + 1)) if band else lambda _: ()
    rows = [(key, value, *period(t), t, t + 1, 1) for t, at, key, value in events if at == source]
    return changes_from(rows, changes_of(values(f"{source}k", f"{source}v", banded=band is not None)))


def upserts(events: Iterable[Event], source: str, schema: pa.Schema) -> pa.Table:
    """Return the upserts of a source: a key, and the values of the other columns or None to delete it."""
    others = len(schema) - 1
    rows = [
        (key, *((None,) * others if value is None else value), t, FOREVER, -1 if value is None else 1)
        for t, at, key, value in events
        if at == source
    ]
    return changes_from(rows, changes_of(schema))
