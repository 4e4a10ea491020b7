"""The versions of groups after a batch: what its rows add to them, and which of them are emitted and stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import BEGINNING, FOREVER, FROM, WEIGHT
from millrace_jobs.queries.tables.operators.counted_values import COUNT, VALUE, CountedPart, CountedValues, Entries
from millrace_jobs.queries.tables.operators.merging import MAX_WEIGHT, Arrays, Merger, MergeUfunc
from millrace_jobs.queries.tables.operators.timeline import Timeline, group_numbers
from millrace_jobs.shown_values import shown_value

if TYPE_CHECKING:
    from millrace_jobs.queries.tables.operators.aggregate import GroupedAggregate

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

ROWS: Final = "millrace_rows"
"""Column of the state with the number of rows of a group."""

EMITTED: Final = "millrace_emitted"
"""Column of the state that says which versions were emitted, if only final versions are, and groups have no window."""


@dataclass(frozen=True)
class SlotRows:
    """Rows of the state, or for it, and the slot of each; shape ``(rows,)``."""

    rows: pa.Table
    slots: Integers


class VersionMerge:
    """The contributions of a batch, merged into the versions of the groups of some slots.

    All arrays have one element for each version of ``timeline``. ``_before`` has, for each part, the arrays of the
    state that is held for a version or, without one, of the state that it follows; ``_after`` has them with
    contributions.
    """

    def __init__(
        self,
        aggregate: GroupedAggregate,
        held: SlotRows,
        rows: SlotRows,
        watermark: int,
        values: Sequence[SlotRows],
    ) -> None:
        self._aggregate, self._watermark = aggregate, watermark
        marks = [_marks(aggregate, each) for each in values] if aggregate.versions else []
        self._slots = np.concatenate([held.slots, rows.slots, *(each.slots for each in marks)])
        self._rows_of_batch, self._values = rows, values
        added = pa.concat_tables([rows.rows, *(each.rows for each in marks)])
        weights = _checked_weights(aggregate, added)
        table = pa.concat_tables([held.rows, aggregate.states_of(added)])
        self._columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        self._keys = [self._columns[name] for name in aggregate.keys.names]
        before = held.rows.num_rows
        batch = slice(before, before + rows.rows.num_rows)
        groups = _group_numbers(aggregate.keys.names, [table, *(each.rows for each in values)])
        self.timeline = Timeline(groups[0], self._starts(batch))

        held_row = np.full(len(self.timeline.row), -1)
        held_row[self.timeline.of_row[:before]] = np.arange(before)
        self._held = held_row >= 0
        self._is_mark = ~self._held
        self._is_mark[self.timeline.of_row[batch]] = False
        followed = self.timeline.last(self._held)
        self._followed_row = np.where(followed >= 0, held_row[followed], -1)
        self._new_rows = slice(before, None)
        self._new_groups, self._value_groups = groups[0][batch], groups[1:]

        weights = np.append(np.ones(before, np.int64), weights)
        counts = self._columns[ROWS].to_numpy() * weights
        self._rows_before, self._rows = self._before_and_after(counts, np.add, 0)
        if (self._rows < 0).any():
            group = [shown_value(column[self.timeline.row[np.argmin(self._rows)]]) for column in self._keys]
            raise ValueError(f"more rows are removed from group {group} than were added: send each change exactly once")
        self._exists = self._rows > 0
        self._merge_parts(weights)
        self._decide()

    def _starts(self, batch: slice) -> Integers:
        """Return the starts of all rows; those of the batch count from the watermark on unless they are checked."""
        starts: Integers = self._columns[FROM].to_numpy().copy()
        if not self._aggregate.versions:
            starts[:] = BEGINNING
        elif self._collapses and not self._aggregate.checked:
            starts[batch] = np.maximum(starts[batch], self._watermark)
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
        self._mergers: list[Merger] = []
        self._counted: list[CountedValues] = []
        for part in self._aggregate.parts:
            columns = [self._columns[field.name] for field in part.state]
            if isinstance(part, CountedPart):
                values = CountedValues(part, columns[0], self._entries(part), self.timeline)
                if not part.values_of:
                    self._counted.append(values)
                merger = values.merger
                followed = self._followed_row
                before = [np.where(followed >= 0, each[followed], merger.identity) for each in merger.arrays]
                after = values.merged(versions=self._aggregate.versions)
            else:
                merger = part.merger(columns, weights)
                with np.errstate(over="ignore", invalid="ignore"):
                    both = [self._before_and_after(array, merger.ufunc, merger.identity) for array in merger.arrays]
                before, after = [each for each, _ in both], [each for _, each in both]
            self._mergers.append(merger)
            self._before.append(merger.settled(before))
            after = [np.where(self._exists, each, each.dtype.type(merger.identity)) for each in after]
            self._after.append(merger.settled(after))

    def _entries(self, part: CountedPart) -> Entries:
        """Return the entries of a part: those that were held, and those of the batch."""
        name = part.values_of or part.name
        place = [each.name for each in self._aggregate.counted].index(name)
        held, rows = self._values[place], self._rows_of_batch
        column = rows.rows.column(name).combine_chunks()
        valid = np.flatnonzero(column.is_valid())
        starts = self.timeline.start[self.timeline.of_row[self._new_rows][valid]]
        if part.settles and not self._aggregate.versions:  # versions have no times, which say when a value settles
            starts = rows.rows.column(FROM).to_numpy()[valid]
        return Entries(
            pa.concat_arrays([held.rows.column(VALUE).combine_chunks(), column.take(pa.array(valid))]),
            np.append(self._value_groups[place], self._new_groups[valid]),
            np.append(held.rows.column(FROM).to_numpy(), starts),
            np.append(held.rows.column(COUNT).to_numpy(), rows.rows.column(WEIGHT).to_numpy()[valid]),
            np.append(held.slots, rows.slots[valid]),
        )

    def _decide(self) -> None:
        """Decide which versions were emitted before, which are now, and which are kept in the state."""
        aggregate, timeline, watermark = self._aggregate, self.timeline, self._watermark
        merged = [array.view(np.int64) for array in (self._rows, *(array for part in self._after for array in part))]
        repeats = np.logical_and.reduce([np.append(False, array[1:] == array[:-1]) for array in merged])
        if self._collapses:  # a row whose period has ended stays: other operators may have forgotten it, too
            repeats &= ~self._passed(timeline.start) | self._is_mark
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

    def stored(self, slots: Integers) -> tuple[pa.Table, Integers, Integers]:
        """Return the versions to store in these slots, the slot of each, and the deadline of each slot."""
        versions = np.flatnonzero(self.kept)
        columns = self._keys_of(versions)
        for merger, arrays in zip(self._mergers, self._after, strict=True):
            columns += merger.stored([array[versions] for array in arrays])
        columns += [pa.array(self._rows[versions]), pa.array(self.timeline.start[versions])]
        if EMITTED in self._columns:
            columns.append(pa.array(self._is_emitted[versions]))
        slot_of_version = self._slots[self.timeline.row[versions]]
        deadlines = self._deadlines(versions, slot_of_version, slots)
        return pa.Table.from_arrays(columns, schema=self._aggregate.state), slot_of_version, deadlines

    def stored_entries(self, slots: Integers) -> Iterator[tuple[pa.Table, Integers, Integers]]:
        """Yield the entries to store of each counted part, as ``stored`` does for versions."""
        aggregate = self._aggregate
        closed = np.zeros(len(self.timeline.row), bool)
        if aggregate.window_end is not None:
            closed = self._window_ends() <= self._watermark
        for part, values in zip(aggregate.counted, self._counted, strict=True):
            kept = values.stored(partial(self._is_collapsed, part), closed)
            keys = self._keys_of(self.timeline.begin(kept.groups))
            columns = [*keys, kept.values, pa.array(kept.starts), pa.array(kept.counts)]
            rows = pa.Table.from_arrays(columns, schema=part.entries(aggregate.keys))
            yield rows, kept.slots, _passing(self._removals(kept, part), kept.slots, slots, share=4)

    def _removals(self, entries: Entries, part: CountedPart) -> Integers:
        """Return the watermark at which each entry is removed, settled or with those that it takes back."""
        if self._aggregate.versions and not self._collapses:
            return np.full(len(entries.starts), FOREVER)
        if part.settles_after is not None:
            return np.where(entries.starts == BEGINNING, FOREVER, entries.starts + part.settles_after + 1)
        return np.where(entries.counts < 0, entries.starts + self._aggregate.final, FOREVER)

    def _is_collapsed(self, part: CountedPart, starts: Integers) -> Mask:
        """Return which entries count in all versions that can still change."""
        if self._aggregate.versions and not self._collapses:
            return np.zeros(len(starts), bool)
        if part.settles_after is not None:
            return starts < self._watermark - part.settles_after
        return self._passed(starts) if self._aggregate.versions else np.ones(len(starts), bool)

    def _keys_of(self, versions: Integers) -> list[pa.Array]:
        rows = pa.array(self.timeline.row[versions])
        return [column.take(rows) for column in self._keys]

    def _deadlines(self, versions: Integers, slot_of_version: Integers, slots: Integers) -> Integers:
        """Return the earliest watermark at which each slot has something to do without input."""
        deadlines = np.full(len(slots), FOREVER)
        if self._aggregate.window_end is not None:
            deadlines = _passing(self._window_ends()[versions], slot_of_version, slots)
        elif self._aggregate.final:
            emission = np.where(self._is_emitted, FOREVER, self.timeline.start + 1)
            return _passing(emission[versions], slot_of_version, slots)
        if self._collapses:
            ends = self.timeline.ends(self.kept)
            deadlines = np.minimum(deadlines, _passing(ends[versions], slot_of_version, slots, share=2))
        return deadlines


def _passing(times: Integers, slot_of_time: Integers, slots: Integers, *, share: int | None = None) -> Integers:
    """Return when the first of each slot's times passes or, with a ``share``, at least one in so many of them."""
    order = np.lexsort((times, slot_of_time))
    begin, end = np.searchsorted(slot_of_time[order], np.stack([slots, slots + 1]))
    position = begin if share is None else begin + (end - begin - 1) // share
    found = np.append(times[order], FOREVER)[np.minimum(position, len(order))]
    return np.where(end > begin, found, FOREVER)


