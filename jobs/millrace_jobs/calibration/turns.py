"""The sources of a calibration run: a batch begins when it is its turn, has the records that the design asks for, and
continues at the beginning of the source once that has ended.

Spark plans batches in a process of its own, so that the conductor writes the next turn to a file. Records that are read
again are later by the whole time that all records cover: otherwise they would be late, and cost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.places import write_durably
from millrace_jobs.sources.base import OnArrival, Position, Rejected, Slice, Source, ignore_arrivals
from millrace_jobs.sources.wrapped import WrappedSource

_AT, _PASS, _SHIFT = "at", "pass", "shift"

_TOGETHER = 2
"""Turns within which sources that have their shares of records come to their ends: shares are rounded."""


@dataclass(frozen=True)
class BatchTurn:
    """The next batch: its number, its records, and the units of a source that only knows files or commits.

    ``shift`` is by how many microseconds records are later that are read again.
    """

    number: int
    rows: int
    units: int = 1
    shift: int = 0

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the turn in a file."""
        return cls(**json.loads(file.read_bytes()))

    def write(self, file: Path) -> None:
        """Write the turn in one step."""
        write_durably(file, json.dumps(asdict(self)).encode())


@dataclass(frozen=True)
class LaterSlice:
    """A slice whose times are later by ``shift`` microseconds."""

    piece: Slice
    shift: int


class TurnSource(WrappedSource):
    """A source that offers one batch for each turn; its positions also have the shift of the records' times.

    Args:
        source: the source.
        file: the file with the turn.
        share: share of a batch's records that are of this source.
        again: whether it is read again after its end.
    """

    def __init__(self, source: Source, file: Path, share: float, *, again: bool) -> None:
        super().__init__(source)
        self._file, self._share, self._again = file, share, again
        self._served = 0
        self._times = [place for place, field in enumerate(source.schema) if pa.types.is_timestamp(field.type)]

    def initial(self) -> Position:
        """Return the position before the first record."""
        return {_AT: self.source.initial(), _PASS: 0, _SHIFT: 0}

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return the end of the next batch; ``start`` if it is not its turn, or nothing is left to read."""
        turn = BatchTurn.read(self._file)
        if turn.number == self._served:
            return start
        self._served = turn.number
        rows = max(round(turn.rows * self._share), 1)
        found = self._after(start[_AT], rows, turn.units)
        if found != start[_AT]:
            return {**start, _AT: found}
        if not self._again:
            return start
        first = self._after(self.source.initial(), rows, turn.units)
        number = start[_PASS] + 1
        return {_AT: first, _PASS: number, _SHIFT: self._shift_of(number, turn)}

    def _shift_of(self, number: int, turn: BatchTurn) -> int:
        """Return how much later the records of a pass are: as those of the source that began it just now, if one did.

        So records that are of the same time in several sources still are.
        """
        settled = self._file.with_name(f"pass-{number}.json")
        if settled.exists():
            before = BatchTurn.read(settled)
            if turn.number - before.number <= _TOGETHER:
                return before.shift
        turn.write(settled)
        return turn.shift

    def _after(self, start: Position, rows: int, units: int) -> Position:
        return next_end(self.source, start, rows, units)

    def lag(self, position: Position) -> int:
        """Return the backlog beyond a position."""
        return self.source.lag(position[_AT])

    def exhausted(self, position: Position) -> bool:
        """Return whether the source has ended, and is not read again."""
        return not self._again and self.source.exhausted(position[_AT])

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut the records of a batch into slices."""
        pieces = self.source.slices(self._begin(start, end), end[_AT], replicas)
        return [LaterSlice(piece, end[_SHIFT]) for piece in pieces] if end[_SHIFT] else pieces

    def most_records(self, start: Position, end: Position) -> int | None:
        """Return how many records are in a range at most."""
        return self.source.most_records(self._begin(start, end), end[_AT])

    def _begin(self, start: Position, end: Position) -> Position:
        """Return where a batch begins: at the beginning if it is the first one of another pass."""
        found: Position = self.source.initial() if start[_PASS] != end[_PASS] else start[_AT]
        return found

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the records of a slice, with later times if they are read again."""
        if not isinstance(piece, LaterSlice):
            yield from self.source.read(piece, label, on_arrival)
            return
        for records in self.source.read(piece.piece, label, on_arrival):
            yield records if isinstance(records, Rejected) else self._later(records, piece.shift)

    def _later(self, records: pa.RecordBatch, shift: int) -> pa.RecordBatch:
        columns = list(records.columns)
        for place in self._times:
            columns[place] = pc.add(columns[place], pa.scalar(shift, pa.duration("us")))
        return pa.RecordBatch.from_arrays(columns, schema=records.schema)


def next_end(source: Source, start: Position, rows: int, units: int) -> Position:
    """Return the end of a batch of so many records, or of so many ``units`` of a source that does not count them."""
    ahead = source.ahead(start, rows)
    if ahead is not None:
        return ahead
    end = source.latest(start, everything=True, most=rows)
    if source.most_records(start, end) is not None:
        return end
    for _ in range(units - 1):
        end = source.latest(end, everything=True)
    return end


def first_time(source: Source, column: str) -> int | None:
    """Return the earliest time in the first records, in microseconds since 1970; None if there are no times."""
    place = [name.lower() for name in source.schema.names].index(column.lower())  # as in Spark, the case does not count
    start = source.initial()
    pieces = source.slices(start, next_end(source, start, 1000, 1), 1)
    blocks = (block for piece in pieces for block in source.read(piece, "calibration"))
    times = [block.column(place).cast(pa.int64()) for block in blocks if not isinstance(block, Rejected)]
    earliest: int | None = pc.min(pa.chunked_array(times, pa.int64())).as_py()
    return earliest
