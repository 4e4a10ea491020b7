"""Changes in tests: a state in memory, changes from rows and from disordered input, and what changes add up to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from dual_streaming.tables import EvolvingTable
from millrace_jobs.changes import BEGINNING, FOREVER
from millrace_jobs.queries.tables.operators.interface import TableOperator
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.splitting import MatchUnit, Split

Row = tuple[Any, ...]
"""Values of a row, and the start and the end of its period."""


class MemoryStore:
    """A bucket's state as serialized tables, with the names that were read and written since ``forget``."""

    def __init__(self) -> None:
        self.tables: dict[str, bytes] = {}
        self.forget()

    def forget(self) -> None:
        self.read: list[str] = []
        self.written: list[str] = []

    def get(self, name: str, schema: pa.Schema) -> pa.Table | None:
        self.read.append(name)
        if name not in self.tables:
            return None
        found = pa.ipc.open_stream(self.tables[name]).read_all()
        assert found.schema == schema
        return found

    def put(self, name: str, rows: pa.Table) -> None:
        self.written.append(name)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        self.tables[name] = sink.getvalue().to_pybytes()

    def remove(self, name: str) -> None:
        self.written.append(name)
        self.tables.pop(name, None)

    def all_rows(self, prefix: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of all tables whose names begin with ``prefix``."""
        return {
            name: pa.ipc.open_stream(table).read_all().to_pylist()
            for name, table in self.tables.items()
            if name.startswith(prefix)
        }


def changes_from(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Return changes from rows with values, start, end and weight."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type, from_pandas=False) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


class Replayed:
    """The table that changes add up to: its rows, none of which is removed before it is added, or added twice.

    Floats are rows by their bits, so that a row must be removed exactly as it was added.
    """

    def __init__(self) -> None:
        self.rows: dict[Row, Row] = {}

    def apply(self, changes: Iterable[pa.Table]) -> None:
        weights: Counter[Row] = Counter(dict.fromkeys(self.rows, 1))
        changed: set[Row] = set()
        for table in changes:
            for *row, weight in zip(*(column.to_pylist() for column in table.columns), strict=True):
                key = tuple(each.hex() if isinstance(each, float) else each for each in row)
                assert key not in changed, "an unchanged row is not emitted"
                changed.add(key)
                self.rows[key] = tuple(row)
                weights[key] += weight
        assert set(weights.values()) <= {0, 1}, {row: weight for row, weight in weights.items() if weight not in (0, 1)}
        self.rows = {key: self.rows[key] for key, weight in weights.items() if weight}
        assert all(start < end for *_, start, end in self.rows)

    def by_key(self, keys: int) -> dict[Row, list[Row]]:
        """Return, for each key, which is the first columns, its periods and other values, in order; they do not overlap."""
        found: dict[Row, list[Row]] = defaultdict(list)
        for *values, start, end in sorted(self.rows.values(), key=lambda row: row[-2]):
            found[tuple(values[:keys])].append((start, end, *comparable(values[keys:])))
        assert all(one[1] <= other[0] for rows in found.values() for one, other in pairwise(rows))
        return dict(found)

    def at(self, time: int, keys: int) -> dict[Row, Row]:
        """Return the version at a time: its values by key."""
        return {key: row[2:] for key, rows in self.by_key(keys).items() for row in rows if row[0] <= time < row[1]}


def comparable(values: Iterable[Any]) -> Row:
    """Return values of which NaN is equal to itself."""
    return tuple("NaN" if isinstance(each, float) and each != each else each for each in values)


class Replay:
    """An operator in one bucket, and the sum of the changes that it has emitted.

    ``splits`` are the settings of a join's batches, in turn; without any, hot keys are not split.
    """

    def __init__(self, operator: TableOperator, splits: Sequence[Split] = ()) -> None:
        self.operator = operator
        self.splits = cycle(splits) if splits else None
        self.store = MemoryStore()
        self.rows: Counter[tuple] = Counter()
        self.emitted: list[tuple] = []
        self.late = 0

    def batch(self, changes: Sequence[pa.Table], watermark: int) -> None:
        if isinstance(self.operator, TemporalJoin) and self.splits is not None:
            self.operator = replace(self.operator, split=next(self.splits))
        outcome = self.operator.process(self.store, changes, watermark)
        self.late += outcome.late
        for table in chain(outcome.changes, self.matched(outcome.units)):
            assert table.schema == self.operator.output
            for *row, weight in zip(*(column.to_pylist() for column in table.columns), strict=True):
                self.rows[tuple(row)] += weight
                self.emitted.append((tuple(row), weight))
        self.rows = Counter({row: weight for row, weight in self.rows.items() if weight})
        assert all(weight > 0 for weight in self.rows.values()), "a row was removed that was not there"

    def matched(self, units: Iterable[MatchUnit]) -> Iterator[pa.Table]:
        """Match the rows of units, as workers do."""
        for unit in units:
            assert isinstance(self.operator, TemporalJoin)
            found = list(self.operator.matched(unit.left, unit.right))
            rows = sum(table.num_rows for table in found)
            assert rows == unit.pairs > 0 if self.operator.condition is None else rows <= unit.pairs
            yield from found

    def end(self) -> None:
        """Close the input: the watermark passes everything."""
        self.batch([schema.empty_table() for schema in self.operator.inputs], FOREVER - 1)


def rows_of(table: EvolvingTable) -> list[Row]:
    """Return the rows of a table with their periods: key, value, start and end."""
    rows = []
    times = table.times
    for key in {key for time in times for key in table.modified(time)}:
        modified = [time for time in times if key in table.modified(time)]
        for start, end in zip(modified, [*modified[1:], FOREVER], strict=True):
            found = table.lookup(key, start)
            if found is not None:
                rows.append((key, found.v, start, end))
    return rows


def update_changes(before: EvolvingTable, after: EvolvingTable) -> list[Row]:
    """Return the changes that make one table another: key, value, start, end and weight."""
    change = Counter(rows_of(after))
    change.subtract(rows_of(before))
    return [(*row, weight) for row, weight in change.items() if weight]


@st.composite
def disordered(draw, events, grace):
    """Draw batches of events, each ``(time, ...)``, out of order by at most ``grace``, with the watermark after each."""
    drawn = draw(st.lists(events, max_size=14))
    delays = [draw(st.integers(0, grace)) for _ in drawn]
    order = sorted(range(len(drawn)), key=lambda i: (drawn[i][0] + delays[i], i))
    arrivals = [drawn[i] for i in order]
    cuts = sorted(draw(st.lists(st.integers(0, len(arrivals)), max_size=5)))
    batches, latest = [], None
    for start, end in zip([0, *cuts], [*cuts, len(arrivals)], strict=True):
        batches.append((arrivals[start:end], BEGINNING if latest is None else latest - grace))
        latest = max([each[0] for each in arrivals[:end]], default=None)
    return batches
