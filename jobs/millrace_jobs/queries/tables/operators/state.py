"""How operators keep rows in a bucket's state: records in segments by arrival, rows that change in slots by key.

Both cut the rows of a bucket into pieces, so that a batch reads and writes few of them, and both have an index of the
extent of each piece's periods. *Segments* hold rows that are only ever added: a batch fills the newest one, and an old
one is removed as a whole. *Slots* hold rows that are also removed one by one: a batch rewrites the slots of its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import BEGINNING, FOREVER, net
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.queries.tables.operators.interface import BucketStore
from millrace_jobs.queries.tables.operators.matching import Integers

SEGMENT_ROWS = 4096
"""Number of rows from which rows go to a new segment."""

SLOTS = 64
"""Number of slots in a bucket; part of the state's layout."""

Periods = tuple[Integers, Integers]
"""Starts and ends of rows' periods, in microseconds since 1970, each of shape ``(rows,)``."""

_INDEX = pa.schema((name, pa.int64()) for name in ("piece", "rows", "first_start", "first_end", "last_end"))


_SLOT_INDEX: Final = "index"
_SLOT_COLUMNS: Final = pa.schema([("slot", pa.int64()), ("deadline", pa.int64()), ("rows", pa.int64())])


@dataclass
class _Piece:
    """One line of the index: the number of a segment or slot, its rows, and the extent of their periods."""

    number: int
    rows: int = 0
    first_start: int = FOREVER
    first_end: int = FOREVER
    last_end: int = BEGINNING


class _Pieces:
    """Rows of one kind in a bucket's state, in numbered pieces with an index.

    Args:
        store: the state of the bucket.
        name: name of the rows; the names of their tables in the store begin with it.
        schema: schema of the rows.
        periods: returns the periods by which rows match, and after which they are removed.
    """

    def __init__(
        self, store: BucketStore, name: str, schema: pa.Schema, periods: Callable[[pa.Table], Periods]
    ) -> None:
        self._store = store
        self._name = name
        self._schema = schema
        self._periods = periods
        index = store.get(f"{name}/index", _INDEX)
        lines = zip(*(column.to_pylist() for column in index.columns), strict=True) if index is not None else ()
        self._pieces = {line[0]: _Piece(*line) for line in lines}
        self._held: dict[int, pa.Table] = {}
        self._changed = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(piece.rows for piece in self._pieces.values())

    def first_start(self, after: int = BEGINNING) -> int:
        """Return the earliest start of a period that ends after this time, or one before it; ``FOREVER`` without rows.

        It is exact without ``after``; otherwise it may also be the start of a period in the same piece.
        """
        return min((piece.first_start for piece in self._pieces.values() if piece.last_end > after), default=FOREVER)

    def first_end(self, after: int = BEGINNING) -> int:
        """Return a time after ``after`` that no later period's end comes before; ``FOREVER`` without such periods."""
        ends = (max(piece.first_end, after + 1) for piece in self._pieces.values() if piece.last_end > after)
        return min(ends, default=FOREVER)

    def ended(self, after: int, until: int) -> pa.Table:
        """Return the rows whose periods end after ``after`` and at or before ``until``."""
        found = [self._schema.empty_table()]
        for piece in self._pieces.values():
            if piece.first_end <= until and piece.last_end > after:
                rows = self._rows(piece.number)
                ends = self._periods(rows)[1]
                found.append(rows.filter(pa.array((ends > after) & (ends <= until))))
        return pa.concat_tables(found)

    @property
    def next_removal(self) -> int:
        """The earliest time at which the periods of a whole piece have ended; ``FOREVER`` without rows."""
        return min((piece.last_end for piece in self._pieces.values()), default=FOREVER)

    def remove_ended(self, limit: int) -> None:
        """Remove the pieces of which all periods end at or before ``limit``."""
        for number in [piece.number for piece in self._pieces.values() if piece.last_end <= limit]:
            self._put(number, self._schema.empty_table())

    def remove_ended_rows(self, limit: int) -> None:
        """Remove all rows whose periods end at or before ``limit``, also from pieces that have others."""
        for number in [piece.number for piece in self._pieces.values() if piece.first_end <= limit]:
            rows = self._rows(number)
            self._put(number, rows.filter(pa.array(self._periods(rows)[1] > limit)))

    def save(self) -> None:
        """Store the index, if it has changed."""
        if self._changed:
            lines = zip(*map(astuple, self._pieces.values()), strict=True) if self._pieces else [()] * len(_INDEX)
            arrays = [pa.array(line, pa.int64()) for line in lines]
            self._store.put(f"{self._name}/index", pa.Table.from_arrays(arrays, schema=_INDEX))
            self._changed = False

    def _rows(self, number: int) -> pa.Table:
        """Return the rows of a piece; no rows if there is no such piece."""
        if number not in self._held:
            held = self._store.get(f"{self._name}/{number}", self._schema) if number in self._pieces else None
            self._held[number] = self._schema.empty_table() if held is None else held
        return self._held[number]

    def _put(self, number: int, rows: pa.Table) -> None:
        """Replace the rows of a piece, or remove it if it has none any more."""
        self._changed = True
        self._held[number] = rows
        if not rows.num_rows:
            if self._pieces.pop(number, None) is not None:
                self._store.remove(f"{self._name}/{number}")
            return
        starts, ends = self._periods(rows)
        extent = (int(starts.min()), int(ends.min()), int(ends.max()))
        self._pieces[number] = _Piece(number, rows.num_rows, *extent)
        self._store.put(f"{self._name}/{number}", rows)


