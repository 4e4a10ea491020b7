"""Memory of a process for a file that it has mapped."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from functools import cache
from pathlib import Path


class MappedFile:
    """A file that this process has mapped into its memory, at places that do not change."""

    def __init__(self, file: Path) -> None:
        self._places: list[tuple[int, int]] = []
        with suppress(OSError), Path("/proc/self/maps").open(encoding="utf-8") as maps:
            for line in maps:
                if line.rstrip("\n").endswith(f" {file.absolute()}"):
                    begin, end = (int(address, 16) for address in line.split(maxsplit=1)[0].split("-"))
                    self._places.append((begin, end - begin))

    def release(self) -> None:
        """Release the memory of this process for pages of the file; they stay in the system's cache.

        A page that was read counts as the process's memory until the system needs it, and 15 beside it do so, too.
        """
        for begin, size in self._places:
            _libc().madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
