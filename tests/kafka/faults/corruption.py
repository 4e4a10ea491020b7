"""Damage to the newest files of a checkpoint, as left by a failing disk or machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Kind(NamedTuple):
    """The kind of file to damage, and how."""

    file: str
    way: str

    def __str__(self) -> str:
        return f"{self.file} {self.way}"


class Damage(NamedTuple):
    """A damaged file, with its content before and after."""

    file: Path
    before: bytes
    after: bytes

    def repair(self) -> None:
        """Restore the content, unless the file was rewritten in the meantime."""
        if self.file.exists() and self.file.read_bytes() == self.after:
            self.file.write_bytes(self.before)


def _newest_of_log(log: Path) -> Path:
    return max((entry for entry in log.iterdir() if entry.name.isdigit()), key=lambda entry: int(entry.name))


def _newest_of_state(state: Path) -> Path:
    """Return the newest file of all state stores. Files that begin with a dot are checksums or unfinished."""
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
"""All kinds of damage."""


def corrupt(checkpoint: Path, kind: Kind, chance: random.Random) -> Damage:
    """Damage one file of a checkpoint that is not in use."""
    file = _FILES[kind.file](checkpoint)
    before = file.read_bytes()
    after = _WAYS[kind.way](before, chance)
    file.write_bytes(after)
    return Damage(file, before, after)


def _garbled(content: bytes, chance: random.Random) -> bytes:
    """Return the content with eight bytes changed at a random position."""
    at = chance.randrange(max(1, len(content) - 8))
    length = min(8, len(content) - at)
    others = bytes(byte ^ chance.randrange(1, 256) for byte in content[at : at + length])
    return content[:at] + others + content[at + length :]
