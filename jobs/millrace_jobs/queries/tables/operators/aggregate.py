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

**Counted values.** A minimum or maximum of rows that can be taken back is computed from the values of a group, which
are state of their own (``counted_values``), in the slot of the group.

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
from millrace_jobs.queries.tables.operators.counted_values import CountedPart
from millrace_jobs.queries.tables.operators.deviations import DeviationPart
from millrace_jobs.queries.tables.operators.group_versions import EMITTED, ROWS, SlotRows, VersionMerge
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult, StoreFolder
from millrace_jobs.queries.tables.operators.merged_states import MergedStates
from millrace_jobs.queries.tables.operators.merging import MergedPart
from millrace_jobs.queries.tables.operators.state import SLOTS, GroupSlots, slots_of

__all__ = ["CountedPart", "DeviationPart", "GroupPartColumn", "GroupedAggregate", "MergedPart"]

GroupPartColumn = MergedPart | MergedStates | DeviationPart | CountedPart
"""A column with a part of an aggregate."""

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


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
    parts: tuple[GroupPartColumn, ...]
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
        if self.of_table and self.irreversible is not None:
            raise ValueError(f"{self.irreversible}, and a table removes rows: aggregate a stream of records instead")
        shared = {(part.name, part.type) for part in self.counted if not part.settles}
        for part in self.parts:
            if isinstance(part, CountedPart) and part.values_of and (part.values_of, part.type) not in shared:
                raise ValueError(
                    f"column {part.name!r} shares the values of {part.values_of!r}, which has not all values of that "
                    "type: leave values_of out"
                )
        states = next((part for part in self.parts if isinstance(part, MergedStates)), None)
        if self.versions and states is not None:
            raise ValueError(f"{states.name!r} is merged by an aggregator, which keeps one version: set versions=False")
        if self.slots < 1:
            raise ValueError(f"the state must have at least one slot: {self.slots}: use the default")
        slots_of(self.keys.empty_table(), self.keys.names, self.slots)  # refuses types without a hash

    @property
    def irreversible(self) -> str | None:
        """The reason that no row can be removed from a part; None without one."""
        reasons = (
            f"column {part.name!r} is merged by {part.merge}, from which no row can be removed"
            for part in self.parts
            if not part.takes_back
        )
        return next(reasons, None)

    @property
    def counted(self) -> tuple[CountedPart, ...]:
        """The parts with entries of their own."""
        return tuple(part for part in self.parts if isinstance(part, CountedPart) and not part.values_of)

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
        values = [
            GroupSlots(StoreFolder(store, part.name), part.entries(self.keys), self.slots) for part in self.counted
        ]
        slot_of_row = slots_of(rows, self.keys.names, self.slots)
        touched = slot_of_row
        for each in (state, *values):
            touched = np.union1d(touched, each.due(watermark))
        made = []
        if len(touched):
            held, *held_values = (SlotRows(*each.read(touched)) for each in (state, *values))
            merge = VersionMerge(self, held, SlotRows(rows, slot_of_row), watermark, held_values)
            emitted = merge.emitted()
            made = [emitted] if emitted.num_rows else []
            state.write(touched, *merge.stored(touched))
            for each, entries in zip(values, merge.stored_entries(touched), strict=True):
                each.write(touched, *entries)
        wakes = [each.wake + self.input_lag for each in (state, *values) if each.wake is not None]
        kept = sum(each.rows for each in (state, *values))
        return OperatorResult(made, late, min(wakes, default=None), kept)

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
        if not self.versions and not any(part.settles for part in self.counted):
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
