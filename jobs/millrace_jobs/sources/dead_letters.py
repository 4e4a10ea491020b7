"""What becomes of the bad records of one slice: an error, a count, or a file of dead letters."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.formats.decoding import BadRecord

_SHOWN = 200
"""Characters of a bad record in a message."""


class LetterFile:
    """Dead letters of one slice of ``source`` as JSON lines.

    The file ``<directory>/<source>-<label>.jsonl`` appears whole when the slice has been read to its end, and is
    replaced by the same when it is read again; no letters, no file. Raises MillraceError where it cannot be written.
    """

    def __init__(self, source: str, directory: str, label: str) -> None:
        self._source = source
        self._target = Path(directory, f"{source}-{label}.jsonl")
        self._file: IO[str] | None = None

    def write(self, letter: Mapping[str, str | int]) -> None:
        """Add a letter; its source is added to it."""
        try:
            if self._file is None:
                self._target.parent.mkdir(parents=True, exist_ok=True)
                # Two attempts at one task may run side by side, so the unfinished file has a name of its own.
                self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed in __exit__
                    "w", encoding="utf-8", dir=self._target.parent, prefix=".", suffix=".tmp", delete=False
                )
            self._file.write(json.dumps({"source": self._source} | dict(letter), ensure_ascii=False) + "\n")
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def close(self, *, complete: bool) -> None:
        """End the file; only a ``complete`` one appears."""
        if self._file is None:
            return
        unfinished = Path(self._file.name)
        try:
            if complete:
                self._file.flush()
                os.fsync(self._file.fileno())
                unfinished.replace(self._target)
        except OSError as fault:
            raise self._unwritable(fault) from fault
        finally:
            with suppress(OSError):  # what could not be written cannot be written now
                self._file.close()
            unfinished.unlink(missing_ok=True)

    def _unwritable(self, fault: OSError) -> MillraceError:
        return MillraceError(
            Problem(
                f"cannot write the dead letters of source {self._source}: {fault.strerror}",
                "make corruptRecords.path a folder that can be written",
                str(self._target),
            )
        )


class Rejects:
    """Takes the bad records of one slice of files of ``source``, as a context manager around reading it.

    ``fail`` raises MillraceError at the first one. ``deadLetter`` writes them to a LetterFile with source, file,
    line, reason and text.
    """

    def __init__(self, source: str, corrupt: CorruptRecords, label: str) -> None:
        self._source = source
        self._policy = corrupt.policy
        self._letters = LetterFile(source, corrupt.directory, label)
        self.records = 0
        """How many were left out so far."""

    def __enter__(self) -> Self:
        return self

    def reject(self, file: str, bad: BadRecord) -> None:
        """Leave out one record of ``file``. Raises MillraceError on policy ``fail``, or on a full disk."""
        if self._policy == "fail":
            raise MillraceError(
                Problem(f"source {self._source} cannot decode {quoted(bad.text)}: {bad.reason}", FIX, file, bad.line)
            )
        self.records += 1
        if self._policy == "deadLetter":
            self._letters.write({"file": file, "line": bad.line, "reason": bad.reason, "text": bad.text})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._letters.close(complete=kind is None)


FIX = "correct it or the schema, or set corruptRecords.policy to drop or deadLetter"
"""What a user can do about a record that does not decode."""


def quoted(text: str) -> str:
    """A bad record in a message: its beginning, with everything unprintable escaped."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
