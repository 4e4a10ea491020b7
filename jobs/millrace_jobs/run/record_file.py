"""The file to which a run writes its record (``--record``), in bounded size."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_support.run_record import (
    BatchLine,
    RecordLine,
    RunLine,
    encode,
    halved,
    read_record,
    require_record_of,
)

MAX_RECORD = 8 << 20
"""Maximum size of a record in bytes: some 10,000 batches in full."""


class RecordFile:
    """A record that a run appends to. When it is full, the older half of it gets half the resolution.

    Each event is one write, so that a process that is killed loses at most the one that it was writing. The run goes on
    without a record if a write fails, as on a full disk. The file is locked for as long as it is open.

    Args:
        path: the file; the record of an earlier run of the query is continued.
        name: name of the query.
        failed: is called with the reason when a write has failed.
        limit: maximum size in bytes.

    Raises:
        MillraceError: the file cannot be written, is something else, or another run writes it.
    """

    def __init__(self, path: Path, name: str, failed: Callable[[str], None], limit: int = MAX_RECORD) -> None:
        self._path, self._failed, self._limit = path, failed, limit
        try:
            self._file = _open_locked(path)
            try:
                if path.stat().st_size:
                    require_record_of(path, name)
                    _remove_torn_line(path)
            except BaseException:
                self._file.close()
                raise
        except BlockingIOError:
            hint = "write the name of another file, or stop that run first"
            raise MillraceError(Problem(f"another run writes the record {path}", hint, field="--record")) from None
        except OSError as error:
            hint = "write the name of a file in a folder that exists and can be written to"
            problem = f"the record {path} cannot be written: {error.strerror}"
            raise MillraceError(Problem(problem, hint, field="--record")) from None

    def write(self, line: RecordLine) -> None:
        """Append an event."""
        if self._file.closed:
            return
        try:
            _append(self._file, encode(line))
            if self._file.tell() > self._limit:
                self._shrink()
        except (OSError, MillraceError) as error:  # also where another has written something else into the file
            self.close()
            why = error.strerror if isinstance(error, OSError) else str(error)
            self._failed(f"the record {self._path} ends here, and the run goes on: {why}")

    def close(self) -> None:
        """Close the file; later events are dropped."""
        self._file.close()

    def _shrink(self) -> None:
        """Replace the file by one of at most three quarters of the limit, in one step."""
        lines = read_record(self._path)
        while sum(len(encode(line)) for line in lines) > self._limit * 3 // 4 and len(lines) > 1:
            half = max(len(lines) // 2, 2)
            older = halved(lines[:half])
            if len(older) == half:  # nothing to combine: what is oldest gives way
                older = _without_oldest(lines[:half])
            lines = older + lines[half:]
        smaller = self._replacement(b"".join(map(encode, lines)))
        self._file.close()
        self._file = smaller

    def _replacement(self, content: bytes) -> FileIO:
        """Put another file in the place of this one, which is locked from the beginning, and return it."""
        partial = self._path.with_name(f"{self._path.name}.new")
        try:
            partial.unlink(missing_ok=True)
            file = _open_locked(partial)
            try:
                _append(file, content)
                partial.replace(self._path)
            except BaseException:
                file.close()
                raise
        except OSError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        return file


def _open_locked(path: Path) -> FileIO:
    """Open a file to append to it.

    Raises:
        BlockingIOError: another process has it open in the same way.
        OSError: it cannot be written.
    """
    while True:
        file = FileIO(path, "a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # its writer has put another one in its place since


def _append(file: FileIO, content: bytes) -> None:
    """Write all of the content or, as on a full disk, nothing: half a line would make the record unreadable."""
    start, rest = file.tell(), memoryview(content)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with suppress(OSError):
            file.truncate(start)
        raise


def _without_oldest(lines: Sequence[RecordLine]) -> list[RecordLine]:
    """Return the first line, which counts the batches that are dropped, and the newer half of the others."""
    first, middle = lines[0], 1 + (len(lines) + 1) // 2
    dropped = sum(line.figures.batches for line in lines[1:middle] if isinstance(line, BatchLine))
    if isinstance(first, RunLine):
        first = replace(first, dropped=first.dropped + dropped)
    return [first, *lines[middle:]]


def _remove_torn_line(path: Path) -> None:
    content = path.read_bytes()
    os.truncate(path, content.rfind(b"\n") + 1)
