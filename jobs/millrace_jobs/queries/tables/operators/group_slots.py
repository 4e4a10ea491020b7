"""State in slots: one table in a bucket's store, cut by the hash of its keys, so that a batch rewrites a part of it.

An index, which is the only table that every batch reads, has the slots that exist, and the watermark at which each has
something to do without input. The number of slots belongs to the layout of the state: it stays while the state exists.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import FOREVER
from millrace_jobs.queries.tables.operators.operator import BucketStore

Integers = NDArray[np.int64]

_INDEX: Final = "index"
_INDEX_COLUMNS: Final = pa.schema([("slot", pa.int64()), ("deadline", pa.int64()), ("rows", pa.int64())])


class GroupSlots:
    """The slots of a table with one schema; slots without rows have no table."""

    def __init__(self, store: BucketStore, schema: pa.Schema, slots: int) -> None:
        self._store, self._schema = store, schema
        self._deadlines, self._rows = np.full(slots, FOREVER), np.zeros(slots, np.int64)
        index = store.get(_INDEX, _INDEX_COLUMNS)
        if index is not None:
            numbers, deadlines, rows = (column.to_numpy() for column in index.columns)
            self._deadlines[numbers], self._rows[numbers] = deadlines, rows

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._rows.sum())

    @property
    def wake(self) -> int | None:
        """The earliest deadline; None without one."""
        earliest = int(self._deadlines.min())
        return None if earliest == FOREVER else earliest

    def due(self, watermark: int) -> Integers:
        """Return the slots whose deadline has come."""
        return np.flatnonzero(self._deadlines <= watermark)

    def read(self, slots: Integers) -> tuple[pa.Table, Integers]:
        """Return the rows of some slots, and the slot of each row."""
        tables, numbers = [self._schema.empty_table()], [np.empty(0, np.int64)]
        for slot in slots[self._rows[slots] > 0].tolist():
            rows = self._store.get(_name(slot), self._schema)
            if rows is None:
                raise RuntimeError(
                    f"the state of an aggregation is incomplete: its index has slot {slot}, its store not"
                )
            tables.append(rows)
            numbers.append(np.full(rows.num_rows, slot))
        return pa.concat_tables(tables), np.concatenate(numbers)

    def write(self, slots: Integers, rows: pa.Table, slot_of_row: Integers, deadlines: Integers) -> None:
        """Replace some slots by ``rows``; ``deadlines``, shape ``(slots,)``, are FOREVER for slots without one."""
        before = np.stack([self._deadlines, self._rows])
        order = np.argsort(slot_of_row, kind="stable")
        rows = rows.take(pa.array(order))
        bounds = np.searchsorted(slot_of_row[order], np.stack([slots, slots + 1]))
        for slot, begin, end in zip(slots.tolist(), *bounds.tolist(), strict=True):
            if end > begin:
                self._store.put(_name(slot), rows.slice(begin, end - begin))
            elif self._rows[slot]:
                self._store.remove(_name(slot))
        self._rows[slots] = bounds[1] - bounds[0]
        self._deadlines[slots] = deadlines
        if (before != np.stack([self._deadlines, self._rows])).any():
            self._write_index()

    def _write_index(self) -> None:
        used = np.flatnonzero(self._rows)
        if not len(used):
            self._store.remove(_INDEX)
            return
        columns = [pa.array(each) for each in (used, self._deadlines[used], self._rows[used])]
        self._store.put(_INDEX, pa.Table.from_arrays(columns, schema=_INDEX_COLUMNS))


def _name(slot: int) -> str:
    return f"slot-{slot}"
