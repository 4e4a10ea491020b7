"""Programs that make parts: each has a time limit, and is killed if it prints nothing for too long."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

from ..cache import FailedError, require
from ..processes import end_with_parent

_TICK = 1.0
_KEPT_LINES = 3
_KEPT_CHARACTERS = 200

_running: set[subprocess.Popen[str]] = set()


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    seconds: float = 3600.0,
    silence: float | None = None,
    each_line: Callable[[str], None] = lambda line: None,
) -> str:
    """Run a program and return its standard output.

    Args:
        command: the program and its arguments.
        folder: working directory.
        environment: variables in addition to those of this process.
        seconds: time limit.
        silence: seconds without a line after which it is considered hung, as on a dead connection; None: no limit.
        each_line: called with each line of both outputs as it comes.

    Raises:
        MissingError: the program is not installed.
        FailedError: it fails or does not finish in time; with the end of what it printed.
    """
    require(str(command[0]))
    name = " ".join(map(str, command[:2]))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
        preexec_fn=end_with_parent,
    )
    _running.add(process)
    watch = _Watch(process, seconds, silence)
    try:
        printed, complaints = _read(process, watch, each_line)
        process.wait()
    finally:
        watch.end()
        _running.discard(process)
    last = deque(filter(str.strip, complaints or printed), _KEPT_LINES)
    end = "; ".join(line.strip()[-_KEPT_CHARACTERS:] for line in last)
    if watch.verdict is not None:
        raise FailedError(f"{name} {watch.verdict}: {end}")
    if process.returncode:
        raise FailedError(f"{name} fails with status {process.returncode}: {end}")
    return "".join(printed)


def end_all() -> None:
    """Kill all programs that run, with everything that they have started."""
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        for process in list(_running):
            _signal(process, number)
        deadline = time.monotonic() + patience
        for process in list(_running):
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def _read(
    process: subprocess.Popen[str], watch: _Watch, each_line: Callable[[str], None]
) -> tuple[list[str], list[str]]:
    """Return the lines of standard output and of standard error, after both have ended."""
    printed: list[str] = []
    complaints: list[str] = []
    one_at_a_time = threading.Lock()

    def drain(stream: IO[str], lines: list[str]) -> None:
        for line in stream:
            watch.heard()
            lines.append(line)
            with one_at_a_time:
                each_line(line.rstrip())

    assert process.stdout is not None
    assert process.stderr is not None
    other = threading.Thread(target=drain, args=(process.stderr, complaints), daemon=True)
    other.start()
    drain(process.stdout, printed)
    other.join()
    return printed, complaints


class _Watch:
    """A watchdog that kills a process group that takes too long or prints nothing for too long."""

    def __init__(self, process: subprocess.Popen[str], seconds: float, silence: float | None) -> None:
        self.verdict: str | None = None
        self._process = process
        self._deadline = time.monotonic() + seconds
        self._seconds, self._silence = seconds, silence
        self._heard = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def heard(self) -> None:
        self._heard = time.monotonic()

    def end(self) -> None:
        """Stop watching; a process that still runs is killed."""
        self._ended.set()
        self._thread.join()
        if self._process.poll() is None:
            _signal(self._process, signal.SIGKILL)
            self._process.wait()

    def _watch(self) -> None:
        while not self._ended.wait(_TICK):
            now = time.monotonic()
            if now > self._deadline:
                self.verdict = f"did not finish within {self._seconds:.0f} s"
            elif self._silence is not None and now > self._heard + self._silence:
                self.verdict = f"printed nothing for {self._silence:.0f} s"
            if self.verdict is not None:
                _signal(self._process, signal.SIGKILL)
                return


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
