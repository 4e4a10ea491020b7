"""A recorded file converted for replay, so that any row can be read without reading the rows before it.

A recording is a folder in the cache with ``records.arrow`` (Arrow IPC, uncompressed, memory-mapped),
``clock.i64`` (running maximum of the event time in µs, one per row) and ``recording.json`` (counts).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.dead_letters import Rejects
from millrace_jobs.sources.formats.file_formats import MAX_ROWS, FormatReader
from millrace_jobs.sources.pacing import NO_TIME


@dataclass(frozen=True)
class Recording:
    """A converted file of ``rows`` records in a folder; ``rejected`` more did not decode and were left out."""

    directory: str
    rows: int
    rejected: int

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


def open_recording(
    path: str,
    file_format: FormatReader,
    schema: pa.Schema,
    time_column: str,
    cache_directory: str,
    settings: Sequence[object],
    rejects: Rejects,
) -> Recording:
    """Return the recording of ``path``, converting the file unless that was done before with the same ``settings``.

    Raises MillraceError if the file cannot be read, a record is bad under the policy ``fail``, or the disk is full.
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
            counts = {"rows": rows, "rejected": rejects.records}
            (unfinished / "recording.json").write_text(json.dumps(counts))
            try:
                unfinished.rename(target)
            except OSError:
                if not _find(target):  # not because another process was faster
                    raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        message = f"cannot keep the converted recording: {error.strerror or error}"
        raise MillraceError(Problem(message, "make room, or name another cache folder", cache_directory)) from error
    return Recording(str(target), rows, rejects.records)


def _write(directory: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema, time_column: str) -> int:
    """Write the records and their clock, and return the number of rows."""
    rows, reached = 0, NO_TIME
    with (
        (directory / "clock.i64").open("wb") as clock,
        pa.OSFile(str(directory / "records.arrow"), "wb") as file,
        pa.ipc.new_file(file, schema) as records,
    ):
        for batch in _full_batches(batches):
            times = pc.fill_null(batch.column(time_column).cast(pa.int64()), NO_TIME).to_numpy(zero_copy_only=False)
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


def _fingerprint(path: str, schema: pa.Schema, time_column: str, settings: Sequence[object]) -> str:
    """Return a hash of all that a conversion depends on: the file as it is now, and how it is read."""
    try:
        status = Path(path).stat()
    except OSError as error:
        raise MillraceError(Problem(f"the recording cannot be read: {error.strerror}", "", path)) from error
    file = [str(Path(path).resolve()), status.st_size, status.st_mtime_ns]
    known = [*file, str(schema), time_column, *settings]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _find(directory: Path) -> Recording | None:
    try:
        counts = json.loads((directory / "recording.json").read_bytes())
    except FileNotFoundError:
        return None
    return Recording(str(directory), counts["rows"], counts["rejected"])
