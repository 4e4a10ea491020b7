"""What becomes of the bad records of one slice: an error, a count, or a file of dead letters."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.decoding import BadRecord

_SHOWN = 200
"""Characters of a bad record in a message."""


class Rejects:
    """Takes the bad records of one slice of ``source``, as a context manager around reading it.

    ``fail`` raises MillraceError at the first one. ``deadLetter`` writes them as JSON lines with source,
    file, line, reason and text to ``<directory>/<source>-<label>.jsonl``, which appears whole when the slice
    has been read to its end and is replaced by the same when it is read again; no bad records, no file.
    """

    def __init__(self, source: str, corrupt: CorruptRecords, label: str) -> None:
        self._source = source
        self._corrupt = corrupt
        self._target = Path(corrupt.directory, f"{source}-{label}.jsonl")
        self._file: IO[str] | None = None
        self.records = 0
        """How many were left out so far."""

    def __enter__(self) -> Self:
        return self

    def reject(self, file: str, bad: BadRecord) -> None:
        """Leave out one record of ``file``. Raises MillraceError on policy ``fail``, or on a full disk."""
        if self._corrupt.policy == "fail":
            shown = bad.text if len(bad.text) <= _SHOWN else bad.text[:_SHOWN] + "..."
            raise MillraceError(
                Problem(
                    f"source {self._source} cannot decode {shown!r}: {bad.reason}",
                    "correct it or the schema, or set corruptRecords.policy to drop or deadLetter",
                    file,
                    bad.line,
                )
            )
        self.records += 1
        if self._corrupt.policy == "deadLetter":
            letter = {
                "source": self._source,
                "file": file,
                "line": bad.line,
                "reason": bad.reason,
                "text": bad.text,
            }
            self._write(json.dumps(letter, ensure_ascii=False) + "\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        unfinished = Path(self._file.name)
        try:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                unfinished.replace(self._target)
        except OSError as fault:
            raise self._unwritable(fault) from fault
        finally:
            with suppress(OSError):  # what could not be written cannot be written now
                self._file.close()
            unfinished.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        try:
            if self._file is None:
                self._target.parent.mkdir(parents=True, exist_ok=True)
                # Two attempts at one task may run side by side, so the unfinished file has a name of its own.
                self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed in __exit__
                    "w", encoding="utf-8", dir=self._target.parent, prefix=".", suffix=".tmp", delete=False
                )
            self._file.write(line)
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def _unwritable(self, fault: OSError) -> MillraceError:
        return MillraceError(
            Problem(
                f"cannot write the dead letters of source {self._source}: {fault.strerror}",
                "make corruptRecords.path a folder that can be written",
                str(self._target),
            )
        )
