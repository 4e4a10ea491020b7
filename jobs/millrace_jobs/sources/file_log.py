"""Which files were seen, in which order: an append-only log that a crash cannot make ambiguous."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.disk import sync


@dataclass(frozen=True)
class SeenFile:
    """A file as it was when it was seen: absolute path, size in bytes, modification time in ns."""

    path: str
    size: int
    mtime_ns: int


class FileLog:
    """JSON lines in ``<directory>/files.jsonl``, one per file; once appended, entry k never changes.

    A last line without its end, as a crash leaves it, was never announced to anybody and is written over.
    Raises MillraceError where the log cannot be read or made, or is damaged elsewhere.
    """

    def __init__(self, directory: str) -> None:
        self._path = Path(directory, "files.jsonl")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()
            sync(self._path.parent)
            content = self._path.read_bytes()
        except OSError as error:
            raise self._unusable(error) from error
        self._bytes = content.rfind(b"\n") + 1
        self.entries = [self._entry(i, line) for i, line in enumerate(content[: self._bytes].splitlines(), 1)]
        """Every file seen so far, in order."""
        self.paths = {entry.path for entry in self.entries}

    def append(self, files: Sequence[SeenFile]) -> None:
        """Add files; they are on disk when this returns. Raises MillraceError, and nothing was added then."""
        lines = "".join(json.dumps(asdict(file)) + "\n" for file in files).encode()
        try:
            with self._path.open("r+b") as log:
                log.seek(self._bytes)
                log.truncate()
                log.write(lines)
                log.flush()
                os.fsync(log.fileno())
        except OSError as error:
            raise self._unusable(error) from error
        self._bytes += len(lines)
        self.entries.extend(files)
        self.paths.update(file.path for file in files)

    def _entry(self, number: int, line: bytes) -> SeenFile:
        try:
            return SeenFile(**json.loads(line))
        except (ValueError, TypeError) as error:
            message = f"the log of files seen is damaged: {line[:100].decode(errors='backslashreplace')!r}"
            raise MillraceError(
                Problem(message, "restore the checkpoint, or start with a new one", str(self._path), number)
            ) from error

    def _unusable(self, error: OSError) -> MillraceError:
        return MillraceError(Problem(f"cannot keep the log of files seen: {error.strerror}", "", str(self._path)))
