"""Bad records of one slice of a file: an error, a count, or dead letters in a file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.confinement import require_data
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.formats.decoding import BadRecord

FIX_HINT = "correct it or the schema, or set corruptRecords.policy to Drop or DeadLetter"
"""The hint for the user about a record that does not decode."""

_SHOWN = 200  # characters of a bad record that a message shows


class DeadLetterFile:
    """The dead letters of one slice of ``source`` as JSON lines.

    The file ``<directory>/<source>-<label>.jsonl`` appears in one step when the slice has been read to its end.
    Reading the slice again replaces it with the same content. Without dead letters there is no file.

    Raises MillraceError if the file cannot be written.
    """

    def __init__(self, source: str, directory: str, label: str) -> None:
        self._source = source
        self._target = Path(directory, f"{source}-{label}.jsonl")
        self._file: IO[str] | None = None

    def write(self, letter: Mapping[str, str | int]) -> None:
        """Write a letter, with the name of the source added."""
        try:
            if self._file is None:
                require_data(self._target)
                self._target.parent.mkdir(parents=True, exist_ok=True)
                # Two attempts at one task may run side by side, so each has its own unfinished file.
                self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed in __exit__
                    "w",
                    encoding="utf-8",
                    errors="backslashreplace",  # for JSON, what it makes of a name that is not UTF-8 is an escape
                    dir=self._target.parent,
                    prefix=".",
                    suffix=".tmp",
                    delete=False,
                )
            self._file.write(json.dumps({"source": self._source} | dict(letter), ensure_ascii=False) + "\n")
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def close(self, *, complete: bool) -> None:
        """Close the file, and publish it only if it is ``complete``."""
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
            with suppress(OSError):  # closing flushes again what could not be written
                self._file.close()
            unfinished.unlink(missing_ok=True)

    def _unwritable(self, fault: OSError) -> MillraceError:
        message = f"cannot write the dead letters of source {self._source}: {fault.strerror}"
        hint = "make corruptRecords.path a folder that can be written"
        return MillraceError(Problem(message, hint, str(self._target)))


class RejectedRecords:
    """The records of one slice that do not decode; a context manager around reading the slice.

    The policy ``Fail`` raises MillraceError at the first one, ``Drop`` only counts them, and ``DeadLetter`` stores them
    once the slice has been read to its end.
    """

    def __init__(self, source: str, corrupt: CorruptRecords, label: str) -> None:
        self._source = source
        self._policy = corrupt.policy
        self._letters = DeadLetterFile(source, corrupt.directory, label)
        self.records = 0
        """Records left out so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._letters.close(complete=kind is None)

    def _left_out(self, problem: Callable[[], Problem]) -> bool:
        """Leave out a record, or raise as the policy requires; return whether its dead letter is to be stored."""
        if self._policy == "Fail":
            raise MillraceError(problem())
        self.records += 1
        return self._policy == "DeadLetter"


class BadRecordHandler(RejectedRecords):
    """Handler of the bad records in one slice of a file; dead letters have source, file, line, reason and text."""

    def reject(self, file: str, bad: BadRecord) -> None:
        """Leave out one record. Raises MillraceError under the policy ``Fail``, or if the letter cannot be written."""
        said = f"source {self._source} cannot decode"
        if self._left_out(lambda: Problem(f"{said} {quoted(bad.text)}: {bad.reason}", FIX_HINT, file, bad.line)):
            self._letters.write({"file": file, "line": bad.line, "reason": bad.reason, "text": bad.text})


def quoted(text: str) -> str:
    """Return the beginning of a bad record for a message, with unprintable characters escaped."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
