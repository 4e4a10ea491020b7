"""Recordings as sources, replayed as streams: at N times their own speed, or at a constant rate.

A file is first converted to a recording, in which any row can be read without reading the rows before it. A recording
is a folder in the cache with ``records.arrow`` (Arrow IPC, uncompressed, memory-mapped), ``clock.i64`` (running maximum
of the event time in µs, one per row) and ``recording.json`` (counts, and a hash of the file).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.files import ReplaySourceSpec
from millrace_jobs.confinement import require_data
from millrace_jobs.places import Place, write_durably
from millrace_jobs.sources.base import (
    CorruptRecords,
    OnArrival,
    Position,
    Rejected,
    Slice,
    Source,
    bounds,
    ignore_arrivals,
)
from millrace_jobs.sources.connector import SourceConnector, SourceContext
from millrace_jobs.sources.dead_letters import BadRecordHandler
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.formats.file_formats import file_format
from millrace_jobs.sources.formats.format_reader import MAX_ROWS, FormatReader, field_type, field_values
from millrace_jobs.sources.generated.rows import report_due
from millrace_jobs.sources.pacing import NO_TIME, EventTimePace, Pace, Pacer, RatePace

_DECODING = 2
"""The version of how files are decoded. Raise it when a file gives other records: recordings are then made again."""


@dataclass(frozen=True)
class RowRange:
    """The rows ``[begin, end)`` of a recording.

    ``paced_from`` is the time at which the pace began, in seconds since 1970; None without a pace.
    """

    begin: int
    end: int
    paced_from: float | None = field(default=None, compare=False)


def require_file(name: str, path: str) -> None:
    """Raise MillraceError if the file that a source replays does not exist, or may not be read."""
    require_data(path)
    try:
        exists = Path(path).is_file()
    except OSError as error:
        message = f"source {name}: cannot look for the file: {error.strerror or error}"
        raise MillraceError(Problem(message, "let this user read the folder", path)) from None
    if not exists:
        hint = "write the path of one csv, json or parquet file"
        raise MillraceError(Problem(f"source {name}: there is no such file", hint, path))


class ReplaySource(Source):
    """The records of one CSV, JSON or Parquet file in file order; position ``{"row": k}``: k rows consumed.

    The pace is ``rate``, in records per second. Without a rate, it is ``speed`` times the pace of
    the event times in ``time_column``. The clock of the pace starts with the first call of ``latest`` in this
    process, at the current row of the query, so that a restart continues from there. ``everything`` ignores the pace.

    Bad records are handled when the recording is converted, and dead letters are filed under the label ``recording``.
    The slice that begins at row 0 reports the number of bad records.

    ``state`` is where it is remembered which file the rows were taken from; another one under the same path is refused.
    The same content with another modification time, as in a copy or a restored backup, is the same file.

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
        rate: float | None = None,
        max_rows_per_batch: int | None = None,
        header: bool = True,
        delimiter: str = ",",
        timestamp_format: str = "iso",
        corrupt: CorruptRecords | None = None,
        state: Place | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if field_type(schema, time_column) != TIMESTAMP:
            message = f"source {name}: timeColumn {time_column!r} is not a TIMESTAMP column of the schema"
            raise MillraceError(Problem(message, f"name one of them, or add {time_column} TIMESTAMP to the schema"))
        require_file(name, path)
        self.name = name
        self.schema = schema
        corrupt = corrupt or CorruptRecords()
        self._recording = _recording(
            path,
            file_format(format, schema, header=header, delimiter=delimiter, timestamp_format=timestamp_format),
            schema,
            time_column,
            cache_directory,
            [name, format, header, delimiter, timestamp_format, corrupt.policy, corrupt.directory],
            BadRecordHandler(name, corrupt, "recording"),
        )
        self._max_rows = max_rows_per_batch
        self._path = path
        self._file = [*_identity(path), self._recording.content]
        self._state = None if state is None else state / "replayed.json"
        self._due = 0
        self._speed = speed
        self._rate = None if rate is None else RatePace.constant(rate)
        self._clock = clock

    @cached_property
    def _pace(self) -> Pace:
        return self._rate or EventTimePace(self._recording.clock(), self._speed)

    @cached_property
    def _pacer(self) -> Pacer:
        return Pacer(self._pace, self._clock)

    def initial(self) -> Position:
        """Return the position before the first row."""
        return {"row": 0}

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return the position after the rows due now, or after all rows with ``everything``.

        The batch has at most ``max_rows_per_batch`` rows and, under a pace, at most ``most``. With ``everything``,
        ``most`` is ignored: reading all rows at once makes sure that no record is late.
        """
        row, rows = int(start["row"]), self._recording.rows
        if row > rows:
            message = f"source {self.name}: the checkpoint is at row {row}, but the recording has {rows}"
            hint = "replay the file that the checkpoint was made with, or start with a new checkpoint"
            raise MillraceError(Problem(message, hint))
        self._require_same_file(row)
        self._due = rows if everything else min(self._pacer.due(row), rows)
        limits = [limit for limit in (self._max_rows, None if everything else most) if limit is not None]
        return {"row": min([self._due, *(row + limit for limit in limits)])}

    def ahead(self, start: Position, records: int) -> Position:
        """Return the position so many rows after ``start``, or after the last row, whenever they are due."""
        return {"row": min(int(start["row"]) + records, self._recording.rows)}

    def _require_same_file(self, row: int) -> None:
        """Remember the file when its first row is due; refuse another one later."""
        if self._state is None:
            return
        try:
            before = _remembered(self._state) if row else None
            if before is None:  # other readers of the same run write it, too
                write_durably(self._state, json.dumps(self._file).encode(), partial=f".{os.getpid()}.new")
        except OSError as error:
            message = f"source {self.name}: cannot remember the file that is replayed: {error}"
            raise MillraceError(Problem(message, "let this user write there", str(self._state))) from None
        now = self._file
        # the same one by size and modification time or, if both are known, by content
        if before is not None and before[:2] != now[:2] and not (len(before) > 2 and before[2] == now[2] != ""):
            message = f"source {self.name}: the file has changed since its first {row} rows were replayed"
            hint = "restore the file as it was, or start with a new checkpoint"
            raise MillraceError(Problem(message, hint, self._path))
        self._state = None  # once in a process is enough

    def exhausted(self, position: Position) -> bool:
        """Return whether the position is after the last row."""
        return bool(position["row"] >= self._recording.rows)

    def lag(self, position: Position) -> int:
        """Return the number of rows that were due at the last call of ``latest`` and are not consumed."""
        return max(self._due - int(position["row"]), 0)

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut the rows into ranges whose sizes differ by at most one."""
        cuts = [start["row"] + cut for cut in bounds(end["row"] - start["row"], replicas)]
        began = self._pacer.began()
        return [RowRange(low, high, began) for low, high in itertools.pairwise(cuts) if low < high]

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the rows of the slice from memory-mapped files."""
        assert isinstance(piece, RowRange)
        begin = piece.begin
        for records in self._recording.read(piece.begin, piece.end):
            report_due(self._pace, begin, begin + records.num_rows, piece.paced_from, on_arrival)
            begin += records.num_rows
            yield records
        if piece.begin == 0 and self._recording.rejected:
            yield Rejected(self._recording.rejected)


@dataclass(frozen=True)
class _Recording:
    """A converted file of ``rows`` records in a folder; ``rejected`` more did not decode and were left out.

    ``content`` is a hash of the file; empty if an older version converted it.
    """

    directory: str
    rows: int
    rejected: int
    content: str

    def read(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows ``[begin, end)`` without copying. Raises MillraceError if the recording cannot be read."""
        path = str(Path(self.directory, "records.arrow"))
        try:
            file = pa.ipc.open_file(pa.memory_map(path))
        except (OSError, pa.ArrowInvalid) as error:
            hint = "remove its folder, and run the query again to convert it again"
            raise MillraceError(Problem(f"the converted recording cannot be read: {error}", hint, path)) from error
        while begin < end:
            batch, row = divmod(begin, MAX_ROWS)  # all batches except the last one are full
            part = file.get_batch(batch).slice(row, end - begin)
            yield part
            begin += part.num_rows

    def clock(self) -> NDArray[np.int64]:
        """Return the running maximum of the event times in µs, NO_TIME before the first one. Shape ``(rows,)``."""
        if not self.rows:
            return np.empty(0, np.int64)
        return np.memmap(Path(self.directory, "clock.i64"), np.int64, "r")


