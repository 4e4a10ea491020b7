"""Files that are there and files that arrive, as a stream."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.base import CorruptRecords, Position, Rejected, Slice
from millrace_jobs.sources.dead_letters import Rejects
from millrace_jobs.sources.file_log import FileLog, SeenFile
from millrace_jobs.sources.formats import file_format
from millrace_jobs.sources.slicing import Extent, FilePiece, cut

_LEAVE = "leave files as they are; write new ones elsewhere and rename them into place"


@dataclass(frozen=True)
class FilesSlice:
    """Pieces of files that one replica reads one after the other."""

    pieces: tuple[FilePiece, ...]


class FilesSource:
    """The records of a file, of the files of a folder (not of folders in it), or of those a glob matches.

    Files are taken in order of (modification time, name) as they are found; their order is kept in a log in
    ``log_directory``, and the position ``{"files": k}`` is its first k entries. Names that begin with ``.``
    or ``_`` are left out. A file must be complete when it appears: write it elsewhere, then rename it.

    Raises MillraceError where there is no such path, and later where a file is gone or has another size.
    """

    def __init__(
        self,
        name: str,
        path: str,
        format: str,
        schema: pa.Schema,
        log_directory: str,
        *,
        max_files_per_batch: int | None = None,
        header: bool = True,
        delimiter: str = ",",
        timestamp_format: str = "iso",
        corrupt: CorruptRecords | None = None,
    ) -> None:
        self.name = name
        self.schema = schema
        self._path = Path(path).absolute()
        self._format = file_format(
            format, schema, header=header, delimiter=delimiter, timestamp_format=timestamp_format
        )
        self._max_files = max_files_per_batch
        self._corrupt = corrupt or CorruptRecords()
        self._log_directory = log_directory
        self._complete = False
        if self._path.exists() and not os.access(self._path, os.R_OK):
            raise MillraceError(Problem(f"source {name}: no permission to read this path", "", path))
        if not self._log.entries and not self._path.is_dir() and not self._list():
            raise MillraceError(
                Problem(
                    f"source {name}: no file matches this path",
                    "write a file, a folder or a glob pattern",
                    path,
                )
            )

    @cached_property
    def _log(self) -> FileLog:
        """Opened where files are looked for: not in the tasks, which read slices only."""
        return FileLog(self._log_directory)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_log"}

    def check(self) -> None:
        """Look at the first file of a new query. Raises MillraceError where it has other columns than the schema."""
        if not self._log.entries and (first := self._new_files(self._log)[:1]):
            self._format.check(first[0].path)

    def initial(self) -> Position:
        """Before the first file."""
        return {"files": 0}

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Look for new files; at most ``max_files_per_batch`` further than ``start``, however many records they have.

        With ``everything`` it looks once: files that arrive later are the next run's.
        """
        log = self._seen(start)
        if not self._complete and (new := self._new_files(log)):
            log.append(new)
        self._complete = everything
        seen = len(log.entries)
        return {"files": seen if self._max_files is None else min(seen, start["files"] + self._max_files)}

    def exhausted(self, position: Position) -> bool:
        """Never: more files may arrive."""
        return False

    def lag(self, position: Position) -> int:
        """Files not yet consumed, also those that no batch has looked at."""
        log = self._seen(position)
        return len(log.entries) - int(position["files"]) + len(self._new_files(log))

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Equal parts of all bytes (of Parquet: rows); none where the files are empty."""
        files = self._seen(end).entries[start["files"] : end["files"]]
        extents = [Extent(f.path, f.size, self._length(f), self._format.divisible(f.path)) for f in files]
        return [FilesSlice(pieces) for pieces in cut(extents, replicas)]

    def read(self, piece: Slice, label: str) -> Iterator[pa.RecordBatch | Rejected]:
        """The records of the slice's pieces."""
        assert isinstance(piece, FilesSlice)
        with Rejects(self.name, self._corrupt, label) as rejects:
            for part in piece.pieces:
                _check_unchanged(part.path, part.size)
                yield from self._format.read(part.path, part.begin, part.end, rejects.reject)
        if rejects.records:
            yield Rejected(rejects.records)

    def _seen(self, position: Position) -> FileLog:
        if position["files"] > len(self._log.entries):
            raise MillraceError(
                f"source {self.name}: the checkpoint is at file {position['files']}, but its log knows "
                f"{len(self._log.entries)} files; restore the log, or start with a new checkpoint"
            )
        return self._log

    def _new_files(self, log: FileLog) -> list[SeenFile]:
        files = []
        for path in self._list():
            if path not in log.paths:
                with suppress(FileNotFoundError):  # renamed since it was listed, and so not ours yet
                    status = Path(path).stat()
                    files.append(SeenFile(path, status.st_size, status.st_mtime_ns))
        return sorted(files, key=lambda file: (file.mtime_ns, file.path))

    def _list(self) -> list[str]:
        """Paths of all files that match, whether seen or not."""
        try:
            if self._path.is_file():
                return [str(self._path)]
            root = self._path if self._path.is_dir() else _root(self._path)
            is_pattern = root != self._path
            found = root.glob(str(self._path.relative_to(root))) if is_pattern else root.iterdir()
            return [str(file) for file in found if not _hidden(file.relative_to(root)) and file.is_file()]
        except OSError as error:
            raise MillraceError(
                Problem(f"source {self.name}: cannot list the files: {error.strerror}", "", str(self._path))
            ) from error

    def _length(self, file: SeenFile) -> int:
        _check_unchanged(file.path, file.size)
        return self._format.extent(file.path, file.size)


def _root(pattern: Path) -> Path:
    """The part of a glob pattern before its first wildcard."""
    return next((p for p in pattern.parents if not glob.has_magic(str(p))), Path(pattern.anchor))


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _check_unchanged(path: str, size: int) -> None:
    try:
        now = Path(path).stat().st_size
    except OSError as error:
        raise MillraceError(
            Problem(f"was seen earlier and is not there now: {error.strerror}", _LEAVE, path)
        ) from error
    if now != size:
        raise MillraceError(Problem(f"had {size} bytes when it was seen and has {now} now", _LEAVE, path))