def _marks(aggregate: GroupedAggregate, held: SlotRows) -> SlotRows:
    """Return rows that add nothing where entries begin, for versions to begin there.

    A version that repeats the one before is not stored, but it can differ once another version has changed.
    """
    begins = held.rows.column(FROM).to_numpy() != BEGINNING
    rows = held.rows.filter(pa.array(begins))
    nothing = [pa.nulls(rows.num_rows, part.type) for part in aggregate.parts]
    columns = [
        rows.column(FROM),
        pa.array(np.full(rows.num_rows, FOREVER)),
        pa.array(np.zeros(rows.num_rows, np.int64)),
    ]
    marks = [*rows.select(aggregate.keys.names).columns, *nothing, *columns]
    return SlotRows(pa.Table.from_arrays(marks, schema=aggregate.inputs[0]), held.slots[begins])


def _group_numbers(keys: Sequence[str], tables: Sequence[pa.Table]) -> list[Integers]:
    """Return the numbers of the groups of the rows of each table."""
    rows = [table.num_rows for table in tables]
    columns = [pa.concat_arrays([chunk for table in tables for chunk in table.column(name).chunks]) for name in keys]
    return np.split(group_numbers(columns, sum(rows)), np.cumsum(rows)[:-1])


def _checked_weights(aggregate: GroupedAggregate, rows: pa.Table) -> Integers:
    weights: Integers = rows.column(WEIGHT).to_numpy()
    irreversible = aggregate.irreversible
    if irreversible is not None and (weights < 0).any():
        raise ValueError(f"{irreversible}, but the input removes rows: aggregate a stream of records instead")
    if np.abs(weights.astype(np.float64)).sum() > MAX_WEIGHT:
        raise ValueError(f"the weights of a batch's changes sum up to more than {MAX_WEIGHT}: use smaller batches")
    return weights
