"""A PostgreSQL server for tests."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import psycopg

from .database_server import PATIENCE, DatabaseServer, give, running_database, unprivileged
from .parts.debian_packages import POSTGRES_PACKAGES

PASSWORD = "the-owner's"
OWNER = "postgres"
DATABASE = "postgres"

_SETTINGS = {
    "fsync": "off",  # a killed server loses nothing by that, only a machine does
    "shared_buffers": "32MB",
    "max_connections": "40",
    "log_min_messages": "warning",
    "autovacuum": "off",
}

seconds_to_start: list[float] = []
"""Seconds from each start of a server to its first answer."""


class PostgresServer(DatabaseServer):
    """A PostgreSQL server."""

    seconds_to_start = seconds_to_start

    def command(self) -> list[str | Path]:
        """Return the command of the server. Raise ``MissingError`` if it is not installed."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # of one that was killed
        given = _SETTINGS | {"listen_addresses": self._address, "port": str(self.port)}
        settings = [f"-c{name}={value}" for name, value in given.items()]
        sockets = f"-cunix_socket_directories={self.folder}"
        return [POSTGRES_PACKAGES.programs() / "postgres", "-D", self.data, sockets, *settings]

    def processes(self) -> list[int]:
        """Return all processes of the server, itself first; each of its children is in a session of its own."""
        (server,) = super().processes()
        return [server, *(process for process in _processes() if _parent(process) == server)]

    def is_ready(self) -> bool:
        """Return whether the server takes connections."""
        with suppress(psycopg.OperationalError), self.connect(connect_timeout=5):
            return True
        return False

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
            cursor = connection.execute(command, values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def use_tls(self, certificate: Path, key: Path) -> None:
        """Offer TLS with this certificate from now on."""
        for name, file in (("server.crt", certificate), ("server.key", key)):
            shutil.copy(file, self.data / name)
            (self.data / name).chmod(0o600)
            give(self.data / name)
        self.execute("ALTER SYSTEM SET ssl = on")
        self.execute("SELECT pg_reload_conf()")

    def create(self, folder: Path) -> None:
        """Make the folder of the data."""
        password = self.folder / "password"
        password.write_text(PASSWORD, encoding="utf-8")
        give(password)
        create: list[str | Path] = [
            *unprivileged(),
            POSTGRES_PACKAGES.programs() / "initdb",
            "-D",
            folder,
            "-U",
            OWNER,
            "--auth=scram-sha-256",
            f"--pwfile={password}",
        ]
        command = [*create, "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, f"the server's folder cannot be made: {done.stdout}{done.stderr}"
        with (folder / "pg_hba.conf").open("a", encoding="utf-8") as rules:
            rules.write("host all all 0.0.0.0/0 scram-sha-256\n")


def running_postgres(address: str = "127.0.0.1") -> AbstractContextManager[PostgresServer]:
    """Run a server in a folder that its user can reach, and kill it at the end, since its data is not needed then."""
    return running_database(lambda folder: PostgresServer(folder, address))


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _parent(process: int) -> int | None:
    with suppress(OSError):  # it has ended
        return int(
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
        )
    return None
