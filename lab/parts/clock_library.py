"""The library that gives programs another time of day: see ``lab.clock``."""

from __future__ import annotations

from pathlib import Path

from ..cache import require
from .commands import run
from .part import FolderPart, Report, digest_of

_SOURCE = Path(__file__).with_name("clock.c")


class ClockLibrary(FolderPart):
    """A folder with ``clock.so``."""

    name = "test clock"
    slug = "clock"

    def identity(self) -> str:
        return digest_of(_SOURCE.read_bytes())

    def fill(self, folder: Path, report: Report) -> None:
        require("cc")
        run(["cc", "-Wall", "-O2", "-shared", "-fPIC", "-o", folder / "clock.so", _SOURCE], seconds=120)


CLOCK_LIBRARY = ClockLibrary()
