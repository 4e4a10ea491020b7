"""A part of the lab: made once by ``make lab``, verified, and kept; tests find it or are skipped."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from ..cache import MissingError, cache_folder, locked

T = TypeVar("T")

_MANIFEST = "made-of.json"
_KEPT_SECONDS = 24 * 3600.0
"""How long a part of other sources is kept after its last use."""

_PAUSES = (5.0, 20.0)
"""Seconds before a download is tried again."""


class Report(Protocol):
    """Takes what ``make lab`` tells its user about a part."""

    def say(self, text: str) -> None:
        """Print a line."""

    def progress(self, text: str) -> None:
        """Print a line if the last one of this part is some time ago."""


@dataclass(frozen=True)
class Made:
    """What became of a part."""

    was_there: bool
    bytes: int


class Part(Protocol):
    """Anything that ``make lab`` makes."""

    @property
    def name(self) -> str:
        """As users read it, such as ``Kafka's jars``."""

    def make(self, report: Report) -> Made:
        """Make it where it is not there, or is damaged.

        Raises:
            MissingError: it cannot be had on this machine, or not now; says why.
        """


class FolderPart(ABC):
    """A part that is a folder of the cache, named by what it is made of: other sources, another folder.

    Attributes:
        name: as users read it.
        slug: begins the name of the folder.
    """

    name: str
    slug: str

    @abstractmethod
    def identity(self) -> str:
        """Return a digest of everything that decides what is made."""

    @abstractmethod
    def fill(self, folder: Path, report: Report) -> None:
        """Make it in an empty folder, and check that it works. Raises ``MissingError``."""

    def find(self) -> Path:
        """Return its folder.

        Raises:
            MissingError: it was not made; says why, as far as that is known.
        """
        folder = self.folder()
        if not folder.is_dir():
            reason = self._reason.read_text(encoding="utf-8") if self._reason.exists() else "run `make lab` first"
            raise MissingError(f"{self.name}: {reason}")
        os.utime(folder)
        return folder

    def make(self, report: Report) -> Made:
        """Make it where it is not there, or is damaged. Only one process does at a time."""
        with locked(self.slug, lambda: report.say("another run makes it: waiting for that one")):
            folder = self.folder()
            if folder.is_dir():
                damage = _damage(folder)
                if damage is None:
                    return Made(True, _bytes(folder))
                report.say(f"{damage}: making it again")
                shutil.rmtree(folder)
            try:
                self._make(folder, report)
            except MissingError as error:
                self._reason.write_text(str(error), encoding="utf-8")
                raise
            self._reason.unlink(missing_ok=True)
            self._remove_unused(folder)
            return Made(False, _bytes(folder))

    def _make(self, folder: Path, report: Report) -> None:
        """In a folder beside it, which is renamed when it is whole; what a killed run left is removed."""
        for left in folder.parent.glob(f"{self.slug}.part-*"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{self.slug}.part-") as partial:
            made = Path(partial, "made")
            made.mkdir()
            self.fill(made, report)
            (made / _MANIFEST).write_text(json.dumps(_digests(made)), encoding="utf-8")
            made.rename(folder)

    def folder(self) -> Path:
        """Return where it is when it is made."""
        return cache_folder() / f"{self.slug}-{self.identity()}"

    def _remove_unused(self, made: Path) -> None:
        """Remove what was made of other sources, but for what another checkout has just used."""
        for folder in made.parent.glob(f"{self.slug}-*"):
            if folder != made and folder.is_dir() and time.time() - folder.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(folder)

    @property
    def _reason(self) -> Path:
        """Why it could not be made when that was last tried."""
        return cache_folder() / f"{self.slug}.missing"


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
        except MissingError as error:
            report.say(f"{error}: trying again in {pause:.0f} s")
            time.sleep(pause)
    return download()


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file, by its path; what two names link to is read once."""
    by_inode: dict[int, str] = {}
    found: dict[str, str] = {}
    for path in _files(folder):
        inode = path.stat().st_ino
        if inode not in by_inode:
            with path.open("rb") as file:
                by_inode[inode] = hashlib.file_digest(file, "sha256").hexdigest()
        found[str(path.relative_to(folder))] = by_inode[inode]
    return found


def _damage(folder: Path) -> str | None:
    """What is wrong with a folder that was made; None: nothing."""
    try:
        recorded = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"{folder.name} has no list of its files"
    found = _digests(folder)
    changed = sorted(name for name in recorded.keys() | found.keys() if recorded.get(name) != found.get(name))
    return f"{folder.name}/{changed[0]} is not as it was made" if changed else None


def _bytes(folder: Path) -> int:
    sizes = {path.stat().st_ino: path.stat().st_size for path in _files(folder)}
    return sum(sizes.values())


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / _MANIFEST)
