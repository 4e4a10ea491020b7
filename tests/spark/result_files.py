"""Files of results."""

from __future__ import annotations

from pathlib import Path


def files_of(folder: Path) -> dict[str, bytes]:
    """Everything in a folder but who drives the query."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != "lock"
    }
