"""A part of the lab for tests, and a report that keeps its messages."""

from __future__ import annotations

from pathlib import Path

from lab.cache import FailedError, MissingError
from lab.parts.part import FolderPart, Report, digest_of


class Said:
    """A report that keeps its messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, text: str) -> None:
        self.lines.append(text)


class Toy(FolderPart):
    """A part of two files, made from a source. Each attempt to make it adds a line to ``log``."""

    name = "the toy"
    slug = "toy"

    def __init__(self, log: Path, source: str = "one") -> None:
        self._log, self.source = log, source
        self.fails: str | None = None
        self.error: type[MissingError] = FailedError

    def identity(self) -> str:
        return digest_of(self.source.encode())

    def fill(self, folder: Path, report: Report) -> None:
        with self._log.open("a") as log:
            log.write("made\n")
        (folder / "inner").mkdir()
        (folder / "inner/first").write_text(self.source)
        if self.fails is not None:
            raise self.error(self.fails)
        (folder / "second").write_text(self.source * 2)

    @property
    def times_made(self) -> int:
        return len(self._log.read_text().splitlines()) if self._log.exists() else 0
