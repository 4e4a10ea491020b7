"""A log of the files seen and their order, which a crash cannot make ambiguous and which does not grow without bound.

A file is identified by its path. It is read once because its path is in the log. The log must therefore keep every
path that a listing may show again, and every file that a batch may read again. It forgets a file only if both hold:

- a finished batch has read the file, and
- every listing for ``KEPT_SECONDS`` has been without the file. One such listing does not prove that the file is gone:
  the listing of a folder that is being written to may have gaps, and a folder that is not mounted is empty.

The size of the log is thus bounded by the files in the folder and those that left it within ``KEPT_SECONDS``.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.disk import sync
from millrace_jobs.sources.stored_files import SeenFile
from millrace_jobs.stores.objects import ObjectPath

ANOTHER_WRITER = Problem(
    "another driver has written to the log of files seen",
    "make sure that only one driver runs, then run the same command again: nothing is lost",
)

KEPT_SECONDS = 86_400
"""Seconds for which a file must be missing before it is forgotten; longer than a folder stays unmounted by mistake."""

_SLACK = 1_000  # outdated entries that the log may always hold, so that a short log is not rewritten again and again


class FileLogMirror:
    """The log as an object, which is replaced as a whole before the working copy of this run in a folder is changed.

    The readers of a run share the working copy and, in ``files.tag`` beside it, the version of the object that it is. A
    version that this run has not written is another driver's.
    """

    def __init__(self, log: ObjectPath, folder: Path) -> None:
        self._log = log
        self._tag, self._attempt = folder / "files.tag", folder / "files.attempt"

    def fetch(self, copy: Path) -> None:
        """Write the working copy, unless another reader of this run has done so. Call it under the log's lock."""
        if self._tag.exists():
            return
        try:
            content, tag = self._log.read_version()
        except FileNotFoundError:
            content, tag = b"", ""
        copy.write_bytes(content)
        self._tag.write_text(tag, encoding="utf-8")

    def replace(self, content: bytes) -> None:
        """Replace the object; call it under the log's lock.

        After a lost answer, it may have what the last attempt of this run wrote, which is kept beside the copy. Raises
        MillraceError if another driver has written to it. Raises OSError if the object store does not do it, and
        nothing else has changed.
        """
        before = self._attempt.read_bytes() if self._attempt.exists() else None
        self._attempt.write_bytes(content)
        tag = self._put(content, self._tag.read_text(encoding="utf-8"))
        if tag is None:
            found, tag = self._log.read_version()
            if found not in (content, before):
                raise MillraceError(ANOTHER_WRITER)
            tag = tag if found == content else self._put(content, tag)
            if tag is None:
                raise MillraceError(ANOTHER_WRITER)
        self._tag.write_text(tag, encoding="utf-8")

    def _put(self, content: bytes, tag: str) -> str | None:
        return self._log.replace_version(content, tag) if tag else self._log.create(content)


