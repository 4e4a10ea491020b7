"""Reduction of records on a worker: the protocol of reducers, and the reducer of the built-in aggregates.

The latter uses PyArrow's hash aggregation.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.aggregates.in_sql import SqlAggregator
from millrace_jobs.kernels.mixing import Hashes
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.sketches.key_profile import KeyCounts, add_counts
from millrace_jobs.windows import AT, Window, pane_starts

RECORDS = "records"
"""Column of a reducer's result with the number of records in a partial result."""


class Reducer(Protocol):
    """A combiner that reduces one worker's records of one batch to partial results."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records."""
        ...

    def partials(self) -> Iterator[pa.Table]:
        """Yield the partial results: tables with the columns of ``ReducerFactory.schema`` and possibly others."""
        ...

    def records(self) -> int:
        """Return the number of records added."""
        ...

    def groups(self) -> int:
        """Return the number of groups by key and pane."""
        ...

    def key_counts(self) -> KeyCounts:
        """Return the distinct keys among the records, by ascending hash, each with its number of records."""
        ...


class ReducerFactory(Protocol):
    """A picklable factory of the reducer of one task."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the partial results: keys, ``at`` if there is a window, and the mergeable parts."""
        ...

    def __call__(self) -> Reducer:
        """Return an empty reducer."""
        ...


Reduce = Literal[
    "rows", "count", "sum", "mean", "squared_deviations", "min", "max", "has_nan", "distinct", "state", "none"
]
"""How a worker reduces the input of a part: ``distinct`` keeps the set of its values, ``state`` is an aggregator's.

No worker reduces parts with ``none``.
"""

_ONCE = ("mean", "squared_deviations")
"""Reductions whose results cannot be reduced again.

A worker ships one partial result per million records of a pane, and per window that contains the pane.
"""

PENDING_RECORDS = 1 << 20
"""Records that a worker holds before it reduces them; this and the number of groups bound its memory.

With a reduction in ``_ONCE``, the number of records does: each million adds a row per group that it has.
"""

EXPANDED_ROWS = 1 << 20
"""Approximate number of rows that panes are expanded to at a time, one row per pane and window that contains it."""

_VALUES = "values of "
"""Prefix of an intermediate column: the number of values that a variance was computed from."""

_LARGEST_ROOT = math.sqrt(sys.float_info.max)
"""The largest value whose square is a double."""

_ROW = "row"
"""Intermediate column with the number of a row, of which aggregators get those of each group."""

_REDUCE_AGAIN = {"rows": "sum", "count": "sum", "sum": "sum", "min": "min", "max": "max", "has_nan": "max"}


States = Callable[[pa.ListArray], pa.Array]
"""Function that returns the states of groups, of each of which it gets the numbers of its rows."""


