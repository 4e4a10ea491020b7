"""Replay of a recorded file as a stream: at N times its own speed, at a constant rate, or along a rate trace."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.base import CorruptRecords, Position, Rejected, Slice
from millrace_jobs.sources.dead_letters import Rejects
from millrace_jobs.sources.formats.file_formats import file_format
from millrace_jobs.sources.formats.schema import TIMESTAMP
from millrace_jobs.sources.pacing import EventTimePace, Pacer, RatePace
from millrace_jobs.sources.recording import open_recording
from millrace_jobs.sources.slicing import bounds


@dataclass(frozen=True)
class RowRange:
    """The rows ``[begin, end)`` of a recording."""

    begin: int
    end: int


def require_file(name: str, path: str) -> None:
    """Raise MillraceError if the file that a source replays does not exist."""
    if not Path(path).is_file():
        hint = "write the path of one csv, json or parquet file"
        raise MillraceError(Problem(f"source {name}: there is no such file", hint, path))


class ReplaySource:
    """The records of one CSV, JSON or Parquet file in file order; position ``{"row": k}``: k rows consumed.

    The pace is ``rate``, in records per second or a trace of it. Without a rate, it is ``speed`` times the pace of
    the event times in ``time_column``. The clock of the pace starts with the first call of ``latest`` in this
    process, at the current row of the query, so that a restart continues from there. ``everything`` ignores the pace.

    Bad records are handled when the recording is converted, and dead letters are filed under the label ``recording``.
    The slice that begins at row 0 reports the number of bad records.

    Raises MillraceError if the file cannot be read, or ``time_column`` is not a TIMESTAMP of ``schema``.
    """

    def __init__(
        self,
        name: str,
        path: str,
        format: str,
        schema: pa.Schema,
        time_column: str,
        cache_directory: str,
        *,
        speed: float = 1.0,
        rate: float | RatePace | None = None,
        max_rows_per_batch: int | None = None,
        header: bool = True,
        delimiter: str = ",",
        timestamp_format: str = "iso",
        corrupt: CorruptRecords | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if time_column not in schema.names or schema.field(time_column).type != TIMESTAMP:
            raise MillraceError(
                Problem(
                    f"source {name}: timeColumn {time_column!r} is not a TIMESTAMP column of the schema",
                    f"name one of them, or add {time_column} TIMESTAMP to the schema",
                )
            )
        require_file(name, path)
        self.name = name
        self.schema = schema
        corrupt = corrupt or CorruptRecords()
        self._recording = open_recording(
            path,
            file_format(format, schema, header=header, delimiter=delimiter, timestamp_format=timestamp_format),
            schema,
            time_column,
            cache_directory,
            [name, format, header, delimiter, timestamp_format, corrupt.policy, corrupt.directory],
            Rejects(name, corrupt, "recording"),
        )
        self._max_rows = max_rows_per_batch
        self._due = 0
        self._speed = speed
        self._rate = RatePace.constant(rate) if isinstance(rate, float | int) else rate
        self._clock = clock

    @cached_property
    def _pacer(self) -> Pacer:
        """The pacer, made on first use: on the driver, never in the tasks, which only read slices."""
        return Pacer(self._rate or EventTimePace(self._recording.clock(), self._speed), self._clock)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_pacer"}

    def initial(self) -> Position:
        """Return the position before the first row."""
        return {"row": 0}

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return the position after the rows due now, or after all rows with ``everything``.

        The batch has at most ``max_rows_per_batch`` rows and, under a pace, at most ``most``. With ``everything``,
        ``most`` is ignored: reading all rows at once makes sure that no record is late.
        """
        row = int(start["row"])
        if row > self._recording.rows:
            raise MillraceError(
                f"source {self.name}: the checkpoint is at row {row}, but there are {self._recording.rows}; "
                "replay the file that the checkpoint was made with, or start with a new checkpoint"
            )
        self._due = self._recording.rows if everything else min(self._pacer.due(row), self._recording.rows)
        limits = [limit for limit in (self._max_rows, None if everything else most) if limit is not None]
        return {"row": min([self._due, *(row + limit for limit in limits)])}

    def exhausted(self, position: Position) -> bool:
        """Return whether the position is after the last row."""
        return bool(position["row"] >= self._recording.rows)

    def lag(self, position: Position) -> int:
        """Return the number of rows that were due at the last call of ``latest`` and are not consumed."""
        return max(self._due - int(position["row"]), 0)

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut the rows into ranges whose sizes differ by at most one."""
        cuts = [start["row"] + cut for cut in bounds(end["row"] - start["row"], replicas)]
        return [RowRange(low, high) for low, high in itertools.pairwise(cuts) if low < high]

    def read(self, piece: Slice, label: str) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of the slice from memory-mapped files."""
        assert isinstance(piece, RowRange)
        yield from self._recording.read(piece.begin, piece.end)
        if piece.begin == 0 and self._recording.rejected:
            yield Rejected(self._recording.rejected)
