"""Existing and newly arriving files as a stream of records; one that changes after it was first seen is an error."""

from __future__ import annotations

import errno
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from millrace_api.errors import MillraceError, MissingInputError, Problem, TransientError
from millrace_api.validation.places import is_object
from millrace_jobs.confinement import require_data
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
from millrace_jobs.sources.files.file_log import KEPT_SECONDS, FileLog
from millrace_jobs.sources.files.listing import FileListing, ObjectListing, seen
from millrace_jobs.sources.formats.file_formats import file_format
from millrace_jobs.sources.formats.format_reader import path_columns
from millrace_jobs.sources.stored_files import ListingPause, SeenFile, look, unreadable
from millrace_jobs.stores.objects import ObjectPath

_SIZE_HINT = (
    "write new records to a file with another name, and restore this one, or remove it if it was read; "
    "or start with another checkpoint"
)
_UNREAD_HINT = (
    "restore it with its size and modification time (touch -d), or start with another checkpoint; "
    "write files elsewhere, and rename them into place"
)

_OBJECT_HINT = "write new records to an object with another key; start with another checkpoint if this one is lost"

Present = Mapping[str, SeenFile | None]
"""Paths that a listing has shown; of objects, it has also said what there is to see."""

log = logging.getLogger(__name__)

LISTED_PER_TRIGGER = 10_000
"""New files by name that a run knows of at most before it reads them, so that its log stays short."""

CHECKED_PER_TRIGGER = 100
"""Known files that a trigger looks at, one after the other, to find those that have changed since they were seen."""


@contextmanager
def unchanging(file: SeenFile) -> Iterator[None]:
    """Raise MillraceError if a file differs from when it was seen, before this block or after it.

    What goes wrong within the block with a file that has changed is reported as its change.
    """
    require_unchanged([file])
    try:
        yield
    except MillraceError:
        require_unchanged([file])
        raise
    require_unchanged([file])


def require_unchanged(files: Iterable[SeenFile], present: Present | None = None) -> None:
    """Raise MillraceError if a file that is still to be read has another size or time than when it was seen.

    Args:
        files: the files, as they were first seen.
        present: what a listing has just shown, so that a file which is gone by now was removed after it was read.
    """
    for file, written in touched(files, present):
        before, after = (_time(each) for each in (file.mtime_ns, written))
        message = f"had been written at {before} when it was seen, and was written again at {after}"
        raise MillraceError(Problem(message, _unread_hint(file), file.path))


def touched(files: Iterable[SeenFile], present: Present | None = None) -> Iterator[tuple[SeenFile, int]]:
    """Yield the files that have another time than when they were seen, with that time in nanoseconds.

    Raises MillraceError if one has another size.
    """
    for file in files:
        now = _now(file, present)
        if now is None:
            continue
        if now.size != file.size:
            message = f"had {file.size} bytes when it was seen and has {now.size} now"
            raise MillraceError(Problem(message, _SIZE_HINT, file.path))
        if now.mtime_ns != file.mtime_ns:
            yield file, now.mtime_ns


def _now(file: SeenFile, present: Present | None) -> SeenFile | None:
    try:
        return (present or {}).get(file.path) or look(file.path)
    except FileNotFoundError as error:
        if present is not None:
            return None
        message = f"was seen earlier and is not there now: {error.strerror}"
    except OSError as error:
        message = f"was seen earlier and cannot be found now: {error.strerror}"
        if is_object(file.path):
            raise unreadable(file.path, error) from None
    raise MillraceError(Problem(message, _unread_hint(file), file.path))


def _unread_hint(file: SeenFile) -> str:
    return _OBJECT_HINT if is_object(file.path) else _UNREAD_HINT


def _time(nanoseconds: int) -> str:
    """Return a time as ``touch -d`` takes it, to the nanosecond."""
    seconds, fraction = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


@dataclass(frozen=True)
class FilePiece:
    """The bytes (Parquet: rows) ``[begin, end)`` of a file that had ``size`` bytes when it was first seen."""

    path: str
    size: int
    begin: int
    end: int
    modified_ns: int = field(default=0, compare=False)
    """When the file was written, in ns since 1970."""

    @property
    def file(self) -> SeenFile:
        """The file as it was first seen."""
        return SeenFile(self.path, self.size, self.modified_ns)


@dataclass(frozen=True)
class FilesSlice:
    """Pieces of files that one replica reads one after another."""

    pieces: tuple[FilePiece, ...]


