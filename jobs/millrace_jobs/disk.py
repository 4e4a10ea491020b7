"""What has to outlast a power cut, and folders that are made and removed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def sync(path: Path) -> None:
    """Bring a file to the disk; of a folder, which files are in it, under which names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> list[Path]:
    """Make a folder and those above it where they do not exist; return those that were made, the innermost first."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return made


def remove_folders(made: Sequence[Path]) -> None:
    """Remove what ``make_folder`` made, as far as it is empty."""
    for folder in made:
        try:
            folder.rmdir()
        except OSError:
            return
