"""The zygote of this process, from which Spark's Python processes are forked (see ``zygote_server``)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from millrace_jobs.disk import process_folder
from millrace_jobs.process.signals import start_child
from millrace_jobs.process.zygote_client import ADDRESS, GROUPING

_SETTINGS = {
    "OMP_NUM_THREADS": "1",  # a process with threads must not fork; Spark sets this for tasks as well
    "PYTHONUNBUFFERED": "1",
}
_END_SECONDS = 30.0


class Zygote:
    """A zygote, which ``start`` starts; it ends when this process ends, and removes its folder.

    Its address is known from the beginning: who connects before ``start`` waits for it. Outside Linux, or if its socket
    cannot be bound, ``settings`` is empty and Spark starts Python itself.

    Args:
        quiet: discard the zygote's output.
        grouping: whether tasks will hash keys and group records, so that the zygote loads what that takes.
    """

    def __init__(self, *, quiet: bool, grouping: bool = False) -> None:
        self._quiet, self._grouping = quiet, grouping
        self.settings: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: socket.socket | None = None
        if sys.platform != "linux":
            return
        folder, self._lock = process_folder("millrace-zygote-")  # private: whoever can connect can run programs
        path = folder / "socket"
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(path))
        except OSError:  # the path may be too long for a socket
            listener.close()
            shutil.rmtree(folder, ignore_errors=True)
            return
        listener.listen(128)
        listener.set_inheritable(True)
        self._listener = listener
        self.settings[ADDRESS] = str(path)

    def start(self) -> None:
        """Start the zygote, unless it has been started; it loads its modules for a second and more."""
        if self._listener is None:
            return
        with self._listener as listener:
            wanted = [str(self._folder), *([GROUPING] if self._grouping else [])]
            self._process = start_child(
                [sys.executable, "-m", "millrace_jobs.process.zygote_server", str(listener.fileno()), *wanted],
                {"PYTHONHASHSEED": "0"} | os.environ | _SETTINGS,  # as Spark sets it, so that tasks hash alike
                quiet=self._quiet,
                pass_fds=[listener.fileno(), self._lock],
            )
        self._listener = None

    def finish(self) -> None:
        """Ask the zygote to end after its children, and wait for it."""
        if self._process is None:
            self._forget()
        elif self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)

    def end(self) -> None:
        """Kill the zygote at once; only for a zygote without children."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    @property
    def _folder(self) -> Path:
        return Path(self.settings[ADDRESS]).parent

    def _forget(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self.settings:
            shutil.rmtree(self._folder, ignore_errors=True)