class FilesSource(Source):
    """The records of one file, of the files in a folder (not in its subfolders), or of the files that match a glob.

    The files are in a file system, or are objects in an object store.

    The new files of a listing are read in order of (modification time, path), or with ``by_name`` of the path: then
    only files behind the last one are listed. The order is stored in a log in ``log_directory``, of which ``mirrored``
    has a copy that outlives the run; the position ``{"files": k}`` stands for its first k entries. The names of a
    file's folders have the columns ``in_path``. Names that begin with ``.`` or ``_`` are ignored. A file must be
    complete when it appears: write it elsewhere, then rename it. A file is identified by its path: another file under
    the same path is not read. A file that was read may be removed, and is forgotten later (``FileLog``).

    Raises MillraceError if no file matches the path, or the files seen so far are elsewhere, and later if a file that
    is to be read is gone, or has another size or modification time than when it was first seen. Files are compared
    before and after they are read. The size of those in the log that are present is compared also at the start of a run
    (``check``), and then ``CHECKED_PER_TRIGGER`` of them are in each trigger. The time of a file that was read may
    change: copies, restored backups and checkouts have other times.
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
        mirrored: ObjectPath | None = None,
        in_path: Sequence[str] = (),
        by_name: bool = False,
    ) -> None:
        self.name = name
        self.schema = schema
        self._mirrored = mirrored
        self._format = file_format(
            format, schema, header=header, delimiter=delimiter, timestamp_format=timestamp_format, in_path=in_path
        )
        self._in_path = path_columns(schema, in_path, timestamp_format)
        self._by_name = by_name
        self._pause = ListingPause()
        self._max_files = max_files_per_batch
        self._corrupt = corrupt or CorruptRecords()
        self._log_directory = log_directory
        self._complete = False
        self._clock = clock
        self._run = uuid.uuid4().hex
        with self._named_errors(path):
            self._files: FileListing | ObjectListing = ObjectListing(path) if is_object(path) else FileListing(path)
            root = self._files.root
            if isinstance(root, Path) and root.exists() and not os.access(root, os.R_OK):
                message = f"source {name}: no permission to read this path"
                raise MillraceError(Problem(message, "let this user read it", str(root)))
            log = FileLog(log_directory, mirrored=mirrored)  # only for these checks: another process plans the batches
            last = log.last()
            is_new = not log.count or (last is not None and not self._files.covers(last.path))
            # files that an earlier run has seen may have been deleted
            if is_new and not self._files.is_folder and not self._files.has_files():
                hint = f"write a file, a folder or a glob pattern ({self._files.described()})"
                raise MissingInputError(Problem(f"source {name}: no file matches this path", hint, path))
        self._require_same_place(log)

    def _require_same_place(self, log: FileLog) -> None:
        """Refuse files in another place than those seen so far: a relative path leads elsewhere from another folder."""
        last = log.last()
        if last is not None and not self._files.covers(last.path):
            message = f"source {self.name}: the files seen so far are elsewhere, such as {last.path}"
            hint = "run the query in the folder in which it ran before, or start with another checkpoint"
            raise MillraceError(Problem(message, hint, str(self._files)))

    @property
    def input(self) -> str:
        """The files that it reads, for messages."""
        if self._files.pattern:
            return f"files that match {self._files}"
        return f"files in {self._files}" if self._files.is_folder else f"file at {self._files}"

    @cached_property
    def _log(self) -> FileLog:
        return FileLog(self._log_directory, self._run, self._mirrored, 0 if self._by_name else KEPT_SECONDS)

    def check(self) -> None:
        """Check the first file of a new query, or the files that an earlier run has seen.

        Which of those were read is not known here, so only their size is compared; those with another time are logged.

        Raises MillraceError if the columns of the first do not match the schema, or one of the others has another size.
        """
        present, new = self._listed(self._log, 1 if self._by_name else None)
        if self._log.count:
            files = (file for _, file in self._log.remembered() if file.path in present)
            other_time = [file for file, _ in touched(files, present)]
            if other_time:
                log.warning(
                    "source %s: %d of the files seen have the same size and another modification time, such as %s; "
                    "those that were read are not read again",
                    self.name,
                    len(other_time),
                    other_time[0].path,
                )
        elif new:
            self._format.check(new[0].path)

    @property
    def has_seen_files(self) -> bool:
        """Whether an earlier run has seen files."""
        return bool(self._log.count)

    def check_newest(self) -> None:
        """Check the newest file present, also where an earlier run has seen it. Raises MillraceError as ``check``."""
        with self._named_errors(str(self._files)):
            entries = (entry for _, entry in self._files.entries())
            present = [entry if isinstance(entry, SeenFile) else seen(entry) for entry in entries]
        newest = max((file for file in present if file is not None), key=lambda file: file.mtime_ns, default=None)
        if newest is not None:
            self._format.check(newest.path)

    def reads(self, file: Path | str) -> bool:
        """Return whether a file that appears at this absolute path, or an object at this URI, would be read."""
        return self._files.would_show(file)

    def initial(self) -> Position:
        """Return the position before the first file."""
        return {"files": 0}

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """List new files and return how far the batch after ``start`` may go.

        A batch has at most ``max_files_per_batch`` files, however many records they have: ``most`` is ignored. With
        ``everything``, the files are listed once: files that arrive later are left to the next run.
        """
        log = self._log_up_to(start)
        if self._complete or (everything and log.is_complete()):
            pass  # the only listing of this run was recorded
        elif self._by_name:
            most_new = None if everything else LISTED_PER_TRIGGER - (log.count - int(start["files"]))
            if most_new is None or most_new > 0:
                present, new = self._listed(log, most_new)
                log.record(new, present.keys(), int(start["files"]), self._clock(), complete=everything)
        elif everything or self._pause.is_over():
            with self._pause.measured():
                self._record_all(log, int(start["files"]), complete=everything)
        self._complete = everything
        return {"files": log.count if self._max_files is None else min(log.count, start["files"] + self._max_files)}

    def _record_all(self, log: FileLog, consumed: int, *, complete: bool) -> None:
        present, new = self._listed(log)
        is_free = isinstance(self._files, ObjectListing)  # the listing has said what there is to see
        checked = log.remembered() if is_free else log.next_remembered(CHECKED_PER_TRIGGER)
        in_turn = [each for each in checked if each[1].path in present]
        deque(touched((file for number, file in in_turn if number < consumed), present), maxlen=0)  # sizes matter
        require_unchanged((file for number, file in in_turn if number >= consumed), present)
        log.record(new, present.keys(), consumed, self._clock(), complete=complete)

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
        if not isinstance(self._files, ObjectListing):  # which would be asked once for each, one after the other
            require_unchanged(files)
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
                require_data(part.path)  # the link that it may be by now was none when it was listed
                with unchanging(part.file):
                    for records in self._format.read(part.path, part.begin, part.end, rejects.reject):
                        on_arrival(np.array([part.modified_ns // 1000]), np.array([records.num_rows]))
                        yield records
        if rejects.records:
            yield Rejected(rejects.records)

    def _log_up_to(self, position: Position) -> FileLog:
        if position["files"] > self._log.count:
            self._log.follow()
        if position["files"] > self._log.count:
            message = (
                f"source {self.name}: the checkpoint is at file {position['files']}, but its log knows "
                f"{self._log.count} files"
            )
            raise MillraceError(Problem(message, "restore the checkpoint, or start with a new one"))
        return self._log

    def _listed(self, log: FileLog, most: int | None = None) -> tuple[Present, list[SeenFile]]:
        """Return the logged paths that are present, and the new files in order; only new files cost a ``stat``.

        By name, these are the last logged path, and the next files, at most so many.
        """
        last = log.last() if self._by_name else None
        after = "" if last is None else last.path
        present: dict[str, SeenFile | None] = {} if last is None else {last.path: None}
        new: list[SeenFile] = []
        with self._named_errors(str(self._files)):
            for path, entry in self._files.entries_after(after) if self._by_name else self._files.entries():
                if not self._by_name and path in log:
                    present[path] = entry if isinstance(entry, SeenFile) else None
                    continue
                with suppress(FileNotFoundError):  # renamed since it was listed: a later listing has its final name
                    if (now := entry if isinstance(entry, SeenFile) else seen(entry)) is not None:
                        require_data(path)  # before it is recorded, after which it has to be read
                        self._in_path.values(path)
                        new.append(now)
                if most is not None and len(new) >= most:
                    break
        return present, new if self._by_name else sorted(new, key=lambda seen: (seen.mtime_ns, seen.path))

    @contextmanager
    def _named_errors(self, path: str) -> Iterator[None]:
        """Turn an OSError of a listing into an error that names the source and its path."""
        try:
            yield
        except OSError as error:
            message = f"source {self.name}: cannot list the files: {error.strerror or error}"
            if is_object(path):
                may_pass = not isinstance(error, PermissionError) and error.errno != errno.ENXIO
                problem = Problem(message, "check spec.s3 or AWS_ENDPOINT_URL, the bucket and the login", path)
                raise (TransientError if may_pass else MillraceError)(problem) from error
            raise MillraceError(Problem(message, "let this user read the folder", path)) from error
