"""A clock that a test puts forward and back, for chosen programs; the machine's own is not touched."""

from __future__ import annotations

import struct
from pathlib import Path

from .parts.clock_library import CLOCK_LIBRARY


class Clock:
    """What time of day it is for a program with ``environment``, and for all that it starts.

    A library of the lab's own (``parts/clock.c`` says how) takes the place of libfaketime, under which the JVM's threads
    never wait.

    Raises:
        MissingError: the library was not made.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(CLOCK_LIBRARY.find() / "clock.so"), "LAB_CLOCK": str(file)}

    def step(self, seconds: int) -> None:
        """From now on be so many seconds ahead of the machine's clock, or behind it where negative."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(struct.pack("=q", seconds))