class FileLog:
    """The files seen so far, numbered from 0 in the order in which they are read.

    The log is ``<directory>/files.jsonl``, with one JSON object per line:

    - ``{"path": ..., "size": ..., "mtime_ns": ...}``: the next file; its number never changes
    - ``{"left": [numbers], "at": seconds since 1970}``: these files have been missing since that time
    - ``{"back": [numbers]}``: these files are in the folder again
    - ``{"next": number}``: the number of the next file; the numbers skipped belong to forgotten files

    A crash may leave an incomplete last line; it was never used and is overwritten. A log that another driver has
    written to in the meantime is not touched: an old driver that resumes late must not number files again. The readers
    of one run, of which a query that reads a source twice has two, number files together: ``files.run`` has the run
    that wrote last, and whether its only listing is complete.

    A listing by name need not show a file again: then ``kept_seconds`` is 0, and only the last file must be kept.

    With ``mirrored``, the log is an object in an object store, and the directory has the working copy of one run.

    Raises MillraceError if the log cannot be read or written, is damaged in any other way, or has another writer.
    """

    def __init__(
        self, directory: str, run: str = "", mirrored: ObjectPath | None = None, kept_seconds: int = KEPT_SECONDS
    ) -> None:
        self._kept_seconds = kept_seconds
        self._path = Path(directory, "files.jsonl")
        self._mirror = None if mirrored is None else FileLogMirror(mirrored / "files.jsonl", self._path.parent)
        self._run_path = Path(directory, "files.run")
        self._run = run or uuid.uuid4().hex
        self._in_turn: Iterator[int] = iter(())
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()
            sync(self._path.parent)
            if self._mirror is not None:
                with self._locked():
                    self._mirror.fetch(self._path)
            self._read()
        except OSError as error:
            raise self._unusable(error) from error

    def _read(self) -> None:
        self._files: dict[int, SeenFile] = {}
        self._numbers: dict[str, int] = {}
        self._left: dict[int, float] = {}
        self._entries = 0  # files and numbers in the log, outdated ones included
        self.count = 0
        """Files seen so far, forgotten ones included: the number of the next file."""
        self._written_version = _version(self._path)
        content = self._path.read_bytes()
        self._bytes = content.rfind(b"\n") + 1
        for number, line in enumerate(content[: self._bytes].splitlines(), 1):
            try:
                self._apply(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                message = f"the log of files seen is damaged: {line[:100].decode(errors='backslashreplace')!r}"
                hint = "restore the checkpoint, or start with a new one"
                raise MillraceError(Problem(message, hint, str(self._path), number)) from error

    def __contains__(self, path: str) -> bool:
        return path in self._numbers

    def __len__(self) -> int:
        """Return the number of files that are remembered."""
        return len(self._files)

    def files(self, start: int, end: int) -> list[SeenFile]:
        """Return the files with the numbers ``start`` to ``end - 1``. Raises KeyError if one has been forgotten."""
        return [self._files[number] for number in range(start, end)]

    def last(self) -> SeenFile | None:
        """Return the newest file that is remembered, if any."""
        return next(reversed(self._files.values()), None)

    def remembered(self) -> Iterable[tuple[int, SeenFile]]:
        """Return all files that are remembered, by number."""
        return self._files.items()

    def next_remembered(self, count: int) -> list[tuple[int, SeenFile]]:
        """Return the next ``count`` files that are remembered, by number; after the last one come the first again."""
        numbers = list(islice(self._in_turn, count))
        if len(numbers) < count:
            self._in_turn = iter(list(self._files))
        return [(number, self._files[number]) for number in numbers if number in self._files]

    def follow(self) -> None:
        """Know of what another run has recorded since, for a reader that records nothing itself."""
        known = self._written_version
        try:
            with self._locked():
                self._read()
        except OSError as error:
            raise self._unusable(error) from error
        self._written_version = known  # or this run would take another's writes for its own, and write after them

    def is_complete(self) -> bool:
        """Return whether a reader of this run has recorded the only listing; if so, know of all that it recorded."""
        try:
            with self._locked() as recorded:
                is_complete = recorded == self._complete_run
                if is_complete and _version(self._path) != self._written_version:
                    self._read()
                return is_complete
        except OSError as error:
            raise self._unusable(error) from error

    def record(
        self, new: Sequence[SeenFile], present: Set[str], consumed: int, now: float, *, complete: bool = False
    ) -> None:
        """Record a listing durably: it is on disk when this method returns.

        Raises MillraceError if the log cannot be written, and nothing was added.

        Args:
            new: files that are not in the log, in the order in which they are to be read.
            present: paths in the log that were found. An empty listing marks no file as missing.
            consumed: finished batches have read all files before this number.
            now: seconds since 1970.
            complete: this is the only listing of the run.
        """
        try:
            if complete or self._changes(new, present, consumed, now):
                with self._writing(complete=complete):
                    lines = self._changes(new, present, consumed, now)
                    if lines:
                        self._append(lines)
                for line in lines:
                    self._apply(line)
            if present or new:
                self._compact(now)
        except OSError as error:
            raise self._unusable(error) from error

    def _changes(self, new: Sequence[SeenFile], present: Set[str], consumed: int, now: float) -> list[dict[str, Any]]:
        """Return the lines to add for a listing; another reader of this run may have recorded some of its files."""
        present = present | {file.path for file in new if file.path in self}
        new = [file for file in new if file.path not in self]
        if self._kept_seconds == 0 and (last := self.last()) is not None:  # another reader may have forgotten some
            present = present | {last.path}
            new = [file for file in new if file.path > last.path]
        missing = {self._numbers[path] for path in self._numbers.keys() - present}
        left = sorted(n for n in missing - self._left.keys() if n < consumed) if present or new else []
        back = sorted(self._left.keys() - missing)
        lines: list[dict[str, Any]] = [asdict(file) for file in new]
        lines += [{"left": left, "at": int(now)}] if left else []
        lines += [{"back": back}] if back else []
        return lines

    def _compact(self, now: float) -> None:
        """Forget files that left long ago, once half of the log is outdated; each entry is then copied about once."""
        kept = len(self._files) + len(self._left) - 2 * len(self._forgotten(now))
        if self._entries <= 2 * kept + _SLACK:
            return
        partial = self._path.with_suffix(".new")
        with self._writing():
            forgotten = self._forgotten(now)  # another reader of this run may have recorded more
            files = {number: file for number, file in self._files.items() if number not in forgotten}
            left = {number: at for number, at in self._left.items() if number not in forgotten}
            with partial.open("wb") as log:
                log.writelines(_encoded(line) for line in _snapshot(files, left, self.count))
                log.flush()
                os.fsync(log.fileno())
                length = log.tell()
            if self._mirror is not None:
                self._mirror.replace(partial.read_bytes())
            partial.replace(self._path)
            self._written_version = _version(self._path)
            self._bytes, self._entries = length, len(files) + len(left)
            self._files, self._left = files, left
            self._numbers = {file.path: number for number, file in files.items()}
            sync(self._path.parent)

    def _forgotten(self, now: float) -> set[int]:
        return {number for number, at in self._left.items() if at + self._kept_seconds <= now}

    def _append(self, lines: Iterable[dict[str, Any]]) -> None:
        content = b"".join(map(_encoded, lines))
        if self._mirror is not None:
            self._mirror.replace(self._path.read_bytes()[: self._bytes] + content)
        try:
            with self._path.open("r+b") as log:
                log.seek(self._bytes)
                log.truncate()
                log.write(content)
                log.flush()
                os.fsync(log.fileno())
        finally:
            self._written_version = _version(self._path)
        self._bytes += len(content)

    @property
    def _complete_run(self) -> str:
        return f"{self._run} complete"

    @contextmanager
    def _locked(self) -> Iterator[str]:
        """Keep other readers of this run from writing, and give the content of ``files.run``."""
        with self._run_path.open("a+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            yield lock.read()

    @contextmanager
    def _writing(self, *, complete: bool = False) -> Iterator[None]:
        """Let this run be the one that wrote last, and know first of all that its other readers have recorded.

        Raises MillraceError if another run has written to the log since this one read it.
        """
        with self._locked() as recorded:
            if _version(self._path) != self._written_version:
                if recorded not in (self._run, self._complete_run):
                    raise MillraceError(replace(ANOTHER_WRITER, file=str(self._path)))
                self._read()
            if complete or recorded not in (self._run, self._complete_run):
                self._run_path.write_text(self._complete_run if complete else self._run, encoding="utf-8")
            yield

    def _apply(self, line: dict[str, Any]) -> None:
        if "next" in line:
            self.count = int(line["next"])
        elif "left" in line:
            self._left.update(dict.fromkeys(line["left"], float(line["at"])))
            self._entries += len(line["left"])
        elif "back" in line:
            for number in line["back"]:
                del self._left[number]
            self._entries += len(line["back"])
        else:
            file = SeenFile(**line)
            self._files[self.count] = file
            self._numbers[file.path] = self.count
            self.count += 1
            self._entries += 1

    def _unusable(self, error: OSError) -> MillraceError:
        message = f"cannot read or write the log of files seen: {error.strerror or error}"
        if self._mirror is not None:
            return TransientError(Problem(message, "check that the object store answers", str(error.filename)))
        return MillraceError(Problem(message, "free some space there, and let this user write to it", str(self._path)))


def _version(path: Path) -> tuple[int, int]:
    """Return the inode and the length in bytes of the log file, which reveal a write by another process."""
    with path.open("rb") as log:  # on a network file system, opening refreshes the attributes
        status = os.fstat(log.fileno())
    return status.st_ino, status.st_size


def _snapshot(files: dict[int, SeenFile], left: dict[int, float], count: int) -> Iterable[dict[str, Any]]:
    following = 0
    for number, file in files.items():  # the dict is in ascending order: numbers only grow
        if number != following:
            yield {"next": number}
        yield asdict(file)
        following = number + 1
    yield {"next": count}
    by_time: dict[float, list[int]] = {}
    for number, at in left.items():
        by_time.setdefault(at, []).append(number)
    yield from ({"left": numbers, "at": at} for at, numbers in by_time.items())


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"
