"""Starts the zygote of this process, from which Spark's Python processes are forked (see ``zygote_server``)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from millrace_jobs.zygote_client import ADDRESS

_SETTINGS = {
    "OMP_NUM_THREADS": "1",  # a process with threads must not fork; Spark sets this for tasks as well
    "PYTHONUNBUFFERED": "1",
}
_PATIENCE = 30.0


class Zygote:
    """A zygote that is starting or serves; it ends when this process does, and removes its folder.

    Where it cannot be had, as on systems that cannot fork safely, ``settings`` are empty and Spark starts Python.

    Args:
        quiet: drop what it prints.
    """

    def __init__(self, *, quiet: bool) -> None:
        self.settings: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        if sys.platform != "linux":
            return
        folder = tempfile.mkdtemp(prefix="millrace-zygote-")  # no one else's: who can connect can run programs
        path = Path(folder) / "socket"
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(str(path))
            except OSError:  # a path may be too long for a socket
                shutil.rmtree(folder, ignore_errors=True)
                return
            listener.listen(128)
            listener.set_inheritable(True)
            output = subprocess.DEVNULL if quiet else None
            self._process = subprocess.Popen(
                [sys.executable, "-m", "millrace_jobs.zygote_server", str(listener.fileno()), folder],
                stdin=subprocess.PIPE,  # once it is closed, the zygote knows that this process has ended
                stdout=output,
                stderr=output,
                env={"PYTHONHASHSEED": "0"} | os.environ | _SETTINGS,  # as Spark sets it, so that tasks hash alike
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        self.settings[ADDRESS] = str(path)

    def finish(self) -> None:
        """Let it end once its children have, and wait for that."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)

    def end(self) -> None:
        """End it at once, where it has no children."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            shutil.rmtree(Path(self.settings[ADDRESS]).parent, ignore_errors=True)
