"""When changes of groups are emitted, apart from the operator that makes them (section 5.3.2).

The strategies differ in one thing: how long before it closes a group's row is emitted first. Until then the row is held
back, and only its newest version is kept; from then on, every change is emitted.

- *every update*: at once; nothing is held back;
- *first at the window's end*: by the delay of the watermark, since event time is ahead of the watermark by that;
- *final*: 0, when the watermark reaches the closing time. No change follows.

One operator serves several outputs, each with its strategy, so that a computation is done once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import FOREVER, OUTPUT, WEIGHT, changes_of, values_of
from millrace_jobs.queries.tables.operators.closing import CLOSING
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult, StoreFolder
from millrace_jobs.queries.tables.operators.state import SLOTS, GroupSlots, slots_of
from millrace_jobs.queries.tables.operators.timeline import group_numbers

Hold = TypeVar("Hold")


@dataclass(frozen=True)
class Emission:
    """The emission of groups, of which each has at most one row at a time; an operator on changes.

    Attributes:
        groups: schema of the changes of the groups, with ``CLOSING`` among the keys.
        keys: the columns that identify a group.
        ahead: for each output, how long before a group closes its row is emitted first, in microseconds; None is at
            once.
        slots: number of tables that the held rows of an output are cut into; it stays while the state exists.
    """

    groups: pa.Schema
    keys: tuple[str, ...]
    ahead: tuple[int | None, ...]
    slots: int = SLOTS

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the changes of the groups."""
        return (self.groups,)

    @property
    def output(self) -> pa.Schema:
        """The groups' values, with the output that each change is for."""
        return changes_of(values_of(self.groups).append(pa.field(OUTPUT, pa.int32())))

    @property
    def lag(self) -> int | None:
        """None: only the latest version of a group is emitted."""
        return None

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Take the changes of a batch, and emit what is due by the watermark; see ``TableOperator``."""

        def due(held: GroupSlots, ahead: int) -> pa.Table:
            return self._due(held, changes[0], watermark, ahead)

        return emitted_to(self.ahead, changes[0], due, store, self.groups, self.slots, self.output)

    def _due(self, held: GroupSlots, changes: pa.Table, watermark: int, ahead: int) -> pa.Table:
        """Return the changes of one output that are due, and hold back the newest rows of other groups."""
        slot_of_change = slots_of(changes, self.keys, self.slots)
        touched = np.union1d(slot_of_change, held.due(watermark))
        if not len(touched):
            return changes
        before, slot_of_before = held.read(touched)
        rows, slots = pa.concat_tables([before, changes]), np.concatenate([slot_of_before, slot_of_change])
        is_undone, replaces_emitted = self._taken_back(rows, before.num_rows)
        times = _first_times(rows, ahead)
        is_due = (times <= watermark) | replaces_emitted
        kept = ~is_undone & ~is_due
        deadlines = np.full(len(touched), FOREVER)
        np.minimum.at(deadlines, np.searchsorted(touched, slots[kept]), times[kept])
        held.write(touched, rows.filter(pa.array(kept)), slots[kept], deadlines)
        return rows.filter(pa.array(~is_undone & is_due))

    def _taken_back(self, rows: pa.Table, held: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows undo each other, since they were never emitted, and which belong to rows that were.

        The first ``held`` rows are those held back.
        """
        groups = group_numbers([rows.column(name).combine_chunks() for name in self.keys], rows.num_rows)
        is_removed = rows.column(WEIGHT).to_numpy() < 0
        is_held = np.arange(rows.num_rows) < held
        removed, was_held = np.zeros(len(groups), bool), np.zeros(len(groups), bool)
        removed[groups[is_removed]] = True
        was_held[groups[is_held]] = True
        is_undone = (removed & was_held)[groups] & (is_held | is_removed)
        return is_undone, (removed & ~was_held)[groups]


def emitted_to(
    holds: Sequence[Hold | None],
    changes: pa.Table,
    due: Callable[[GroupSlots, Hold], pa.Table],
    store: BucketStore,
    held: pa.Schema,
    slots: int,
    schema: pa.Schema,
) -> OperatorResult:
    """Return the changes of a batch for all outputs, each with the number of its output.

    Args:
        holds: what each output holds back; None is nothing.
        changes: the changes of the batch.
        due: returns those that an output emits, with what it has held back, by its entry in ``holds``.
        store: the state of the bucket.
        held: schema of the rows that are held back.
        slots: number of tables that they are cut into.
        schema: that of the result, with the column ``OUTPUT``.
    """
    made: list[pa.Table] = []
    result, wakes = OperatorResult(made), []
    for number, hold in enumerate(holds):
        emitted = changes
        if hold is not None:
            kept = GroupSlots(StoreFolder(store, f"output-{number}"), held, slots)
            emitted = due(kept, hold)
            wakes.append(kept.wake)
            result.kept += kept.rows
        if emitted.num_rows:
            numbers = pa.array(np.full(emitted.num_rows, number, np.int32))
            made.append(emitted.append_column(OUTPUT, numbers).select(schema.names).cast(schema))
    result.wake = min((wake for wake in wakes if wake is not None), default=None)
    return result


def _first_times(rows: pa.Table, ahead: int) -> NDArray[np.int64]:
    """Return the watermark at which each row is emitted first; FOREVER if its group never closes."""
    closing: NDArray[np.int64] = rows.column(CLOSING).fill_null(FOREVER).to_numpy()
    return np.where(closing == FOREVER, FOREVER, closing - ahead)
