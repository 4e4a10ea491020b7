"""A database server for tests: a Debian package's, as a user without rights, on a port, with its data in a folder.

It can be killed, paused, and restarted with its data on the same port. A proxy between the server and its clients can
lose what either of them says.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from .cache import MissingError
from .ports import free_port
from .processes import Process, signal_all
from .tcp_proxy import TcpProxy

PATIENCE = 60.0
"""Seconds to wait for a server's start on a busy machine."""

_made: dict[type, Path] = {}
"""Data of a new server of each kind, which takes seconds to make."""


class DatabaseServer(ABC):
    """A server that runs from ``start`` to ``kill``, or to the end of the process that started it.

    Everyone who reaches ``address`` and has a password may log in.
    """

    seconds_to_start: list[float]
    """Seconds from each start of a server of this kind to its first answer."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.folder, self._address = folder, address
        self.port = free_port()
        self._process: Process | None = None

    @property
    def host(self) -> str:
        """The address of the server, host:port."""
        return f"{self._address}:{self.port}"

    @property
    def data(self) -> Path:
        """The folder with the data."""
        return self.folder / "data"

    @property
    def log(self) -> str:
        """The server's output over all its starts."""
        return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")

    @abstractmethod
    def command(self) -> list[str | Path]:
        """Return the command of the server. Raise ``MissingError`` if it is not installed."""

    @abstractmethod
    def create(self, folder: Path) -> None:
        """Make the folder of the data."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether the server takes connections."""

    def start(self) -> None:
        """Start the server with its data, and wait until it takes connections.

        Raises:
            MissingError: it is not installed.
        """
        command = self.command()
        if not self.data.exists():
            self._create()
        began = time.monotonic()
        self._process = Process([*unprivileged(), *command], self.folder / "server.log")
        while not self.is_ready():
            assert self._process.status is None, f"the server ended: {self.log[-3000:]}"
            late = time.monotonic() - began > PATIENCE
            assert not late, f"the server does not answer in {PATIENCE} s: {self.log[-3000:]}"
            time.sleep(0.05)
        self.seconds_to_start.append(time.monotonic() - began)

    def processes(self) -> list[int]:
        """Return all processes of the server, itself first."""
        assert self._process is not None, "the server does not run"
        return [self._process.pid]

    def kill(self) -> None:
        """Kill all processes of the server."""
        if self._process is not None:
            self.pause()  # none of them sees another one die, and none is started
            signal_all(self.processes(), signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process = None

    def restart(self) -> None:
        """Kill the server if it runs, and start it with its data on the same port."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Pause the server. Its connections stay open and get no answers."""
        signal_all(self.processes(), signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused server."""
        signal_all(self.processes(), signal.SIGCONT)

    @contextmanager
    def proxied(self) -> Iterator[TcpProxy]:
        """Yield a proxy to the server."""
        proxy = TcpProxy(free_port(), self.port)
        try:
            yield proxy
        finally:
            proxy.close()

    def _create(self) -> None:
        """Make the folder of the data: a copy of the first one that this process has made."""
        give(self.folder)
        if type(self) not in _made:
            self.create(self.folder / "made")
            kept = Path(tempfile.mkdtemp(prefix="millrace-database-made-"))
            atexit.register(shutil.rmtree, kept, ignore_errors=True)
            _made[type(self)] = (self.folder / "made").rename(kept / "data")
        subprocess.run(["cp", "-a", _made[type(self)], self.data], check=True)


Server = TypeVar("Server", bound=DatabaseServer)


@contextmanager
def running_database(make: Callable[[Path], Server]) -> Iterator[Server]:
    """Run a server in a folder that its user can reach, and kill it at the end, since its data is not needed then."""
    folder = Path(tempfile.mkdtemp(prefix="millrace-database-"))
    server = make(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def unprivileged() -> list[str]:
    """Return the command that runs another one without the rights of root, with which servers refuse to run."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        raise MissingError("not installed: setpriv")
    # a change of the user clears the signal that ends it with this process
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig=KILL", "--"]


def give(path: Path) -> None:
    """Give a file or folder to the user of the server."""
    if not os.geteuid():
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
