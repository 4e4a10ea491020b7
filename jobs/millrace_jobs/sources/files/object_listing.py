"""The listing of the objects that a path such as ``s3a://bucket/folder/*.json`` names, as if keys were paths."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from millrace_jobs.sources.files.file_listing import fits, is_visible, is_wildcard
from millrace_jobs.sources.seen_file import SeenFile
from millrace_jobs.stores.objects import ObjectFile, ObjectPath


class ObjectListing:
    """The objects that a path names: one, those in a folder, or those that match a glob pattern.

    Names that begin with ``.`` or ``_`` are ignored, and so are objects without content: consoles and Hadoop make such
    objects for folders. A listing is one request for each thousand objects of a folder;
    ``**`` lists all that is below its folder.

    Raises OSError if the store does not answer, or refuses.
    """

    def __init__(self, path: str) -> None:
        named = ObjectPath.of_file(path.rstrip("/"))
        parts = named.key.split("/")
        first = next((number for number, part in enumerate(parts) if is_wildcard(part)), len(parts))
        self.pattern = tuple(parts[first:])
        self.root = ObjectPath(named.scheme, named.bucket, "/".join(parts[:first]))

    def __str__(self) -> str:
        return "/".join((str(self.root).rstrip("/"), *self.pattern))

    @cached_property
    def _one(self) -> SeenFile | None:
        """The object that the path is the key of, if there is one when it is first looked for."""
        try:
            return None if self.pattern or not self.root.key else self._seen(self.root.look())
        except FileNotFoundError:
            return None

    @property
    def is_folder(self) -> bool:
        """Whether the path is taken for a folder, into which objects may still come."""
        return not self.pattern and self._one is None

    def files(self) -> Iterator[SeenFile]:
        """Yield every object that matches."""
        if self._one is not None:
            try:
                yield self._seen(self.root.look())
            except FileNotFoundError:
                return
        else:
            found = _matching(self.root, self.pattern or ("*",))
            yield from (self._seen(each) for each in found if each.size)

    def entries(self) -> Iterator[tuple[str, SeenFile]]:
        """Yield every object that matches, with its URI."""
        for found in self.files():
            yield found.path, found

    def entries_after(self, path: str) -> Iterator[tuple[str, SeenFile]]:
        """Yield the objects that match and whose URIs come after this one, in their order, with their URIs."""
        if self._one is not None:
            yield from (each for each in self.entries() if each[0] > path)
            return
        last = ObjectPath.of_file(path).key if path else ""
        for found in self.root.objects_after(last):
            seen = self._seen(found)
            if found.size and self.would_show(seen.path):
                yield seen.path, seen

    def has_files(self) -> bool:
        """Return whether any object matches."""
        return any(self.files())

    def covers(self, path: str) -> bool:
        """Return whether an object that a listing once showed can be one of this path."""
        root = str(self.root).rstrip("/")
        return path == root or path.startswith(f"{root}/")

    def would_show(self, file: Path | str) -> bool:
        """Return whether an object that appears at this URI would be listed; a file is no object."""
        if not isinstance(file, str) or not self.covers(file):
            return False
        parts = tuple(file[len(str(self.root).rstrip("/")) + 1 :].split("/"))
        return all(map(is_visible, parts)) and fits(parts, self.pattern or ("*",))

    def described(self) -> str:
        """Describe what the path leads to in place of matching objects."""
        return f"{self.root} has no such object"

    def _seen(self, found: ObjectFile) -> SeenFile:
        return SeenFile(f"{self.root.scheme}://{self.root.bucket}/{found.key}", found.size, found.mtime_ns)


def _matching(folder: ObjectPath, pattern: Sequence[str]) -> Iterator[ObjectFile]:
    if pattern[0] == "**":
        begin = len(folder.key) + 1 if folder.key else 0
        for found in folder.listed(below=True)[0]:
            parts = found.key[begin:].split("/")
            if all(map(is_visible, parts)) and fits(tuple(parts), tuple(pattern)):
                yield found
        return
    objects, folders = folder.listed()
    if len(pattern) == 1:
        names = ((each, each.key.rpartition("/")[2]) for each in objects)
        yield from (each for each, name in names if is_visible(name) and fnmatch.fnmatchcase(name, pattern[0]))
        return
    for name in folders:
        if is_visible(name) and fnmatch.fnmatchcase(name, pattern[0]):
            yield from _matching(
                ObjectPath(folder.scheme, folder.bucket, f"{folder.key}/{name}".lstrip("/")), pattern[1:]
            )
