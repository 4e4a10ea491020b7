"""Aggregation of a stream or a table to a table (definitions 64, 66 and 73), over changes and incrementally.

A record of a stream counts in its group from its time on. A row of a table counts in its period: it is added at the
start and subtracted at the end. A group exists in the versions in which its rows' weights sum up to more than 0. With
``versions``, the state has the versions of each group, and a row that arrives out of order corrects all later ones
(algorithm 5). Without, all rows are taken to begin at the beginning of time, so that there is one version.

**Retention.** Of the versions up to the watermark, each group keeps the last: its row is the only one of them whose
period has not ended, so that no row changes that other operators may have forgotten. Records that begin before the
watermark are late if groups have no window. Records of a window that is open, rows of tables and retractions are not:
they count from the watermark on. The state of a window is removed when the watermark reaches its end, and its rows are
late from then on. Versions that are not needed any more are removed when half of a slot consists of them, so that a
batch does not rewrite all slots to remove a few rows.

An input that earlier operators have ``checked`` brings no row before the watermark of the batch before, less the lag of
the input, by which the watermark is taken back. So no row is late or moved, even if it is before the present watermark.

**Final results.** With ``final``, the rows of a window are emitted once, when the watermark reaches its end; until
then, all its versions are kept. Without a window, a version is emitted when the watermark has passed its start. Its row
is in ``[start, FOREVER)`` until the next version of the group is final, and then in ``[start, next)``, which takes the
usual changes: -1 and +1. What was emitted is thus the table up to the watermark. When a group ends, its last period is
closed. A consumer that wants upserts by key reads the added rows that end at FOREVER; a removed row that ends at
FOREVER and has no successor is a delete. The values of a final version never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_jobs.changes import (
    BEGINNING,
    CHANGE,
    FOREVER,
    FROM,
    NO_TIME,
    WEIGHT,
    changes_of,
    net,
    normalized,
    periods,
    with_changes,
)
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult
from millrace_jobs.queries.tables.operators.merged_states import MergedStates
from millrace_jobs.queries.tables.operators.merging import MAX_WEIGHT, Arrays, MergedPart, MergeUfunc
from millrace_jobs.queries.tables.operators.state import SLOTS, GroupSlots, slots_of
from millrace_jobs.queries.tables.operators.timeline import Timeline, group_numbers
from millrace_jobs.shown_values import shown_value

__all__ = ["GroupedAggregate", "MergedPart"]

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

ROWS: Final = "millrace_rows"
"""Column of the state with the number of rows of a group."""

EMITTED: Final = "millrace_emitted"
"""Column of the state that says which versions were emitted, if only final versions are, and groups have no window."""


@dataclass(frozen=True)
class GroupedAggregate:
    """An aggregation by key; its input and its output have the keys and the parts as values.

    A part that an aggregator merges is a state in the input, and a result in the output.

    Attributes:
        keys: columns that identify a group; NULL is a key like others. Without keys, all rows are one group.
        parts: columns that are merged.
        window_end: key column (int64, microseconds) with the end of the group's window, or None.
        of_table: whether input rows are rows of a table, valid in their periods, or records of a stream at their start.
        versions: whether to keep and emit every version by event time, or only the latest version.
        final: whether to emit only what can no longer change, or every change.
        slots: number of tables that the state is cut into; it stays while the state exists.
        checked: whether earlier operators have removed late rows; see ``TableOperator``.
        input_lag: how far, in microseconds, the input's changes can be behind the watermark; see ``TableOperator``.
        ends: whether the row of a group ends with its window, or stays.
    """

    keys: pa.Schema
    parts: tuple[MergedPart | MergedStates, ...]
    window_end: str | None
    of_table: bool
    versions: bool
    final: bool
    slots: int = SLOTS
    checked: bool = False
    input_lag: int = 0
    ends: bool = False

    def __post_init__(self) -> None:
        parts = [field.name for part in self.parts for field in part.state]
        names = [*self.keys.names, *parts, *CHANGE.names, ROWS, EMITTED]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(f"an aggregation has several columns named {min(repeated)!r}: rename all but one")
        times = [field.name for field in self.keys if field.type == pa.int64()]
        if self.window_end is not None and self.window_end not in times:
            raise ValueError(f"the end of a window, {self.window_end!r}, must be a key of type int64, in microseconds")
        if self.final and self.window_end is None and not self.versions:
            raise ValueError(
                "without a window, the latest version is never final: keep all versions, or set final=False"
            )
        if self.ends and self.window_end is None:
            raise ValueError("without a window, no row ends: set ends=False")
        extreme = next((part for part in self.parts if part.merge != "sum"), None)
        if self.of_table and extreme is not None:
            raise ValueError(
                f"{_irreversible(extreme)}, and a table removes rows: aggregate a stream of records instead"
            )
        states = next((part for part in self.parts if isinstance(part, MergedStates)), None)
        if self.versions and states is not None:
            raise ValueError(f"{states.name!r} is merged by an aggregator, which keeps one version: set versions=False")
        if self.slots < 1:
            raise ValueError(f"the state must have at least one slot: {self.slots}: use the default")
        slots_of(self.keys.empty_table(), self.keys.names, self.slots)  # refuses types without a hash

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the changes of the one input."""
        return (changes_of(pa.schema([*self.keys, *(pa.field(part.name, part.type) for part in self.parts)])),)

    @property
    def output(self) -> pa.Schema:
        """Schema of the changes of the result."""
        return changes_of(pa.schema([*self.keys, *(pa.field(part.name, part.result_type) for part in self.parts)]))

    @property
    def lag(self) -> int | None:
        """The lag of the input. The versions of a window that is final are as old as the window, and have no limit."""
        return None if not self.versions or (self.final and self.window_end is not None) else self.input_lag

    @property
    def state(self) -> pa.Schema:
        """Schema of the stored versions of groups."""
        emitted = [pa.field(EMITTED, pa.bool_())] if self.final and self.window_end is None else []
        columns = [field for part in self.parts for field in part.state]
        return pa.schema([*self.keys, *columns, (ROWS, pa.int64()), (FROM, pa.int64()), *emitted])

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Merge a batch into its groups, and then close or collapse what the watermark has passed.

        Raises ValueError for rows that are removed but were never added, or that are removed from a minimum or maximum,
        and OverflowError for sums that do not fit into their type.
        """
        watermark = max(watermark - self.input_lag, BEGINNING)
        rows, late = self._on_time(self._read(changes[0]), watermark)
        rows = self._contributions(rows)
        state = GroupSlots(store, self.state, self.slots)
        slot_of_row = slots_of(rows, self.keys.names, self.slots)
        touched = np.union1d(slot_of_row, state.due(watermark))
        if not len(touched):
            return OperatorResult(late=late, wake=self._wake(state), kept=state.rows)
        held, slot_of_held = state.read(touched)
        merge = _Merge(self, held, rows, watermark)
        emitted = merge.emitted()
        kept = np.flatnonzero(merge.kept)
        slot_of_kept = np.concatenate([slot_of_held, slot_of_row])[merge.timeline.row[kept]]
        state.write(touched, merge.stored(kept), slot_of_kept, merge.deadlines(kept, slot_of_kept, touched))
        return OperatorResult([emitted] if emitted.num_rows else [], late, self._wake(state), state.rows)

    def _wake(self, state: GroupSlots) -> int | None:
        return None if state.wake is None else state.wake + self.input_lag

    def _read(self, rows: pa.Table) -> pa.Table:
        rows = rows.select(self.output.names).cast(self.inputs[0])
        for position, field in enumerate(self.keys):
            if pa.types.is_floating(field.type):
                rows = rows.set_column(position, field, normalized(rows.column(position).combine_chunks()))
        return rows

    def _on_time(self, rows: pa.Table, watermark: int) -> tuple[pa.Table, int]:
        """Return the rows that are not late, and the number of those that are."""
        if self.checked:
            return rows, 0
        if self.window_end is not None:
            late = pc.less_equal(rows.column(self.window_end).fill_null(FOREVER), watermark)
        elif self.versions and not self.of_table:
            is_behind = pc.and_(pc.less(rows.column(FROM), watermark), pc.not_equal(rows.column(FROM), NO_TIME))
            late = pc.and_(is_behind, pc.greater(rows.column(WEIGHT), 0))
        else:
            return rows, 0
        on_time = rows.filter(pc.invert(late))
        return on_time, rows.num_rows - on_time.num_rows

    def _contributions(self, rows: pa.Table) -> pa.Table:
        """Return the same changes with rows that never end: a row with an end is one from its start less one from it.

        Rows that are added and removed cancel out before they are summed up, since floats would leave a difference.
        """
        values, weights = rows.select(self.output.names[: -len(CHANGE)]), rows.column(WEIGHT).to_numpy()
        starts, ends = periods(rows)
        if self.of_table:
            ended = ends < FOREVER
            if self.versions:
                values = pa.concat_tables([values, values.filter(ended)])
                starts, weights = np.append(starts, ends[ended]), np.append(weights, -weights[ended])
            else:
                values, starts, weights = values.filter(~ended), starts[~ended], weights[~ended]
        if not self.versions:
            starts = np.full(len(starts), BEGINNING)
        contributions = with_changes(values, starts, np.full(len(starts), FOREVER), weights)
        return net(contributions) if self.of_table or (weights < 0).any() else contributions

    def states_of(self, rows: pa.Table) -> pa.Table:
        """Return the states of groups of one row each, with the starts of the rows."""
        parts = [part.of_rows(rows.column(part.name).combine_chunks()) for part in self.parts]
        columns = [*rows.select(self.keys.names).columns, *(column for part in parts for column in part)]
        columns += [pa.array(np.ones(rows.num_rows, np.int64)), rows.column(FROM)]
        if EMITTED in self.state.names:
            columns.append(pa.array(np.zeros(rows.num_rows, bool)))
        return pa.Table.from_arrays(columns, schema=self.state)


class _Merge:
    """The contributions of a batch, merged into the versions of the groups of some slots.

    All arrays have one element for each version of ``timeline``. ``_before`` has, for each part, the arrays of the
    state that is held for a version or, without one, of the state that it follows; ``_after`` has them with
    contributions.
    """

    def __init__(self, aggregate: GroupedAggregate, held: pa.Table, rows: pa.Table, watermark: int) -> None:
        self._aggregate, self._watermark = aggregate, watermark
        weights = _checked_weights(aggregate, rows)
        table = pa.concat_tables([held, aggregate.states_of(rows)])
        self._columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        self._keys = [self._columns[name] for name in aggregate.keys.names]
        groups = group_numbers(self._keys, table.num_rows)
        self.timeline = Timeline(groups, self._starts(held.num_rows))

        held_row = np.full(len(self.timeline.row), -1)
        held_row[self.timeline.of_row[: held.num_rows]] = np.arange(held.num_rows)
        self._held = held_row >= 0
        followed = self.timeline.last(self._held)
        self._followed_row = np.where(followed >= 0, held_row[followed], -1)
        self._new_rows = slice(held.num_rows, None)

        weights = np.append(np.ones(held.num_rows, np.int64), weights)
        counts = self._columns[ROWS].to_numpy() * weights
        self._rows_before, self._rows = self._before_and_after(counts, np.add, 0)
        if (self._rows < 0).any():
            group = [shown_value(column[self.timeline.row[np.argmin(self._rows)]]) for column in self._keys]
            raise ValueError(f"more rows are removed from group {group} than were added: send each change exactly once")
        self._exists = self._rows > 0
        self._merge_parts(weights)
        self._decide()

    def _starts(self, held: int) -> Integers:
        """Return the starts of all rows; new ones count from the watermark on unless they are checked."""
        starts: Integers = self._columns[FROM].to_numpy().copy()
        if self._collapses and not self._aggregate.checked:
            starts[held:] = np.maximum(starts[held:], self._watermark)
        return starts

    @property
    def _collapses(self) -> bool:
        return self._aggregate.versions and not (self._aggregate.final and self._aggregate.window_end is not None)

    def _passed(self, starts: Integers) -> Mask:
        """Return which versions start so early that only the last of them is needed.

        That is the version at the watermark. Of final versions it is the one before: the last that was emitted.
        """
        return starts < self._watermark if self._aggregate.final else starts <= self._watermark

    def _before_and_after(
        self, array: NDArray[np.int64], ufunc: MergeUfunc, identity: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        before = np.where(self._followed_row >= 0, array[self._followed_row], identity)
        added = np.full(len(before), identity, before.dtype)
        ufunc.at(added, self.timeline.of_row[self._new_rows], array[self._new_rows])
        return before, ufunc(before, self.timeline.merged(ufunc, added))

    def _merge_parts(self, weights: Integers) -> None:
        self._before: list[Arrays] = []
        self._after: list[Arrays] = []
        self._mergers = [
            part.merger([self._columns[field.name] for field in part.state], weights) for part in self._aggregate.parts
        ]
        for merger in self._mergers:
            with np.errstate(over="ignore", invalid="ignore"):
                both = [self._before_and_after(array, merger.ufunc, merger.identity) for array in merger.arrays]
            self._before.append([before for before, _ in both])
            after = [np.where(self._exists, after, after.dtype.type(merger.identity)) for _, after in both]
            self._after.append(merger.settled(after))

    def _decide(self) -> None:
        """Decide which versions were emitted before, which are now, and which are kept in the state."""
        aggregate, timeline, watermark = self._aggregate, self.timeline, self._watermark
        merged = [array.view(np.int64) for array in (self._rows, *(array for part in self._after for array in part))]
        repeats = np.logical_and.reduce([np.append(False, array[1:] == array[:-1]) for array in merged])
        if self._collapses:  # a row whose period has ended stays: other operators may have forgotten it, too
            repeats &= ~self._passed(timeline.start)
        distinct = np.where(timeline.first == np.arange(len(repeats)), self._exists, ~repeats)
        self._was_emitted, self._is_emitted, self.kept = self._held, distinct, distinct
        if self._collapses:
            needed = distinct & ~self._passed(timeline.ends(distinct))
            self.kept = needed & (self._exists | ~timeline.leading(needed))
        if aggregate.window_end is not None:
            closed = self._window_ends() <= watermark
            self.kept = self.kept & ~closed
            if aggregate.final:
                self._was_emitted, self._is_emitted = np.zeros(len(closed), bool), distinct & closed
        elif aggregate.final:
            emitted = self._columns[EMITTED].to_numpy(zero_copy_only=False)
            self._was_emitted = self._held & emitted[self._followed_row]
            self._is_emitted = distinct & (timeline.start < watermark)

    def _window_ends(self) -> Integers:
        ends: Integers = self._columns[str(self._aggregate.window_end)].fill_null(FOREVER).to_numpy()
        return ends[self.timeline.row]

    def emitted(self) -> pa.Table:
        """Return the difference between what was emitted before and what is now."""
        ends_before, ends = self.timeline.ends(self._was_emitted), self.timeline.ends(self._is_emitted)
        if self._aggregate.ends:
            closing = self._window_ends()
            ends = np.where((ends == FOREVER) & (closing <= self._watermark), closing, ends)
        removed, added = self._was_emitted & (self._rows_before > 0), self._is_emitted & self._exists
        same = removed & added & (ends_before == ends)
        for merger, before, after in zip(self._mergers, self._before, self._after, strict=True):
            same &= merger.same(before, after)
        old, new = np.flatnonzero(removed & ~same), np.flatnonzero(added & ~same)
        both = np.append(old, new)
        parts = [
            merger.result([np.append(one[old], other[new]) for one, other in zip(before, after, strict=True)])
            for merger, before, after in zip(self._mergers, self._before, self._after, strict=True)
        ]
        columns = [*self._keys_of(both), *parts, pa.array(self.timeline.start[both])]
        columns += [
            pa.array(np.append(ends_before[old], ends[new])),
            pa.array(np.repeat([-1, 1], [len(old), len(new)])),
        ]
        return pa.Table.from_arrays(columns, schema=self._aggregate.output)

    def stored(self, versions: Integers) -> pa.Table:
        """Return the state of some versions."""
        columns = self._keys_of(versions)
        for merger, arrays in zip(self._mergers, self._after, strict=True):
            columns += merger.stored([array[versions] for array in arrays])
        columns += [pa.array(self._rows[versions]), pa.array(self.timeline.start[versions])]
        if EMITTED in self._columns:
            columns.append(pa.array(self._is_emitted[versions]))
        return pa.Table.from_arrays(columns, schema=self._aggregate.state)

    def _keys_of(self, versions: Integers) -> list[pa.Array]:
        rows = pa.array(self.timeline.row[versions])
        return [column.take(rows) for column in self._keys]

    def deadlines(self, versions: Integers, slot_of_version: Integers, slots: Integers) -> Integers:
        """Return the earliest watermark at which each slot has something to do without input."""
        deadlines = np.full(len(slots), FOREVER)
        if self._aggregate.window_end is not None:
            deadlines = _passing(self._window_ends()[versions], slot_of_version, slots)
        elif self._aggregate.final:
            emission = np.where(self._is_emitted, FOREVER, self.timeline.start + 1)
            return _passing(emission[versions], slot_of_version, slots)
        if self._collapses:
            ends = self.timeline.ends(self.kept)
            deadlines = np.minimum(deadlines, _passing(ends[versions], slot_of_version, slots, half=True))
        return deadlines


def _passing(times: Integers, slot_of_time: Integers, slots: Integers, *, half: bool = False) -> Integers:
    """Return when the first of each slot's times passes or, with ``half``, when at least half of them have."""
    order = np.lexsort((times, slot_of_time))
    begin, end = np.searchsorted(slot_of_time[order], np.stack([slots, slots + 1]))
    position = begin + (end - begin - 1) // 2 if half else begin
    found = np.append(times[order], FOREVER)[np.minimum(position, len(order))]
    return np.where(end > begin, found, FOREVER)


def _checked_weights(aggregate: GroupedAggregate, rows: pa.Table) -> Integers:
    weights: Integers = rows.column(WEIGHT).to_numpy()
    extreme = next((part for part in aggregate.parts if part.merge != "sum"), None)
    if extreme is not None and (weights < 0).any():
        raise ValueError(f"{_irreversible(extreme)}, but the input removes rows: aggregate a stream of records instead")
    if np.abs(weights.astype(np.float64)).sum() > MAX_WEIGHT:
        raise ValueError(f"the weights of a batch's changes sum up to more than {MAX_WEIGHT}: use smaller batches")
    return weights


def _irreversible(part: MergedPart | MergedStates) -> str:
    return f"column {part.name!r} is merged by {part.merge}, from which no row can be removed"