class Segments(_Pieces):
    """Rows that are only added, in segments by arrival."""

    def within(self, start: int, end: int) -> pa.Table:
        """Return at least the rows whose periods overlap ``[start, end)``."""
        found = [p.number for p in self._pieces.values() if p.first_start < end and p.last_end > start]
        return pa.concat_tables([self._schema.empty_table(), *map(self._rows, found)])

    def add(self, rows: pa.Table, limit: int) -> None:
        """Add rows to the newest segment, or to a new one if that is full.

        From a segment that is written anyway, the rows whose periods end at or before ``limit`` are removed.
        """
        if not rows.num_rows:
            return
        newest = max(self._pieces, default=0)
        if newest in self._pieces and self._pieces[newest].rows >= SEGMENT_ROWS:
            newest += 1
        held = self._rows(newest)
        if newest in self._pieces and self._pieces[newest].first_end <= limit:
            held = held.filter(pa.array(self._periods(held)[1] > limit))
        self._put(newest, pa.concat_tables([held, rows]))


class Slots(_Pieces):
    """Rows that are added and removed, in slots by the hash of their key."""

    def of_keys(self, slots: Iterable[int]) -> pa.Table:
        """Return the rows of these slots."""
        return pa.concat_tables([self._schema.empty_table(), *map(self._rows, slots)])

    def apply(
        self,
        changes: pa.Table,
        slots: NDArray[np.int64],
        limit: int,
        keep: Callable[[pa.Table], NDArray[np.bool_]] | None = None,
    ) -> None:
        """Apply changes to their slots, and remove the rows there whose periods end at or before ``limit``.

        Args:
            changes: changes of the rows.
            slots: slot of each change, shape ``(changes,)``.
            limit: in microseconds since 1970.
            keep: returns which rows of a slot to keep nevertheless, shape ``(rows,)``.
        """
        for number in np.unique(slots).tolist():
            rows = net(pa.concat_tables([self._rows(number), changes.filter(pa.array(slots == number))]))
            kept = self._periods(rows)[1] > limit
            if keep is not None and not kept.all():
                kept |= keep(rows)
            self._put(number, rows.filter(pa.array(kept)))


def slots_of(rows: pa.Table, keys: Sequence[str], slots: int = SLOTS) -> NDArray[np.int64]:
    """Return the slot of each row by its key, shape ``(rows,)``; rows with equal keys have the same slot."""
    hashes = hash_columns([rows.column(name) for name in keys], rows.num_rows)
    # the lower half of the hash has chosen the bucket
    return ((hashes >> np.uint64(32)) % np.uint64(slots)).astype(np.int64)


class GroupSlots:
    """One table with one schema, in slots by the hash of its keys, so that a batch rewrites a part of it.

    An index, which is the only table that every batch reads, has the slots that exist, and the watermark at which each
    has something to do without input. The number of slots belongs to the layout of the state: it stays while the state
    exists. Slots without rows have no table.
    """

    def __init__(self, store: BucketStore, schema: pa.Schema, slots: int) -> None:
        self._store, self._schema = store, schema
        self._deadlines, self._rows = np.full(slots, FOREVER), np.zeros(slots, np.int64)
        index = store.get(_SLOT_INDEX, _SLOT_COLUMNS)
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
            rows = self._store.get(f"slot-{slot}", self._schema)
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
                self._store.put(f"slot-{slot}", rows.slice(begin, end - begin))
            elif self._rows[slot]:
                self._store.remove(f"slot-{slot}")
        self._rows[slots] = bounds[1] - bounds[0]
        self._deadlines[slots] = deadlines
        if (before != np.stack([self._deadlines, self._rows])).any():
            self._write_index()

    def _write_index(self) -> None:
        used = np.flatnonzero(self._rows)
        if not len(used):
            self._store.remove(_SLOT_INDEX)
            return
        columns = [pa.array(each) for each in (used, self._deadlines[used], self._rows[used])]
        self._store.put(_SLOT_INDEX, pa.Table.from_arrays(columns, schema=_SLOT_COLUMNS))
