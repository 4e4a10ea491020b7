"""Sessions of a stream: groups of records with at most a gap of event time between neighbors, as in Spark.

The paper names sessions in a footnote only. A session is from its first record to its end, a gap after its last one. A
record that touches none begins one. A record that touches one or several, whether it is out of order or not, makes one
session of all of them: their rows are taken back, and the row of the merged one replaces them. So the table is right
for any order of the records within the grace, and an emit strategy (``operators.emission``) decides what is seen.

A session closes when the watermark passes its end. It leaves the state then, and its row stays. A record is late if the
watermark has passed its own end, a gap after its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import BEGINNING, CHANGE, FOREVER, NO_TIME, WEIGHT, changes_of, normalized, with_changes
from millrace_jobs.queries.tables.operators.closing import CLOSING
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult
from millrace_jobs.queries.tables.operators.merging import MergedPart, Merger
from millrace_jobs.queries.tables.operators.state import SLOTS, GroupSlots, slots_of
from millrace_jobs.queries.tables.operators.timeline import group_numbers

START: Final = "millrace_start"
"""Column with the time of a record, or of the first one of a session, in microseconds since 1970."""

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SessionAggregate:
    """An aggregation of the records of a stream by key and session; an operator on changes.

    Its input has the keys, ``START`` and the parts as values, and its output has ``CLOSING`` beside them, the watermark
    at which the session closes. A row of the output is valid from the last record of its session on.

    Attributes:
        keys: columns that identify a group beside the session; NULL is a key like others.
        parts: columns that are merged.
        gap: the gap, in microseconds.
        slots: number of tables that the state is cut into; it stays while the state exists.
        checked: whether earlier operators have removed late records; see ``TableOperator``.
        input_lag: how far, in microseconds, the input's changes can be behind the watermark.
    """

    keys: pa.Schema
    parts: tuple[MergedPart, ...]
    gap: int
    slots: int = SLOTS
    checked: bool = False
    input_lag: int = 0

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the changes of the one input."""
        parts = (pa.field(part.name, part.type) for part in self.parts)
        return (changes_of(pa.schema([*self.keys, (START, pa.int64()), *parts])),)

    @property
    def output(self) -> pa.Schema:
        """Schema of the changes of the sessions."""
        parts = (pa.field(part.name, part.result_type) for part in self.parts)
        return changes_of(pa.schema([*self.keys, (START, pa.int64()), (CLOSING, pa.int64()), *parts]))

    @property
    def lag(self) -> int | None:
        """None: only the latest version of a session is emitted."""
        return None

    @property
    def state(self) -> pa.Schema:
        """Schema of the stored sessions."""
        columns = [field for part in self.parts for field in part.state]
        return pa.schema([*self.keys, (START, pa.int64()), (CLOSING, pa.int64()), *columns])

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Merge the records of a batch into sessions, and then close those that the watermark has passed.

        Raises ValueError for records that are removed, and OverflowError for sums that do not fit into their type.
        """
        rows, late = self._on_time(changes[0], watermark)
        state = GroupSlots(store, self.state, self.slots)
        slot_of_row = slots_of(rows, self.keys.names, self.slots)
        touched = np.union1d(slot_of_row, state.due(watermark))
        if not len(touched):
            return OperatorResult(late=late, wake=state.wake, kept=state.rows)
        held, slot_of_held = state.read(touched)
        merge = _MergedSessions(self, held, self._states_of(rows))
        emitted = merge.changes()
        kept = merge.ends > watermark
        slots = np.concatenate([slot_of_held, slot_of_row])[merge.first_row[kept]]
        deadlines = np.full(len(touched), FOREVER)
        np.minimum.at(deadlines, np.searchsorted(touched, slots), merge.ends[kept])
        state.write(touched, merge.stored(kept), slots, deadlines)
        return OperatorResult([emitted] if emitted.num_rows else [], late, state.wake, state.rows)

    def _on_time(self, rows: pa.Table, watermark: int) -> tuple[pa.Table, int]:
        """Return the records that are not late and have an event time, and the number of those that are late."""
        if (rows.column(WEIGHT).to_numpy() < 0).any():
            raise ValueError("a session loses a record, which can split it: aggregate records that are final")
        rows = rows.select(self.inputs[0].names).cast(self.inputs[0])
        starts = rows.column(START).fill_null(NO_TIME).to_numpy()
        has_time = starts > NO_TIME
        if self.checked or watermark == BEGINNING:
            return rows.filter(pa.array(has_time)), 0
        in_time = has_time & (starts + self.closes_after > watermark)
        return rows.filter(pa.array(in_time)), int(np.count_nonzero(has_time & ~in_time))

    @property
    def closes_after(self) -> int:
        """How far, in microseconds, the watermark is behind the last record of a session when it closes."""
        return self.gap + 1 + self.input_lag

    def _states_of(self, rows: pa.Table) -> pa.Table:
        """Return the states of sessions of one record each."""
        keys = [normalized(rows.column(name).combine_chunks()) for name in self.keys.names]
        starts = rows.column(START).combine_chunks()
        ends = pa.array(starts.to_numpy() + self.closes_after)
        parts = [column for part in self.parts for column in part.of_rows(rows.column(part.name).combine_chunks())]
        return pa.Table.from_arrays([*keys, starts, ends, *parts], schema=self.state)


class _MergedSessions:
    """The sessions that those held and the records of a batch make together.

    Arrays of sessions have shape ``(sessions,)``.

    Attributes:
        first_row: the first row of each session, of those held and then of the new ones.
        starts, ends: its first record, and the watermark at which it closes.
    """

    def __init__(self, operator: SessionAggregate, held: pa.Table, new: pa.Table) -> None:
        self._operator = operator
        table = pa.concat_tables([held, new])
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        self._keys = [columns[name] for name in operator.keys.names]
        self._row_starts, self._row_ends = columns[START].to_numpy(), columns[CLOSING].to_numpy()
        groups = group_numbers(self._keys, table.num_rows)
        order = np.lexsort((self._row_starts, groups))
        ends = self._row_ends[order] - operator.input_lag
        begins = _begins(groups[order], self._row_starts[order], ends)
        self._session = np.empty(len(order), np.int64)
        self._session[order] = np.cumsum(begins) - 1
        self.first_row, self.starts = order[begins], self._row_starts[order][begins]
        self.ends = np.full(len(self.starts), BEGINNING)
        np.maximum.at(self.ends, self._session, self._row_ends)
        self._is_held = np.arange(table.num_rows) < held.num_rows
        ones = np.ones(table.num_rows, np.int64)
        self._mergers = [part.merger([columns[each.name] for each in part.state], ones) for part in operator.parts]
        self._merged = [
            merger.settled([self._of_sessions(array, merger) for array in merger.arrays]) for merger in self._mergers
        ]

    def _of_sessions(self, array: NDArray[Any], merger: Merger) -> NDArray[Any]:
        merged = np.full(len(self.starts), merger.identity, array.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            merger.ufunc.at(merged, self._session, array)
        return merged

    def changes(self) -> pa.Table:
        """Return the rows of sessions that are taken back, and those that replace them."""
        is_new = np.zeros(len(self.starts), bool)
        is_new[self._session[~self._is_held]] = True
        old, new = np.flatnonzero(self._is_held & is_new[self._session]), np.flatnonzero(is_new)
        parts = [
            merger.result([np.append(one[old], other[new]) for one, other in zip(merger.arrays, merged, strict=True)])
            for merger, merged in zip(self._mergers, self._merged, strict=True)
        ]
        rows = pa.array(np.append(old, self.first_row[new]))
        starts = np.append(self._row_starts[old], self.starts[new])
        ends = np.append(self._row_ends[old], self.ends[new])
        values = [*(key.take(rows) for key in self._keys), pa.array(starts), pa.array(ends), *parts]
        names = self._operator.output.names[: -len(CHANGE)]
        schema = pa.schema([self._operator.output.field(name) for name in names])
        weights = np.repeat(np.array([-1, 1]), [len(old), len(new)])
        since = ends - self._operator.closes_after
        return with_changes(pa.Table.from_arrays(values, schema=schema), since, np.full(len(ends), FOREVER), weights)

    def stored(self, sessions: Mask) -> pa.Table:
        """Return the state of some sessions."""
        rows = pa.array(self.first_row[sessions])
        columns = [key.take(rows) for key in self._keys]
        columns += [pa.array(self.starts[sessions]), pa.array(self.ends[sessions])]
        for merger, merged in zip(self._mergers, self._merged, strict=True):
            columns += merger.stored([array[sessions] for array in merged])
        return pa.Table.from_arrays(columns, schema=self._operator.state)


def _begins(groups: Integers, starts: Integers, ends: Integers) -> Mask:
    """Return which rows begin a session; they are in order of their groups, and then of their starts.

    ``ends`` are the first times that touch them no more.
    """
    ranks = np.unique(ends, return_inverse=True)[1] + groups * len(ends)
    latest = np.maximum.accumulate(ranks) - groups * len(ends)  # a later group has higher ranks
    begins = np.ones(len(starts), bool)
    reached = np.unique(ends)[latest[:-1]]
    begins[1:] = (groups[1:] != groups[:-1]) | (starts[1:] >= reached)
    return begins