@dataclass(frozen=True)
class PartColumn:
    """A part in the schema of the partial results, and the block column that it is reduced from.

    The part of an ``aggregator`` is its state, which is reduced from the columns ``arguments``.
    """

    name: str
    reduce: Reduce
    column: str
    type: pa.DataType
    aggregator: SqlAggregator | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnarReduction:
    """The factory of reducers for a query in SQL."""

    keys: tuple[pa.Field, ...]
    window: Window | None
    parts: tuple[PartColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the partial results: keys, start of the window if there is one, and parts."""
        at = [pa.field(AT, pa.timestamp("us", tz="UTC"))] if self.window else []
        return pa.schema([*self.keys, *at, *(pa.field(part.name, part.type) for part in self.parts)])

    def __call__(self) -> ColumnarReducer:
        """Return an empty reducer."""
        return ColumnarReducer(self)


class ColumnarReducer:
    """A reducer that reduces records by key and pane, a million at a time, and then by key and window."""

    def __init__(self, reduction: ColumnarReduction) -> None:
        self._reduction = reduction
        self._groups = [field.name for field in reduction.keys] + ([AT] if reduction.window else [])
        self._pending: list[pa.RecordBatch] = []
        self._pending_records = 0
        self._reduced: list[pa.Table] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records."""
        self._pending.append(batch)
        self._pending_records += batch.num_rows
        if self._pending_records >= PENDING_RECORDS:
            self._reduce_pending()

    def partials(self) -> Iterator[pa.Table]:
        """Yield tables with one row per key and window, and one more per distinct value that a count needs.

        Column ``at`` is the start of the window. This gives fewer rows than shipping one row per pane and window. With
        a reduction in ``_ONCE``, a key and window may have several rows.
        """
        panes, window = self._by_pane(), self._reduction.window
        if window is None or window.per_record == 1:
            yield panes
            return
        step = max(EXPANDED_ROWS // window.per_record, 1)
        if panes.num_rows > step:  # sorting puts all panes of a key into one slice, which then reduces best
            panes = panes.take(np.argsort(self._hashes(panes), kind="stable")).combine_chunks()
        for first in range(0, panes.num_rows, step):
            yield self._by_window(panes.slice(first, step), window)

    def records(self) -> int:
        """Return the number of records added."""
        return int(pc.sum(self._by_pane().column(RECORDS)).as_py() or 0)

    def groups(self) -> int:
        """Return the number of partial results by key and pane."""
        return int(self._by_pane().num_rows)

    def key_counts(self) -> KeyCounts:
        """Return the distinct keys among the records, by ascending hash, each with its number of records."""
        names = [field.name for field in self._reduction.keys]
        panes = self._by_pane().select([*names, RECORDS])
        if not names:
            rows = self.records()
            return add_counts([(hash_columns([], 1), np.array([rows]))] if rows else [])
        keys = panes.group_by(names, use_threads=False).aggregate([(RECORDS, "sum")])
        return add_counts([(self._hashes(keys), keys.column(f"{RECORDS}_sum").to_numpy())])

    def _hashes(self, groups: pa.Table) -> Hashes:
        return hash_columns(groups.select([field.name for field in self._reduction.keys]).columns, groups.num_rows)

    def _by_pane(self) -> pa.Table:
        """Return one row per key and pane, and one more per distinct value; ``at`` is the start of the pane.

        With a reduction in ``_ONCE``, a key and pane may have several rows.
        """
        self._reduce_pending()
        if not self._reduced:
            return self._conform({}, rows=0)
        if len(self._reduced) > 1:
            reduced = pa.concat_tables(self._reduced)
            self._reduced = [reduced if self._is_reduced_once() else self._reduce_again(reduced)]
        return self._reduced[0]

    def _by_window(self, panes: pa.Table, window: Window) -> pa.Table:
        rows, starts = window.starts(np.asarray(panes.column(AT).cast(pa.int64())))
        expanded = _at(panes.take(rows), starts)
        return expanded if self._is_reduced_once() else self._reduce_again(expanded)

    def _is_reduced_once(self) -> bool:
        return any(part.reduce in _ONCE for part in self._reduction.parts)

    def _reduce_pending(self) -> None:
        if not self._pending:
            return
        records = pa.Table.from_batches(self._pending)
        self._pending, self._pending_records = [], 0
        if self._reduction.window is not None:
            records = _at(records, pane_starts(records.column(AT), self._reduction.window))
        self._reduced.append(self._reduce(records))
        held = sum(table.num_rows for table in self._reduced)
        if held >= 2 * self._reduced[0].num_rows + PENDING_RECORDS and not self._is_reduced_once():
            self._reduced = [self._reduce_again(pa.concat_tables(self._reduced))]

    def _reduce(self, records: pa.Table) -> pa.Table:
        wanted: list[tuple[str, pa.ChunkedArray | None, str]] = [(RECORDS, None, "count_all")]
        states: dict[str, States] = {}
        for part in self._reduction.parts:
            if part.aggregator is not None:
                states[part.name] = partial(part.aggregator.reduced, records.select(list(part.arguments)))
            elif part.reduce != "distinct":
                wanted.append((part.name, *_first_step(part, records)))
            if part.reduce == "squared_deviations":
                wanted.append((_VALUES + part.name, records.column(part.column), "count"))
        distinct = [self._distinct(records, p.column, p) for p in self._reduction.parts if p.reduce == "distinct"]
        return pa.concat_tables([self._aggregate(records, wanted, states), *distinct])

    def _reduce_again(self, reduced: pa.Table) -> pa.Table:
        wanted: list[tuple[str, pa.ChunkedArray | None, str]] = [(RECORDS, reduced.column(RECORDS), "sum")]
        states: dict[str, States] = {}
        for part in self._reduction.parts:
            if part.aggregator is not None:
                states[part.name] = partial(part.aggregator.reduced_again, reduced.column(part.name).combine_chunks())
            elif part.reduce != "distinct":
                function = _REDUCE_AGAIN[part.reduce]
                column = reduced.column(part.name)
                wanted.append((part.name, _widened(column) if function == "sum" else column, function))
        distinct = [self._distinct(reduced, p.name, p) for p in self._reduction.parts if p.reduce == "distinct"]
        return pa.concat_tables([self._aggregate(reduced, wanted, states), *distinct])

    def _aggregate(
        self,
        records: pa.Table,
        wanted: list[tuple[str, pa.ChunkedArray | None, str]],
        states: Mapping[str, States],
    ) -> pa.Table:
        """Group by key and ``at``.

        ``wanted`` has a tuple (name of the result, input, aggregation) per column. ``states`` has, for each column of
        states, what makes them of the row numbers of the groups.
        """
        if states:
            wanted.append((_ROW, pa.chunked_array([np.arange(records.num_rows)]), "list"))
        table = records.select(self._groups)
        calls: list[tuple[str | list[str], str]] = []
        for name, column, function in wanted:
            if column is None:
                calls.append(([], function))
            else:
                table = table.append_column(f"in {name}", column)
                calls.append((f"in {name}", function))
        if not self._groups:
            table = table.append_column("all", pa.repeat(pa.scalar(0, pa.int8()), records.num_rows))
        grouped = table.group_by(self._groups or ["all"], use_threads=False).aggregate(calls)
        results = grouped.columns[len(self._groups) or 1 :]
        names = [name for name, _, _ in wanted]
        columns = dict(zip([*self._groups, *names], [*grouped.columns[: len(self._groups)], *results], strict=True))
        for name in names:
            if _VALUES + name in columns:  # Arrow's variance is the mean of the squares, not their sum
                columns[name] = pc.multiply(columns[name], columns[_VALUES + name])
        for name, states_of in states.items():
            columns[name] = pa.chunked_array([states_of(columns[_ROW].combine_chunks())])
        return self._conform(columns, grouped.num_rows)

    def _distinct(self, records: pa.Table, column: str, part: PartColumn) -> pa.Table:
        """Return one row per group and distinct value; these rows count no records."""
        known = records.filter(pc.is_valid(records.column(column)))
        grouped = known.group_by([*self._groups, column], use_threads=False).aggregate([])
        columns = {name: grouped.column(name) for name in self._groups} | {part.name: grouped.column(column)}
        return self._conform(columns, grouped.num_rows)

    def _conform(self, given: dict[str, pa.ChunkedArray], rows: int) -> pa.Table:
        """Return a table in the schema of the partial results; missing parts are NULL, a missing record count is 0."""
        schema = self._reduction.schema.append(pa.field(RECORDS, pa.int64()))
        arrays = []
        for field in schema:
            if field.name in given:
                arrays.append(_narrowed(given[field.name], field))
            elif field.name == RECORDS:
                arrays.append(pa.repeat(pa.scalar(0, pa.int64()), rows))
            else:
                arrays.append(pa.nulls(rows, field.type))
        return pa.Table.from_arrays(arrays, schema=schema)


def _at(table: pa.Table, starts: NDArray[np.int64]) -> pa.Table:
    """Return the table with column ``at`` replaced by these starts of panes or windows, in microseconds."""
    index = table.schema.get_field_index(AT)
    return table.set_column(index, table.field(index), pa.array(starts).view(table.field(index).type))


def _first_step(part: PartColumn, records: pa.Table) -> tuple[pa.ChunkedArray | None, str]:
    """Return the input and the aggregation that reduce records to one part."""
    if part.reduce == "rows":
        return None, "count_all"
    column = records.column(part.column)
    if part.reduce == "sum":
        return _widened(column), "sum"
    if part.reduce == "squared_deviations":
        return _with_squares(column), "variance"
    if part.reduce == "has_nan":
        return pc.is_nan(column), "max"
    return column, part.reduce


def _with_squares(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with NaN for values whose squares are beyond a double; see ``builtin._moments``."""
    extremes = pc.min_max(column).as_py()
    if all(abs(each or 0.0) <= _LARGEST_ROOT for each in extremes.values()):
        return column
    return pc.if_else(pc.less_equal(pc.abs(column), _LARGEST_ROOT), column, np.nan)


def _widened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the input of a sum, as wider decimals if the sum could overflow: Arrow does not detect overflow."""
    if pa.types.is_decimal(column.type) and column.type.precision + len(str(len(column))) > 38:
        return column.cast(pa.decimal256(76, column.type.scale))
    if column.type != pa.int64() or not len(column):
        return column
    extremes = pc.min_max(column).as_py()
    largest = max(abs(extremes["min"] or 0), abs(extremes["max"] or 0))
    return column.cast(pa.decimal128(38, 0)) if largest * len(column) >= 1 << 63 else column


def _narrowed(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowInvalid as error:
        kind, wider = "BIGINT", "DECIMAL(38, 0)"
        if pa.types.is_decimal(field.type):
            kind, wider = f"DECIMAL({field.type.precision}, {field.type.scale})", "DOUBLE"
        message, hint = f"a sum is too large for {kind} ({error})", f"cast the summed column to {wider}"
        raise MillraceError(Problem(message, hint, field="spec.query.sql")) from None
