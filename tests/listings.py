"""A record of the folders that code lists, whichever library lists them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_listed: list[list[str]] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("os.scandir", "os.listdir"):
        for folders in _listed:
            folders.append(str(arguments[0]))


sys.addaudithook(_note)  # for good: Python has no way to remove it


@contextmanager
def listings() -> Iterator[list[str]]:
    """Yield a list that collects the folders listed during the ``with`` block."""
    folders: list[str] = []
    _listed.append(folders)
    try:
        yield folders
    finally:
        _listed.remove(folders)
