"""Files that are there and files that arrive, as a stream."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.sources.base import CorruptRecords, Position, Rejected, Slice
from millrace_jobs.sources.dead_letters import Rejects
from millrace_jobs.sources.file_log import FileLog, SeenFile
from millrace_jobs.sources.formats.file_formats import file_format
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
    or ``_`` are left out. A file must be complete when it appears: write it elsewhere, then rename it. It is
    known by its path: another file under the same path is not read. A file that was read may be removed, and
    is forgotten later (``FileLog``).

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
        if self._path.exists() and not os.access(self._path, os.R_OK):
            raise MillraceError(Problem(f"source {name}: no permission to read this path", "", path))
        log = FileLog(log_directory)  # not kept: batches are planned in another process
        if not log.count and not self._path.is_dir() and not self._has_files():
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
        if not self._log.count and (new := self._listed(self._log)[1]):
            self._format.check(new[0].path)

    def initial(self) -> Position:
        """Before the first file."""
        return {"files": 0}

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Look for new files; at most ``max_files_per_batch`` further than ``start``, however many records they have.

        With ``everything`` it looks once: files that arrive later are the next run's.
        """
        log = self._seen(start)
        if not self._complete:
            self._look(log, int(start["files"]))
        self._complete = everything
        return {"files": log.count if self._max_files is None else min(log.count, start["files"] + self._max_files)}

    def exhausted(self, position: Position) -> bool:
        """Never: more files may arrive."""
        return False

    def lag(self, position: Position) -> int:
        """Files that the last call of ``latest`` knew of and that are not consumed."""
        return self._seen(position).count - int(position["files"])

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Equal parts of all bytes (of Parquet: rows); none where the files are empty."""
        try:
            files = self._seen(end).files(start["files"], end["files"])
        except KeyError as error:
            raise MillraceError(
                f"source {self.name}: the checkpoint is at file {start['files']}, and its log has forgotten file "
                f"{error.args[0]}, which was read and has left the folder; put the newest copy of the checkpoint back"
            ) from None
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
        if position["files"] > self._log.count:
            raise MillraceError(
                f"source {self.name}: the checkpoint is at file {position['files']}, but its log knows "
                f"{self._log.count} files; restore the log, or start with a new checkpoint"
            )
        return self._log

    def _look(self, log: FileLog, consumed: int) -> None:
        """List the files once, and record which are new and which have left."""
        present, new = self._listed(log)
        log.record(new, present, consumed, self._clock())

    def _listed(self, log: FileLog) -> tuple[set[str], list[SeenFile]]:
        """The paths in the log that are there, and the new files in their order; only these are asked for more."""
        present, new = set(), []
        with self._named_errors():
            for file in self._listing():
                path = os.fspath(file)
                if path in log:
                    present.add(path)
                    continue
                with suppress(FileNotFoundError):  # renamed since it was listed, and so not ours yet
                    if _is(file.is_file):
                        status = file.stat()
                        new.append(SeenFile(path, status.st_size, status.st_mtime_ns))
        return present, sorted(new, key=lambda seen: (seen.mtime_ns, seen.path))

    def _has_files(self) -> bool:
        with self._named_errors():
            return any(_is(file.is_file) for file in self._listing())

    def _listing(self) -> Iterator[os.DirEntry[str] | Path]:
        """Everything that matches, whether seen or not, also folders."""
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
        """Name the source and its path where the files cannot be listed."""
        try:
            yield
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


def _below(root: str, pattern: Iterable[str]) -> Iterator[os.DirEntry[str]]:
    """Entries below a folder that match the parts of a glob pattern; each folder is read once.

    Hidden entries do not match, nor what is in hidden folders. ``**`` stands for any number of folders; it does not
    follow links, which may lead in a circle. Folders below ``root`` that have gone or may not be read are left out.
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
    """Ask ``is_file`` or ``is_dir`` of an entry; a link that leads to itself is neither."""
    try:
        return kind(**how)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _without_leading_stars(parts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """A pattern that begins with ``**`` also matches where this is no folder at all."""
    while parts[0] == "**" and len(parts) > 1:
        parts = parts[1:]
        yield parts


def _matcher(names: Iterable[str]) -> Callable[[str], re.Match[str] | None]:
    """Whether a name matches one of these glob patterns."""
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
        raise MillraceError(
            Problem(f"was seen earlier and is not there now: {error.strerror}", _LEAVE, path)
        ) from error
    if now != size:
        raise MillraceError(Problem(f"had {size} bytes when it was seen and has {now} now", _LEAVE, path))
