"""The memory of a run's processes, sampled while it runs."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from lab.processes import Process, command_of

_EVERY_SECONDS = 0.5


class MemoryOf(threading.Thread):
    """A context manager that samples the resident memory of a process's JVM and of its Python processes, in MiB."""

    def __init__(self, process: Process) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, float]] = []
        """Memory of the JVM and of all Python processes, one sample every half second."""
        self._process = process
        self._over = threading.Event()

    def __enter__(self) -> MemoryOf:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(_EVERY_SECONDS):
            jvm = python = 0.0
            for member in self._process.members():
                if "java" in command_of(member).partition(" ")[0]:
                    jvm += _resident(member)
                else:
                    python += _resident(member)
            self.samples.append((jvm, python))


def _resident(process: int) -> float:
    """Return the resident memory of a process in MiB, with shared pages divided among the processes that share them."""
    with suppress(FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0
