"""A MariaDB server for tests of the dialect of MySQL."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any

import pymysql

from .database_server import PATIENCE, DatabaseServer, give, running_database, unprivileged
from .parts.debian_packages import MARIADB_PACKAGES

PASSWORD = "the-owner's"
OWNER = "owner"
DATABASE = "lab"

_SETTINGS = {
    "innodb_flush_log_at_trx_commit": "2",  # a killed server loses nothing by that, only a machine does
    "innodb_buffer_pool_size": "32M",
    "innodb_log_file_size": "16M",
    "performance_schema": "OFF",
    "max_connections": "40",
    "skip_name_resolve": "ON",
    "skip_log_bin": "ON",
    "pid_file": "server.pid",
    # what no query may depend on
    "sql_mode": "",
    "default_time_zone": "+05:00",
    "character_set_server": "latin1",
    "transaction_isolation": "SERIALIZABLE",
    "explicit_defaults_for_timestamp": "OFF",
}

_WHEN_MADE = {"innodb_log_file_size": "16M", "performance_schema": "OFF", "skip_log_bin": "ON"}

_SERVER = "/usr/sbin/mariadbd"
_SCRIPTS = Path("/usr/share/mysql")
_SYSTEM = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")

seconds_to_start: list[float] = []
"""Seconds from each start of a server to its first answer."""


class MariaDbServer(DatabaseServer):
    """A MariaDB server, whose defaults are as bad as they can be."""

    seconds_to_start = seconds_to_start

    def __init__(self, folder: Path, address: str = "127.0.0.1", **settings: str) -> None:
        super().__init__(folder, address)
        self._settings = _SETTINGS | settings

    def command(self) -> list[str | Path]:
        """Return the command of the server. Raise ``MissingError`` if it is not installed."""
        MARIADB_PACKAGES.find()
        given = self._settings | {"bind_address": self._address, "port": str(self.port), "datadir": str(self.data)}
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        sockets = [f"--socket={self.folder / 'socket'}", f"--tmpdir={self.folder}"]
        return [_SERVER, "--no-defaults", *sockets, *settings]

    def is_ready(self) -> bool:
        """Return whether the server takes connections."""
        with suppress(pymysql.err.OperationalError), closing(self.connect(connect_timeout=5)):
            return True
        return False

    def connect(self, user: str = OWNER, password: str = PASSWORD, **more: Any) -> pymysql.Connection[Any]:
        """Return a connection in autocommit mode."""
        known = {"database": DATABASE, "charset": "utf8mb4", "autocommit": True, "sql_mode": "TRADITIONAL"}
        settings: dict[str, Any] = known | {"init_command": "SET time_zone = '+00:00'"} | more
        return pymysql.connect(host=self._address, port=self.port, user=user, password=password.encode(), **settings)

    def execute(self, command: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a command in a connection of its own, and return its rows, if it has any."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(command, values or None)
            return list(cursor.fetchall()) if cursor.description is not None else []

    def use_tls(self, certificate: Path, key: Path) -> None:
        """Offer TLS with this certificate from the next start on."""
        for name, file in (("server.crt", certificate), ("server.key", key)):
            shutil.copy(file, self.data / name)
            give(self.data / name)
        self._settings |= {"ssl_cert": str(self.data / "server.crt"), "ssl_key": str(self.data / "server.key")}
        self.restart()

    def create(self, folder: Path) -> None:
        """Make the folder of the data, by the server itself with the scripts of its package; a line ends a statement."""
        MARIADB_PACKAGES.find()
        folder.mkdir()
        give(folder)
        password = PASSWORD.replace("'", "''")
        commands = [
            "CREATE DATABASE mysql;",
            "USE mysql;",
            "SET @auth_root_socket = NULL, @skip_auth_anonymous = 1;",
            *((_SCRIPTS / name).read_text(encoding="utf-8") for name in _SYSTEM),
            "FLUSH PRIVILEGES;",
            f"CREATE DATABASE {DATABASE};",
            f"CREATE USER {OWNER}@'%' IDENTIFIED BY '{password}';",
            f"GRANT ALL ON *.* TO {OWNER}@'%' WITH GRANT OPTION;",
        ]
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in _WHEN_MADE.items()]
        command = [*unprivileged(), _SERVER, "--no-defaults", "--bootstrap", f"--datadir={folder}", *settings]
        script = "\n".join(commands)
        done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, f"the server's folder cannot be made: {done.stdout}{done.stderr}"


def running_mariadb(address: str = "127.0.0.1", **settings: str) -> AbstractContextManager[MariaDbServer]:
    """Run a server in a folder that its user can reach, and kill it at the end, since its data is not needed then."""
    return running_database(lambda folder: MariaDbServer(folder, address, **settings))
