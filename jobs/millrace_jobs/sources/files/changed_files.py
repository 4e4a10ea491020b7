"""Files that have changed since they were first seen, which is an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from millrace_api.errors import MillraceError, Problem
from millrace_api.validation.places import is_object
from millrace_jobs.sources.seen_file import SeenFile, look, unreadable

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
