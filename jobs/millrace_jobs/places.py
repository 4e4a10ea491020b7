"""The places of a checkpoint and its parts, in a folder or in an object store, and what is done in both alike."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.status import FailureClass
from millrace_api.validation.places import bucket_and_prefix, folder_of, uri_problem
from millrace_jobs.disk import absolute_path, sync
from millrace_jobs.stores.objects import ObjectPath

Place = Path | ObjectPath
"""A file or a folder, or an object or the common beginning of the keys of some."""


def place_of(text: str) -> Place:
    """Return the place that a user names: a folder, its URI, or a prefix in an object store.

    Raises:
        MillraceError: it is no place that a checkpoint can have.
    """
    if bucket_and_prefix(text) is not None:
        return ObjectPath.of(text)
    if "://" in text:
        if (found := uri_problem(text)) is not None:
            raise MillraceError(Problem(f"{text}: {found[0]}", found[1]))
        return absolute_path(folder_of(text) or text)
    return absolute_path(text)


def write_durably(place: Place, content: bytes, partial: str = ".new") -> None:
    """Create or replace a file or an object, atomically; it survives a power cut from then on.

    In a folder, a file with the suffix ``partial`` is renamed; processes that write at the same time use different
    suffixes.

    Raises:
        OSError: it cannot be written; the earlier content remains.
    """
    if isinstance(place, ObjectPath):
        place.write_bytes(content)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_suffix(partial)
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(place)
    sync(place.parent)


def folders_in(place: Place) -> list[Place]:
    """Return the folders that are directly in a place, in the order of their names."""
    if isinstance(place, ObjectPath):
        return [*place.folders()]
    return [*sorted(each for each in place.iterdir() if each.is_dir())]


def files_below(place: Place) -> Iterator[tuple[str, int]]:
    """Yield the files below a folder, or the objects below a place: the name from there on, and the size in bytes."""
    if isinstance(place, ObjectPath):
        yield from place.objects()
        return
    for folder, _, names in os.walk(place):
        for name in sorted(names):
            file = Path(folder, name)
            with suppress(FileNotFoundError):  # Spark has just deleted an old version
                yield str(file.relative_to(place)), file.stat().st_size


def within(place: Place, name: str) -> Place:
    """Return a file or an object below a place by its name from there on, with slashes."""
    for part in name.split("/"):
        place = place / part
    return place


def remove_all(place: Place) -> None:
    """Remove a folder with its files, or the objects below a place, as far as that is possible."""
    if isinstance(place, ObjectPath):
        place.remove_all()
    else:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def may_be_away(place: Place) -> Iterator[None]:
    """Raise errors of an object store as transient ones; those of folders, and missing objects, stay as they are."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if not isinstance(place, ObjectPath):
            raise
        hint = "check that the object store answers, and that its login is valid"
        problem = Problem(f"{error.filename or place} cannot be used: {error.strerror}", hint, field="spec.checkpoint")
        transient = TransientError(problem)
        transient.failure = FailureClass.STORE
        raise transient from None
