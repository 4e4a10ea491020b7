"""A clock that a test steps forward and back for chosen programs. The machine's clock is unchanged."""

from __future__ import annotations

import struct
from pathlib import Path

from .parts.clock_library import CLOCK_LIBRARY


class Clock:
    """The time of day for programs with ``environment``, and for all processes that they start.

    The lab has its own library (``parts/clock.c`` explains how it works), since under libfaketime the JVM's threads never
    wait.

    Raises:
        MissingError: the library was not made.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(CLOCK_LIBRARY.find() / "clock.so"), "LAB_CLOCK": str(file)}

    def step(self, seconds: int) -> None:
        """Set the offset from the machine's clock. A negative offset is in the past."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(struct.pack("=q", seconds))
