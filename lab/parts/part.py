"""A part of the lab: made once by ``make lab``, verified, and kept; tests find it or are skipped."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from ..cache import FailedError, MissingError, cache_folder, locked

T = TypeVar("T")

_MANIFEST = "made-of.json"
_KEPT_SECONDS = 24 * 3600.0
"""Seconds for which a part made from other sources is kept after its last use."""

_PAUSES = (5.0, 20.0)
"""Seconds before a failed download is retried."""


class Report(Protocol):
    """Receives progress messages about one part."""

    def say(self, text: str) -> None:
        """Print a line."""

    def progress(self, text: str) -> None:
        """Print a line if the last one about this part is some time ago."""


@dataclass(frozen=True)
class Made:
    """The result of making a part: whether it was there already, and its size."""

    was_there: bool
    bytes: int


class Part(Protocol):
    """Anything that ``make lab`` makes."""

    @property
    def name(self) -> str:
        """Display name, such as ``Kafka's jars``."""

    def make(self, report: Report) -> Made:
        """Make the part if it is absent or damaged.

        Raises:
            MissingError: if this machine lacks something that is needed.
            FailedError: if a download or a build fails.
        """


class FolderPart(ABC):
    """A part that is a folder of the cache, named after a digest of everything that it is made of.

    Attributes:
        name: display name.
        slug: beginning of the folder's name.
    """

    name: str
    slug: str

    @abstractmethod
    def identity(self) -> str:
        """Return a digest of the sources that the part is made of; code of the part itself is added to it."""

    @abstractmethod
    def fill(self, folder: Path, report: Report) -> None:
        """Make the part in an empty folder, and check that it works; raise as ``make`` does."""

    def problem(self, folder: Path) -> str | None:
        """Return why a folder whose files are intact is of no use, or None."""
        return None

    def find(self) -> Path:
        """Return the folder of the part.

        Raises:
            MissingError: if it was not made, with the reason if that is known.
        """
        folder = self.folder()
        if not folder.is_dir():
            note = _note(folder)
            reason = note.read_text(encoding="utf-8") if note.exists() else "run `make lab` first"
            raise MissingError(f"{self.name}: {reason}")
        _touch(folder)
        return folder

    def make(self, report: Report) -> Made:
        """Make the part if it is absent or damaged; only one process does at a time."""
        with locked(self.slug, lambda: report.say("another run makes it: waiting for that one")):
            folder = self.folder()
            if folder.is_dir():
                problem = _damage(folder) or self.problem(folder)
                if problem is None:
                    _touch(folder)
                    return Made(True, _bytes(folder))
                report.say(f"{problem}: making it again")
                shutil.rmtree(folder)
            try:
                self._make(folder, report)
            except (MissingError, OSError) as error:
                _note(folder).write_text(str(error), encoding="utf-8")
                raise
            _note(folder).unlink(missing_ok=True)
            self._remove_unused(folder)
            return Made(False, _bytes(folder))

    def folder(self) -> Path:
        """Return where the part is when it is made."""
        code = code_of(Path(inspect.getfile(type(self))).read_text(encoding="utf-8"))
        return cache_folder() / f"{self.slug}-{digest_of(self.identity().encode(), code.encode())}"

    def _make(self, folder: Path, report: Report) -> None:
        """Fill a temporary folder and rename it, so that a part is whole or absent; remove what killed runs left."""
        for left in folder.parent.glob(f"{self.slug}.part-*"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{self.slug}.part-") as partial:
            made = Path(partial, "made")
            made.mkdir()
            self.fill(made, report)
            (made / _MANIFEST).write_text(json.dumps(_contents(made)), encoding="utf-8")
            made.rename(folder)

    def _remove_unused(self, made: Path) -> None:
        """Remove what was made of other sources and was not used for a day."""
        for folder in made.parent.glob(f"{self.slug}-*"):
            if folder != made and folder.is_dir() and time.time() - folder.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(folder)


def code_of(source: str) -> str:
    """Return Python code without docstrings, comments and layout, so that another wording makes no part again."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def digest_of(*contents: bytes) -> str:
    """Return a short digest of contents, in their order."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:12]


def retried(download: Callable[[], T], report: Report) -> T:
    """Try a download three times, since networks fail now and then; what had arrived is not fetched again."""
    for pause in _PAUSES:
        try:
            return download()
        except FailedError as error:
            report.say(f"{error}: trying again in {pause:.0f} s")
            time.sleep(pause)
    return download()


def _note(folder: Path) -> Path:
    """Return the file that says why the last attempt to make a part failed."""
    return folder.with_name(f"{folder.name}.missing")


def _touch(folder: Path) -> None:
    """Mark the folder as used now, if this user may."""
    with suppress(PermissionError):
        os.utime(folder)


def _contents(folder: Path) -> dict[str, str]:
    """Return the SHA-256 and mode of each file by path. A file with two names is read once."""
    by_inode: dict[int, str] = {}
    found: dict[str, str] = {}
    for path in _files(folder):
        state = path.stat()
        if state.st_ino not in by_inode:
            with path.open("rb") as file:
                by_inode[state.st_ino] = hashlib.file_digest(file, "sha256").hexdigest()
        found[str(path.relative_to(folder))] = f"{by_inode[state.st_ino]} {state.st_mode & 0o777:o}"
    return found


def _damage(folder: Path) -> str | None:
    """Return what is wrong with the files of a folder, or None."""
    try:
        recorded = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"{folder.name} has no list of its files"
    found = _contents(folder)
    changed = sorted(name for name in recorded.keys() | found.keys() if recorded.get(name) != found.get(name))
    return f"{folder.name}/{changed[0]} is not as it was made" if changed else None


def _bytes(folder: Path) -> int:
    sizes = {path.stat().st_ino: path.stat().st_size for path in _files(folder)}
    return sum(sizes.values())


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / _MANIFEST)
