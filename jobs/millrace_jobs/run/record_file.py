"""The file to which a run writes its record (``--record``), in bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_support.run_record import RecordLine, encode, halved, read_record, require_record_of

MAX_RECORD = 8 << 20
"""Maximum size of a record in bytes: some 10,000 batches in full."""


class RecordFile:
    """A record that a run appends to. When it is full, the older half of it gets half the resolution.

    Each event is one write, so that a process that is killed loses at most the one that it was writing. The run goes on
    without a record if a write fails, as on a full disk.

    Args:
        path: the file; the record of an earlier run of the query is continued.
        name: name of the query.
        failed: is called with the reason when a write has failed.
        limit: maximum size in bytes.

    Raises:
        MillraceError: the file cannot be written, or is something else.
    """

    def __init__(self, path: Path, name: str, failed: Callable[[str], None], limit: int = MAX_RECORD) -> None:
        self._path, self._failed, self._limit = path, failed, limit
        try:
            if path.exists() and path.stat().st_size:
                require_record_of(path, name)
                _remove_torn_line(path)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            hint = "write the name of a file in a folder that exists and can be written to"
            problem = f"the record {path} cannot be written: {error.strerror}"
            raise MillraceError(Problem(problem, hint, field="--record")) from None

    def write(self, line: RecordLine) -> None:
        """Append an event."""
        if self._file.closed:
            return
        try:
            self._file.write(encode(line))
            if self._file.tell() > self._limit:
                self._shrink()
        except OSError as error:
            self.close()
            self._failed(f"the record {self._path} ends here, and the run goes on: {error.strerror}")

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
                older = [lines[0], *lines[1 + (half + 1) // 2 : half]]
            lines = older + lines[half:]
        partial = self._path.with_name(f"{self._path.name}.new")
        partial.write_bytes(b"".join(map(encode, lines)))
        partial.replace(self._path)
        self._file.close()
        self._file = self._path.open("ab", buffering=0)


def _remove_torn_line(path: Path) -> None:
    content = path.read_bytes()
    os.truncate(path, content.rfind(b"\n") + 1)
