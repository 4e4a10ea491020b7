"""A clock that a test puts forward and back, for the programs that shall see it; the machine's own is not touched."""

from __future__ import annotations

import hashlib
import struct
import subprocess
from pathlib import Path

from .cache import MissingError, cached, require

_SOURCE = Path(__file__).with_suffix(".c")
_PATIENCE = 120.0


class Clock:
    """What time of day it is for a program with ``environment``, and for all that it starts.

    A library of the lab's own (``clock.c`` says how) takes the place of libfaketime, under which the JVM's threads
    never wait.

    Raises:
        MissingError: there is no C compiler.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(_library()), "LAB_CLOCK": str(file)}

    def step(self, seconds: int) -> None:
        """From now on be so many seconds ahead of the machine's clock, or behind it where negative."""
        with self._file.open("r+b", buffering=0) as file:
            file.write(struct.pack("=q", seconds))


def _library() -> Path:
    content = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    return cached(f"clock-{content}", _compile) / "clock.so"


def _compile(folder: Path) -> None:
    require("cc")
    done = subprocess.run(
        ["cc", "-Wall", "-O2", "-shared", "-fPIC", "-o", folder / "clock.so", _SOURCE],
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    if done.returncode:
        raise MissingError(f"the C compiler cannot make the lab's clock: {done.stderr.strip()}")
