"""The zygote of this process, from which Spark's Python processes are forked (see ``zygote_server``)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from millrace_jobs.process.signals import start_child
from millrace_jobs.process.zygote_client import ADDRESS, GROUPING

_SETTINGS = {
    "OMP_NUM_THREADS": "1",  # a process with threads must not fork; Spark sets this for tasks as well
    "PYTHONUNBUFFERED": "1",
}
_END_SECONDS = 30.0


class Zygote:
    """A zygote, starting or running; it ends when this process ends, and removes its folder.

    Outside Linux, or if its socket cannot be bound, ``settings`` is empty and Spark starts Python itself.

    Args:
        quiet: discard the zygote's output.
        grouping: whether tasks will hash keys and group records, so that the zygote loads what that takes.
    """

    def __init__(self, *, quiet: bool, grouping: bool = False) -> None:
        self.settings: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        if sys.platform != "linux":
            return
        folder = tempfile.mkdtemp(prefix="millrace-zygote-")  # private: whoever can connect can run programs
        path = Path(folder) / "socket"
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(str(path))
            except OSError:  # the path may be too long for a socket
                shutil.rmtree(folder, ignore_errors=True)
                return
            listener.listen(128)
            listener.set_inheritable(True)
            wanted = [GROUPING] if grouping else []
            self._process = start_child(
                [sys.executable, "-m", "millrace_jobs.process.zygote_server", str(listener.fileno()), folder, *wanted],
                {"PYTHONHASHSEED": "0"} | os.environ | _SETTINGS,  # as Spark sets it, so that tasks hash alike
                quiet=quiet,
                pass_fds=[listener.fileno()],
            )
        self.settings[ADDRESS] = str(path)

    def finish(self) -> None:
        """Ask the zygote to end after its children, and wait for it."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)

    def end(self) -> None:
        """Kill the zygote at once; only for a zygote without children."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            shutil.rmtree(Path(self.settings[ADDRESS]).parent, ignore_errors=True)
