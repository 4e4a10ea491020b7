"""Packages of Python, unpacked into one folder: within bounds, and without a module that is installed already."""

from __future__ import annotations

import errno
import shutil
import stat
import struct
import sys
import sysconfig
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import PathFinder
from lzma import LZMAError
from pathlib import Path, PurePosixPath

from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.code import CodeFile
from millrace_api.model.status import FailureClass
from millrace_jobs.own_code.download import disk_error

MOST_BYTES = 1 << 30
"""Most bytes of all unpacked packages of a query together."""

MOST_FILES = 20_000
"""Most files in all packages of a query together."""

_RESERVED = {
    "millrace",
    "millrace_api",
    "millrace_research",
    "millrace_jobs",
    "millrace_operator",
    "millrace_support",
} | {
    "sitecustomize",
    "usercustomize",
}
"""Modules that no package may bring: ours, and those that Python loads by itself."""

_SCHEMES = ("purelib", "platlib")
"""Folders of a wheel's data that are installed beside its modules; the others are programs and documents."""

_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, LZMAError, struct.error),
    *(EOFError, LookupError, OSError, RuntimeError, ValueError),
)
"""What Python raises for archives that are damaged, encrypted or of another kind, and for files that exclude others."""

_OF_DISK = {errno.EACCES, errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EROFS}

_INSTALLED = list(dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", *_SCHEMES)))


@dataclass
class Packages:
    """A folder of unpacked packages.

    Attributes:
        folder: the folder, which exists and is empty at first.
        most_bytes, most_files: what all packages may have together.
    """

    folder: Path
    most_bytes: int = MOST_BYTES
    most_files: int = MOST_FILES
    _owners: dict[PurePosixPath, str] = field(default_factory=dict)

    def add(self, file: CodeFile, archive: Path, where: str) -> None:
        """Unpack a package beside the others.

        Raises:
            MillraceError: it is not a package for this Python, is too large, or has what it may not have. ``where`` is
                the field of the spec.
        """
        at = f"{where}.{file.place_field}"
        try:
            if file.name.endswith(".py"):
                self._add_module(file, archive)
                return
            if file.name.endswith(".whl"):
                _require_fit(file.name)
            with zipfile.ZipFile(archive) as opened:
                members = list(self._members(file, opened))
                if file.name.endswith(".whl") and not any(path.parts[-1:] == ("WHEEL",) for _, path in members):
                    raise _UnusableError("is not a wheel: it has no file WHEEL", "build it with pip wheel")
                _require_new(path for _, path in members)
                for member, path in members:
                    self._unpack(opened, member, path)
        except _UnusableError as error:
            found = MillraceError(Problem(f"{file.place} {error.message}", error.hint, field=at))
        except _BROKEN as error:
            if isinstance(error, OSError) and error.errno in _OF_DISK:
                raise disk_error(error, self.folder) from None
            message = f"{file.place} cannot be unpacked: {getattr(error, 'strerror', None) or error}"
            found = MillraceError(Problem(message, "build it again, as a zip file", field=at))
        else:
            return
        found.failure = FailureClass.CONFIG
        raise found from None

    def _add_module(self, file: CodeFile, source: Path) -> None:
        place = PurePosixPath(file.name)
        self._count(source.stat().st_size)
        self._own(place, file)
        _require_new(iter([place]))
        shutil.copyfile(source, self.folder / place)

    def _members(self, file: CodeFile, opened: zipfile.ZipFile) -> Iterator[tuple[zipfile.ZipInfo, PurePosixPath]]:
        """Yield the files of a package with their places in the folder, as far as they belong there."""
        for member in opened.infolist():
            if member.is_dir():
                continue
            self._count(member.file_size)
            place = _place(member, is_wheel=file.name.endswith(".whl"))
            if place is None:
                continue
            self._own(place, file)
            yield member, place

    def _count(self, size: int) -> None:
        """Count a file of this many bytes; raise _UnusableError if all packages together are too large with it."""
        self.most_files -= 1
        self.most_bytes -= size
        if self.most_files < 0 or self.most_bytes < 0:
            what = f"{MOST_FILES:,} files" if self.most_files < 0 else f"{MOST_BYTES >> 20:,} MiB"
            raise _UnusableError(f"is too large: all packages unpacked have more than {what}", "put it into an image")

    def _own(self, place: PurePosixPath, file: CodeFile) -> None:
        """Note whose a place in the folder is; raise _UnusableError if it is another package's."""
        if place in self._owners:
            message = f"has the file {place}, which {self._owners[place]} has, too"
            raise _UnusableError(message, "leave one of them out")
        self._owners[place] = file.place

    def _unpack(self, opened: zipfile.ZipFile, member: zipfile.ZipInfo, place: PurePosixPath) -> None:
        target = self.folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        with opened.open(member) as source, target.open("xb") as written:
            shutil.copyfileobj(source, written)  # ends at the size that the archive declares


class _UnusableError(Exception):
    """What is wrong with a package, after its name, and what to do instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@cache
def _fitting() -> tuple[Tag, ...]:
    """Return the tags of wheels for this Python and this machine, the best first."""
    return tuple(sys_tags())


def _require_fit(name: str) -> None:
    """Raise _UnusableError unless a wheel of this name is for this Python and this machine."""
    try:
        *_, tags = parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise _UnusableError(f"has no name of a wheel: {error}", "keep the name that it was built with") from None
    if tags.isdisjoint(_fitting()):
        shown, own = ", ".join(sorted(map(str, tags))), _fitting()[0]
        raise _UnusableError(f"is for {shown}, and this is {own}", "build it for this Python and system")


def _place(member: zipfile.ZipInfo, *, is_wheel: bool) -> PurePosixPath | None:
    """Return where a file of a package goes, None for what no module needs; raise _UnusableError for one outside."""
    name = member.filename
    kind = member.external_attr >> 16
    if kind and stat.S_IFMT(kind) not in (0, stat.S_IFREG):
        raise _UnusableError(f"has {name!r}, which is a link or a device", "build it of plain files")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise _UnusableError(f"has {name!r}, which leads out of its folder", "build it again")
    first, *others = path.parts
    if is_wheel and first.endswith(".data"):
        return PurePosixPath(*others[1:]) if len(others) > 1 and others[0] in _SCHEMES else None
    return path


def _require_new(paths: Iterator[PurePosixPath]) -> None:
    """Raise _UnusableError if a package has a module that Python or the image brings already.

    A folder without ``__init__.py`` may be shared, as those of namespace packages are.
    """
    tops: dict[str, bool] = {}
    for path in paths:
        top = path.parts[0]
        if top.endswith((".dist-info", ".libs")) or (
            len(path.parts) == 1 and path.suffix not in (".py", ".so", ".pyc")
        ):
            continue
        name = top.partition(".")[0]
        tops[name] = tops.get(name, False) or len(path.parts) == 1 or path.parts[1:] == ("__init__.py",)
    for name, is_module in tops.items():
        reserved = name in _RESERVED or name in sys.stdlib_module_names
        found = None if reserved else PathFinder.find_spec(name, _INSTALLED)
        if reserved or (found is not None and (is_module or found.origin is not None)):
            hint = "leave it out of the package, or rename it"
            raise _UnusableError(f"has the module {name}, which is installed already", hint)
