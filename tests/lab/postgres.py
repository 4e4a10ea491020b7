"""A PostgreSQL server for tests: Debian's, as a user without rights, on a port, with its data in a folder.

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from .cache import MissingError
from .parts.debian_packages import POSTGRES_PACKAGES
from .ports import free_port
from .processes import Process, signal_all
from .tcp_proxy import TcpProxy

PASSWORD = "the-owner's"
OWNER = "postgres"
DATABASE = "postgres"

_PATIENCE = 60.0
"""Seconds to wait for a server's start on a busy machine."""

_SETTINGS = {
    "fsync": "off",  # a killed server loses nothing by that, only a machine does
    "shared_buffers": "32MB",
    "max_connections": "40",
    "log_min_messages": "warning",
    "autovacuum": "off",
}

_made: list[Path] = []
"""Data of a new server, which takes seconds to make."""

seconds_to_start: list[float] = []
"""Seconds from each start of a server to its first answer."""


class PostgresServer:
    """A server that runs from ``start`` to ``kill``, or to the end of the process that started it.

    Everyone who reaches ``address`` and has a password may log in.
    """

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.folder, self._address = folder, address
        self.port = free_port()
        self._programs = Path()
        self._process: Process | None = None

    @property
    def host(self) -> str:
        """The address of the server, host:port."""
        return f"{self._address}:{self.port}"

    @property
    def log(self) -> str:
        """The server's output over all its starts."""
        return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start the server with its data, and wait until it takes connections.

        Raises:
            MissingError: PostgreSQL is not installed.
        """
        self._programs = POSTGRES_PACKAGES.programs()
        if not (self.folder / "data").exists():
            self._create()
        began = time.monotonic()
        settings = [f"-c{name}={value}" for name, value in self._settings.items()]
        sockets = f"-cunix_socket_directories={self.folder}"
        server = [self._programs / "postgres", "-D", self.folder / "data", sockets, *settings]
        self._process = Process([*_unprivileged(), *server], self.folder / "server.log")
        self._wait_until_ready(self._process)
        seconds_to_start.append(time.monotonic() - began)

    def kill(self) -> None:
        """Kill all processes of the server."""
        if self._process is not None:
            self._signal(signal.SIGSTOP)  # none of them sees another one die, and none is started
            self._signal(signal.SIGKILL)
            self._process.wait(_PATIENCE)
            self._process = None

    def restart(self) -> None:
        """Kill the server if it runs, and start it with its data on the same port."""
        self.kill()
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        self.start()

    def pause(self) -> None:
        """Pause the server. Its connections stay open and get no answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused server."""
        self._signal(signal.SIGCONT)

    def connect(self, user: str = OWNER, password: str = PASSWORD, **more: Any) -> psycopg.Connection[Any]:
        """Return a connection in autocommit mode."""
        return psycopg.connect(
            host=self._address,
            port=self.port,
            user=user,
            password=password,
            autocommit=True,
            **({"dbname": DATABASE} | more),
        )

    def execute(self, command: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a command in a connection of its own, and return its rows, if it has any."""
        with self.connect() as connection:
            cursor = connection.execute(command, values or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description is not None else []

    def use_tls(self, certificate: Path, key: Path) -> None:
        """Offer TLS with this certificate from now on."""
        data = self.folder / "data"
        for name, file in (("server.crt", certificate), ("server.key", key)):
            shutil.copy(file, data / name)
            (data / name).chmod(0o600)
            _give(data / name)
        self.execute("ALTER SYSTEM SET ssl = on")
        self.execute("SELECT pg_reload_conf()")

    @contextmanager
    def proxied(self) -> Iterator[TcpProxy]:
        """Yield a proxy to the server."""
        proxy = TcpProxy(free_port(), self.port)
        try:
            yield proxy
        finally:
            proxy.close()

    @property
    def _settings(self) -> dict[str, str]:
        return _SETTINGS | {"listen_addresses": self._address, "port": str(self.port)}

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and its children, each of which is in a session of its own, first to the server."""
        assert self._process is not None, "the server does not run"
        children = [process for process in _processes() if _parent(process) == self._process.pid]
        signal_all([self._process.pid, *children], number)

    def _create(self) -> None:
        """Make the folder of the data: a copy of the first one that this process has made."""
        _give(self.folder)
        if not _made:
            password = self.folder / "password"
            password.write_text(PASSWORD, encoding="utf-8")
            _give(password)
            folder = self.folder / "made"
            create = [
                self._programs / "initdb",
                "-D",
                folder,
                "-U",
                OWNER,
                "--auth=scram-sha-256",
                f"--pwfile={password}",
            ]
            command = [*_unprivileged(), *create, "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
            assert done.returncode == 0, f"the server's folder cannot be made: {done.stdout}{done.stderr}"
            kept = Path(tempfile.mkdtemp(prefix="millrace-postgres-made-"))
            atexit.register(shutil.rmtree, kept, ignore_errors=True)
            _made.append(folder.rename(kept / "data"))
        subprocess.run(["cp", "-a", _made[0], self.folder / "data"], check=True)
        with (self.folder / "data" / "pg_hba.conf").open("a", encoding="utf-8") as rules:
            rules.write("host all all 0.0.0.0/0 scram-sha-256\n")

    def _wait_until_ready(self, process: Process) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            with suppress(psycopg.OperationalError), self.connect(connect_timeout=5):
                return
            assert process.status is None, f"the server ended: {self.log[-3000:]}"
            assert time.monotonic() < deadline, f"the server does not answer in {_PATIENCE} s: {self.log[-3000:]}"
            time.sleep(0.05)


@contextmanager
def running_postgres(address: str = "127.0.0.1") -> Iterator[PostgresServer]:
    """Run a server in a folder that its user can reach, and kill it at the end, since its data is not needed then."""
    folder = Path(tempfile.mkdtemp(prefix="millrace-postgres-"))
    server = PostgresServer(folder, address)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> list[str]:
    """Return the command that runs another one without the rights of root, with which PostgreSQL refuses to run."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        raise MissingError("not installed: setpriv")
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _parent(process: int) -> int | None:
    with suppress(OSError):  # it has ended
        return int(
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
        )
    return None


def _give(path: Path) -> None:
    if not os.geteuid():
        nobody = pwd.getpwnam("nobody")
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
