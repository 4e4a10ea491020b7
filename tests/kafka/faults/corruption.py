"""Damage to the newest files of a checkpoint, as a disk or a machine that dies leaves it behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Kind(NamedTuple):
    """Which file is damaged, and in which way."""

    file: str
    way: str

    def __str__(self) -> str:
        return f"{self.file} {self.way}"


class Damage(NamedTuple):
    """A file with what was in it, and what is in it now."""

    file: Path
    before: bytes
    after: bytes

    def repair(self) -> None:
        """Put back what was there, unless somebody has written the file anew meanwhile."""
        if self.file.exists() and self.file.read_bytes() == self.after:
            self.file.write_bytes(self.before)


def _newest_of_log(log: Path) -> Path:
    return max((entry for entry in log.iterdir() if entry.name.isdigit()), key=lambda entry: int(entry.name))


def _newest_of_state(state: Path) -> Path:
    """Of all versions of all state stores; files that begin with a dot are checksums and unfinished."""
    files = [file for file in state.rglob("*") if file.is_file() and file.name[0] not in "._"]
    return max(files, key=lambda file: (file.stat().st_mtime_ns, file.name))


_FILES: dict[str, Callable[[Path], Path]] = {
    "offsets": lambda checkpoint: _newest_of_log(checkpoint / "spark" / "offsets"),
    "commits": lambda checkpoint: _newest_of_log(checkpoint / "spark" / "commits"),
    "state": lambda checkpoint: _newest_of_state(checkpoint / "spark" / "state"),
    "marker": lambda checkpoint: checkpoint / "millrace.json",
    "lease": lambda checkpoint: checkpoint / "lease.json",
}

_WAYS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "truncated": lambda content, chance: content[: chance.randrange(1, max(2, len(content)))],
    "emptied": lambda content, chance: b"",
    "garbled": lambda content, chance: _garbled(content, chance),
}

KINDS = [Kind(file, way) for file in _FILES for way in _WAYS]
"""Everything that can happen."""


def corrupt(checkpoint: Path, kind: Kind, chance: random.Random) -> Damage:
    """Damage one file; nobody may be using the checkpoint."""
    file = _FILES[kind.file](checkpoint)
    before = file.read_bytes()
    after = _WAYS[kind.way](before, chance)
    file.write_bytes(after)
    return Damage(file, before, after)


def _garbled(content: bytes, chance: random.Random) -> bytes:
    """Eight bytes of it are others, wherever they are."""
    at = chance.randrange(max(1, len(content) - 8))
    length = min(8, len(content) - at)
    others = bytes(byte ^ chance.randrange(1, 256) for byte in content[at : at + length])
    return content[:at] + others + content[at + length :]
