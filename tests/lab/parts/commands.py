"""Programs that make parts: each within a time limit, and ended when it says nothing for too long."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ..cache import MissingError, require
from ..processes import end_with_parent

_TICK = 1.0
_KEPT_LINES = 3
_KEPT_CHARACTERS = 200


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    seconds: float = 3600.0,
    silence: float | None = None,
    each_line: Callable[[str], None] = lambda line: None,
) -> str:
    """Run a program and return what it prints, errors among it.

    Args:
        command: the program and its arguments.
        folder: that it runs in.
        environment: variables beside those of this process.
        seconds: that it may take.
        silence: seconds without a line after which it is taken to hang, as on a dead connection; None: no limit.
        each_line: called with each line as it comes.

    Raises:
        MissingError: it fails, or takes too long; with the end of what it printed.
    """
    require(str(command[0]))
    name = " ".join(map(str, command[:2]))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
        preexec_fn=end_with_parent,
    )
    watch = _Watch(process, seconds, silence)
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            watch.heard()
            lines.append(line)
            each_line(line.rstrip())
        process.wait()
    finally:
        watch.end()
    end = "; ".join(line.strip()[-_KEPT_CHARACTERS:] for line in deque(lines, _KEPT_LINES))
    if watch.verdict is not None:
        raise MissingError(f"{name} {watch.verdict}: {end}")
    if process.returncode:
        raise MissingError(f"{name} fails with status {process.returncode}: {end}")
    return "".join(lines)


class _Watch:
    """Kills a process group that takes too long or says nothing for too long."""

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
            self._kill()
            self._process.wait()

    def _watch(self) -> None:
        while not self._ended.wait(_TICK):
            now = time.monotonic()
            if now > self._deadline:
                self.verdict = f"does not end within {self._seconds:.0f} s"
            elif self._silence is not None and now > self._heard + self._silence:
                self.verdict = f"says nothing for {self._silence:.0f} s"
            if self.verdict is not None:
                self._kill()
                return

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
