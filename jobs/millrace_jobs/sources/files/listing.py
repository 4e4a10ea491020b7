"""The listing of what a path names: one file, the files in a folder, or those that match a glob pattern.

Objects are listed as if keys were paths, such as ``s3a://bucket/folder/*.json``.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from operator import itemgetter
from pathlib import Path

from millrace_jobs.disk import absolute_path
from millrace_jobs.sources.stored_files import SeenFile
from millrace_jobs.stores.objects import ObjectFile, ObjectPath

_WILDCARD = re.compile(r"[*?]|\[.+\]")


class FileListing:
    """The entries that a path names, seen or new, files or folders.

    Names that begin with ``.`` or ``_`` are ignored in folders. The folder from which a relative path leads is not
    part of a pattern, whatever its name. Neither is a part such as ``[1]`` if a file or folder has exactly this name.

    Raises OSError if a folder cannot be looked at.
    """

    def __init__(self, path: str) -> None:
        self.root = absolute_path("")
        self.pattern: tuple[str, ...] = ()
        """The parts of the path from the first one with a wildcard on."""
        parts = Path(path).parts
        for index, part in enumerate(parts):
            # an existing name may have brackets that, as a pattern, do not match it
            if is_wildcard(part) and (fnmatch.fnmatchcase(part, part) or not (self.root / part).exists()):
                self.pattern = parts[index:]
                break
            self.root = absolute_path(self.root / part)

    def __str__(self) -> str:
        """The absolute path."""
        return str(self.root.joinpath(*self.pattern))

    @property
    def is_folder(self) -> bool:
        """Whether the path is a folder, into which files may still come."""
        return not self.pattern and self.root.is_dir()

    def __iter__(self) -> Iterator[os.DirEntry[str] | Path]:
        """Yield every entry that matches."""
        if self.root.is_dir():
            yield from _below(str(self.root), self.pattern or ["*"])
        elif not self.pattern and self.root.is_file():
            yield self.root

    def entries(self) -> Iterator[tuple[str, os.DirEntry[str] | Path]]:
        """Yield every entry that matches, with its path."""
        for entry in self:
            yield os.fspath(entry), entry

    def entries_after(self, path: str) -> Iterator[tuple[str, os.DirEntry[str] | Path]]:
        """Yield the entries that match and whose paths come after this one, in their order, with their paths."""
        yield from sorted((each for each in self.entries() if each[0] > path), key=itemgetter(0))

    def has_files(self) -> bool:
        """Return whether any entry is a file."""
        return any(is_file(entry) for entry in self)

    def described(self) -> str:
        """Describe what the path leads to in place of matching files."""
        if self.root.is_dir():
            return f"{self.root} has no such file"
        return f"{self.root} is neither a file nor a folder" if self.root.exists() else f"there is no {self.root}"

    def would_show(self, file: Path | str) -> bool:
        """Return whether a file that appears at an absolute path would be listed; links are followed."""
        if isinstance(file, str):
            return False  # an object is no file
        root, folder = self.root.resolve(), file.parent.resolve()
        if not folder.is_relative_to(root):
            return False
        parts = (*folder.relative_to(root).parts, file.name)
        return all(map(is_visible, parts)) and fits(parts, self.pattern or ("*",))

    def covers(self, path: str) -> bool:
        """Return whether a file that a listing once showed can be one of this path."""
        return Path(path).is_relative_to(self.root)


def is_wildcard(part: str) -> bool:
    """Return whether a part of a path is a pattern."""
    return _WILDCARD.search(part) is not None


def is_visible(name: str) -> bool:
    """Return whether a name is not ignored in folders."""
    return not name.startswith((".", "_"))


def fits(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether the parts of a path match those of a pattern."""
    if not pattern or not parts:
        return not pattern and not parts
    if pattern[0] == "**":
        return fits(parts, pattern[1:]) or fits(parts[1:], pattern)
    return bool(_matcher([pattern[0]])(parts[0])) and fits(parts[1:], pattern[1:])


def seen(entry: os.DirEntry[str] | Path) -> SeenFile | None:
    """Return an entry as it is now; None if it is no file. Raises FileNotFoundError if it is gone by now."""
    if not is_file(entry):
        return None
    status = entry.stat()
    return SeenFile(os.fspath(entry), status.st_size, status.st_mtime_ns)


def is_file(entry: os.DirEntry[str] | Path) -> bool:
    """Return whether an entry is a file, or a symbolic link to one."""
    return _is(entry.is_file)


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
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = entry.name
                    if not is_visible(name):
                        continue
                    if here(name):
                        yield entry
                    deep = [each for each in deeper if each[0](name)]
                    below = {rest for _, rest, links in deep if _is(entry.is_dir, follow_symlinks=links)}
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
    return re.compile("|".join(map(fnmatch.translate, names)) or "(?!)").match


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

    def entries(self) -> Iterator[tuple[str, SeenFile]]:
        """Yield every object that matches, with its URI."""
        if self._one is None:
            found = (self._seen(each) for each in _matching(self.root, self.pattern or ("*",)) if each.size)
            yield from ((each.path, each) for each in found)
            return
        with suppress(FileNotFoundError):
            now = self._seen(self.root.look())
            yield now.path, now

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
        return any(self.entries())

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