def _recording(
    path: str,
    file_format: FormatReader,
    schema: pa.Schema,
    time_column: str,
    cache_directory: str,
    settings: Sequence[object],
    rejects: BadRecordHandler,
) -> _Recording:
    """Return the recording of ``path``, converting the file unless that was done before with the same ``settings``.

    Raises MillraceError if the file cannot be read, the policy ``Fail`` finds a bad record, or nothing can be stored.
    """
    target = Path(cache_directory, _fingerprint(path, schema, time_column, settings))
    try:
        if earlier := _find(target):
            return earlier
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=target.parent, prefix=".unfinished-"))
        try:
            with rejects:
                batches = file_format.read(path, 0, sys.maxsize, rejects.reject)
                rows = _write(unfinished, batches, schema, time_column)
            with Path(path).open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            if _fingerprint(path, schema, time_column, settings) != target.name:
                hint = "leave the file as it is, and run the query again"
                raise MillraceError(Problem("has changed while it was read", hint, path))
            found = {"rows": rows, "rejected": rejects.records, "content": content}
            (unfinished / "recording.json").write_text(json.dumps(found))
            try:
                unfinished.rename(target)
            except OSError:
                if not _find(target):  # unless another process has converted the file meanwhile
                    raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        message = f"cannot store the converted recording of {path}: {error.strerror or error}"
        hint = "free some space there and let this user write to it, or set XDG_CACHE_HOME to another folder"
        raise MillraceError(Problem(message, hint, cache_directory)) from error
    return _Recording(str(target), rows, rejects.records, content)


