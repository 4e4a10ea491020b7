"""Existing and newly arriving files as a stream of records."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from millrace_api.errors import MillraceError, MissingInputError, Problem
from millrace_jobs.sources.base import (
    CorruptRecords,
    OnArrival,
    Position,
    Rejected,
    Slice,
    Source,
    cut,
    ignore_arrivals,
)
from millrace_jobs.sources.dead_letters import BadRecordHandler
from millrace_jobs.sources.file_log import FileLog, SeenFile
from millrace_jobs.sources.formats.file_formats import file_format

_LEAVE_HINT = "leave files as they are; write new ones elsewhere and rename them into place"


@dataclass(frozen=True)
class FilePiece:
    """The bytes (Parquet: rows) ``[begin, end)`` of a file that had ``size`` bytes when it was first seen."""

    path: str
    size: int
    begin: int
    end: int
    modified_ns: int = field(default=0, compare=False)
    """When the file was written, in ns since 1970."""


@dataclass(frozen=True)
class FilesSlice:
    """Pieces of files that one replica reads one after another."""

    pieces: tuple[FilePiece, ...]


class FilesSource(Source):
    """The records of one file, of the files in a folder (not in its subfolders), or of the files that match a glob.

    The new files of a listing are read in order of (modification time, path). The order is stored in a log in
    ``log_directory``, and the position ``{"files": k}`` stands for its first k entries. Names that begin with ``.``
    or ``_`` are ignored. A file must be complete when it appears: write it elsewhere, then rename it. A file is
    identified by its path: another file under the same path is not read. A file that was read may be removed, and
    is forgotten later (``FileLog``).

    Raises MillraceError if no file matches the path, and later if a file is gone or its size has changed.
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
        clock: Callable[[], float] = time.time,
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
        self._clock = clock
        with self._named_errors():
            if self._path.exists() and not os.access(self._path, os.R_OK):
                message = f"source {name}: no permission to read this path"
                raise MillraceError(Problem(message, "let this user read it", path))
        log = FileLog(log_directory)  # only for this check: another process plans the batches
        if not log.count and not self._path.is_dir() and not self._has_files():
            hint = "write a file, a folder or a glob pattern"
            raise MissingInputError(Problem(f"source {name}: no file matches this path", hint, path))

    @cached_property
    def _log(self) -> FileLog:
        return FileLog(self._log_directory)

    def check(self) -> None:
        """Check the first file of a new query. Raises MillraceError if its columns do not match the schema."""
        if not self._log.count and (new := self._listed(self._log)[1]):
            self._format.check(new[0].path)

    def initial(self) -> Position:
        """Return the position before the first file."""
        return {"files": 0}

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """List new files and return how far the batch after ``start`` may go.

        A batch has at most ``max_files_per_batch`` files, however many records they have: ``most`` is ignored. With
        ``everything``, the files are listed once: files that arrive later are left to the next run.
        """
        log = self._log_up_to(start)
        if not self._complete:
            present, new = self._listed(log)
            log.record(new, present, int(start["files"]), self._clock())
        self._complete = everything
        return {"files": log.count if self._max_files is None else min(log.count, start["files"] + self._max_files)}

    def lag(self, position: Position) -> int:
        """Return the number of files that the last call of ``latest`` knew of and that are not consumed."""
        return self._log_up_to(position).count - int(position["files"])

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut the files into slices of equal bytes (Parquet: rows); no slices if all files are empty."""
        try:
            files = self._log_up_to(end).files(start["files"], end["files"])
        except KeyError as error:
            message = (
                f"source {self.name}: the checkpoint is at file {start['files']}, and its log has forgotten file "
                f"{error.args[0]}, which was read and has left the folder"
            )
            raise MillraceError(Problem(message, "restore the newest copy of the checkpoint")) from None
        for file in files:
            _check_unchanged(file.path, file.size)
        lengths = [self._format.extent(file.path, file.size) for file in files]
        indivisible = {i for i, file in enumerate(files) if not self._format.divisible(file.path)}
        return [
            FilesSlice(
                tuple(FilePiece(files[i].path, files[i].size, begin, end, files[i].mtime_ns) for i, begin, end in part)
            )
            for part in cut(lengths, replicas, indivisible)
        ]

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the records of the pieces of a slice."""
        assert isinstance(piece, FilesSlice)
        with BadRecordHandler(self.name, self._corrupt, label) as rejects:
            for part in piece.pieces:
                _check_unchanged(part.path, part.size)
                for records in self._format.read(part.path, part.begin, part.end, rejects.reject):
                    on_arrival(np.array([part.modified_ns // 1000]), np.array([records.num_rows]))
                    yield records
        if rejects.records:
            yield Rejected(rejects.records)

    def _log_up_to(self, position: Position) -> FileLog:
        """Return the log of files seen; raise MillraceError if the position is beyond its end."""
        if position["files"] > self._log.count:
            message = (
                f"source {self.name}: the checkpoint is at file {position['files']}, but its log knows "
                f"{self._log.count} files"
            )
            raise MillraceError(Problem(message, "restore the checkpoint, or start with a new one"))
        return self._log

    def _listed(self, log: FileLog) -> tuple[set[str], list[SeenFile]]:
        """Return the logged paths that are present, and the new files in order; only new files cost a ``stat``."""
        present, new = set(), []
        with self._named_errors():
            for file in self._listing():
                path = os.fspath(file)
                if path in log:
                    present.add(path)
                    continue
                with suppress(FileNotFoundError):  # renamed since it was listed: a later listing has its final name
                    if _is(file.is_file):
                        status = file.stat()
                        new.append(SeenFile(path, status.st_size, status.st_mtime_ns))
        return present, sorted(new, key=lambda seen: (seen.mtime_ns, seen.path))

    def _has_files(self) -> bool:
        with self._named_errors():
            return any(_is(file.is_file) for file in self._listing())

    def _listing(self) -> Iterator[os.DirEntry[str] | Path]:
        """Yield every entry that matches: seen or new, file or folder."""
        if self._path.is_file():
            yield self._path
        elif self._path.is_dir():
            yield from _below(str(self._path), ["*"])
        elif glob.has_magic(str(self._path)):
            root = _root(self._path)
            if root.is_dir():
                yield from _below(str(root), self._path.relative_to(root).parts)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Turn an OSError of a listing into an error that names the source and its path."""
        try:
            yield
        except OSError as error:
            message = f"source {self.name}: cannot list the files: {error.strerror or error}"
            raise MillraceError(Problem(message, "let this user read the folder", str(self._path))) from error


def _root(pattern: Path) -> Path:
    """Return the deepest parent folder of a glob pattern whose path has no wildcard."""
    return next((p for p in pattern.parents if not glob.has_magic(str(p))), Path(pattern.anchor))


def _below(root: str, pattern: Iterable[str]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries below a folder that match the parts of a glob pattern, reading each folder once.

    Hidden entries and the contents of hidden folders do not match. ``**`` stands for any number of folders. It does
    not follow symbolic links, which may form a cycle. Folders below ``root`` that are gone or unreadable are skipped.
    """
    folders = [(root, {tuple(pattern)})]
    while folders:
        folder, patterns = folders.pop()
        patterns |= {rest for parts in patterns for rest in _without_leading_stars(parts)}
        here = _matcher(parts[0] for parts in patterns if len(parts) == 1 and parts[0] != "**")
        deeper = [
            (_matcher([parts[0]]), parts if parts[0] == "**" else parts[1:], parts[0] != "**")
            for parts in patterns
            if len(parts) > 1 or parts[0] == "**"
        ]
        try:
            for entry in _visible(folder):
                name = entry.name
                if here(name):
                    yield entry
                below = {
                    rest
                    for matches, rest, links in deeper
                    if matches(name) and _is(entry.is_dir, follow_symlinks=links)
                }
                if below:
                    folders.append((entry.path, below))
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            if folder == root:
                raise


def _is(kind: Callable[..., bool], **how: bool) -> bool:
    """Call ``is_file`` or ``is_dir`` of an entry; a symbolic link to itself is neither."""
    try:
        return kind(**how)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _without_leading_stars(parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the pattern without its leading ``**`` parts, since ``**`` also stands for no folder at all."""
    while parts[0] == "**" and len(parts) > 1:
        parts = parts[1:]
        yield parts


def _matcher(names: Iterable[str]) -> Callable[[str], re.Match[str] | None]:
    """Return a function that matches a name against these glob patterns."""
    return re.compile("|".join(map(fnmatch.translate, names)) or "(?!)").match


def _visible(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith((".", "_")):
                yield entry


def _check_unchanged(path: str, size: int) -> None:
    try:
        now = Path(path).stat().st_size
    except OSError as error:
        message = f"was seen earlier and is not there now: {error.strerror}"
        raise MillraceError(Problem(message, _LEAVE_HINT, path)) from error
    if now != size:
        raise MillraceError(Problem(f"had {size} bytes when it was seen and has {now} now", _LEAVE_HINT, path))