def _write(directory: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema, time_column: str) -> int:
    rows, reached = 0, NO_TIME
    with (
        (directory / "clock.i64").open("wb") as clock,
        pa.OSFile(str(directory / "records.arrow"), "wb") as file,
        pa.ipc.new_file(file, schema) as records,
    ):
        for batch in _full_batches(batches):
            times = pc.fill_null(field_values(batch, time_column).cast(pa.int64()), NO_TIME).to_numpy(
                zero_copy_only=False
            )
            running = np.maximum(np.maximum.accumulate(times), reached)
            reached = int(running[-1])
            running.tofile(clock)
            records.write_batch(batch)
            rows += batch.num_rows
    return rows


def _full_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same records in batches of exactly MAX_ROWS, except for the last one; no batch is empty."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= MAX_ROWS:
            joined = pa.concat_batches(waiting)
            full = rows - rows % MAX_ROWS
            yield from (joined.slice(row, MAX_ROWS) for row in range(0, full, MAX_ROWS))
            waiting, rows = [joined.slice(full)], rows - full
    if rows:
        yield pa.concat_batches(waiting)


def _identity(path: str) -> list[int]:
    try:
        status = Path(path).stat()
    except OSError as error:
        raise MillraceError(Problem(f"the recording cannot be read: {error.strerror}", "", path)) from error
    return [status.st_size, status.st_mtime_ns]


def _remembered(state: Place) -> list[Any] | None:
    """Return what a file says of the one replayed; None without one, or if a kill of an older version left a part."""
    try:
        found = json.loads(state.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, list) else None


def _fingerprint(path: str, schema: pa.Schema, time_column: str, settings: Sequence[object]) -> str:
    """Return a hash of all that a conversion depends on: the file as it is now, and how it is read."""
    file = [str(Path(path).resolve()), *_identity(path)]
    known = [_DECODING, *file, schema.to_string(truncate_metadata=False), time_column, *settings]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _find(directory: Path) -> _Recording | None:
    try:
        found = json.loads((directory / "recording.json").read_bytes())
    except FileNotFoundError:
        return None
    return _Recording(str(directory), found["rows"], found["rejected"], found.get("content", ""))


class ReplayConnector(SourceConnector[ReplaySourceSpec]):
    """Opens recordings."""

    def check(self, spec: ReplaySourceSpec, context: SourceContext) -> None:
        """Check the columns of the recording without reading records."""
        require_file(context.name, spec.path)
        file_format(
            spec.format.value,
            self.schema(context.source),
            header=spec.header,
            delimiter=spec.delimiter,
            timestamp_format=context.source.timestamp_format.value,
        ).check(spec.path)

    def open(self, spec: ReplaySourceSpec, context: SourceContext) -> Source:
        """Return the source of a recording."""
        return ReplaySource(
            context.name,
            spec.path,
            spec.format.value,
            self.schema(context.source),
            spec.time_column,
            str(context.cache),
            speed=spec.speed or 1.0,
            rate=spec.rate,
            header=spec.header,
            delimiter=spec.delimiter,
            timestamp_format=context.source.timestamp_format.value,
            corrupt=context.corrupt,
            state=context.state,
        )
