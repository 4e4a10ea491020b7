"""Connections to a PostgreSQL server.

Libpq reads certificates from files only, so these are written to
a folder of their own, which is removed when the connection is open.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from millrace_jobs.databases import connection
from millrace_jobs.databases.connection import DatabaseConnection, system_authorities, time_limit

PostgresSession = psycopg.Connection[tuple[Any, ...]]
"""An open connection, in autocommit mode."""

SINK = "spec.sink.postgres"
"""Field of a query with its sink; messages name the field of the connection."""

_SESSION = """
SELECT set_config(name, value, false)
FROM (VALUES
    ('statement_timeout', %(statement)s), ('lock_timeout', %(lock)s),
    ('idle_in_transaction_session_timeout', %(idle)s), ('idle_session_timeout', '0'),
    ('default_transaction_isolation', 'read committed'), ('default_transaction_read_only', %(reads)s),
    ('DateStyle', 'ISO, YMD'), ('TimeZone', 'UTC'), ('bytea_output', 'hex'), ('extra_float_digits', '1'),
    ('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                           ELSE current_setting('synchronous_commit') END)
) AS wanted (name, value)
WHERE name IN (SELECT name FROM pg_settings)
"""
"""Settings of a session, as far as the server has them.

A commit that the server may lose in a crash would be a batch that Spark does not write again.
"""


_TLS_SETTINGS = {"ca": "sslrootcert", "certificate": "sslcert", "key": "sslkey"}


@dataclass(frozen=True)
class PostgresConnection(DatabaseConnection):
    """Address and login of a server."""

    server: ClassVar[str] = "PostgreSQL"

    field: str = SINK

    def open(self, *, reads: bool = False) -> PostgresSession:
        """Open a session with a server that accepts writes, or with any one for a session that only ``reads``.

        Raises:
            MillraceError: a secret cannot be read.
            psycopg.Error: no server can be reached, or all of them refuse.
        """
        with tempfile.TemporaryDirectory(prefix="millrace-tls-") as folder:
            session: PostgresSession = psycopg.connect(  # a prepared statement would not outlive a change of the table
                **self.settings(Path(folder), reads=reads),  # type: ignore[arg-type]
                prepare_threshold=None,
            )
        try:
            with time_limit(session, connection.CONNECT_SECONDS):
                limits = {
                    "statement": connection.STATEMENT_SECONDS,
                    "lock": connection.LOCK_SECONDS,
                    "idle": connection.IDLE_SECONDS,
                }
                given = {name: f"{seconds:.0f}s" for name, seconds in limits.items()}
                session.execute(_SESSION, given | {"reads": "on" if reads else "off"})
        except BaseException:
            session.close()
            raise
        return session

    def settings(self, folder: Path, *, reads: bool = False) -> dict[str, str | int | bool]:
        """Return the settings of libpq, all that matter: none comes from its own environment variables and files.

        Do not store them: they contain the password. Certificates and keys are written to ``folder``.

        Raises:
            MillraceError: a secret cannot be read.
        """
        settings: dict[str, str | int | bool] = {
            "host": ",".join(host for host, _ in self.hosts),
            "port": ",".join(str(port) for _, port in self.hosts),
            "dbname": self.database,
            "user": self.user,
            "password": self.password.resolve() if self.password is not None else "",
            "passfile": os.devnull,
            "options": "",
            "application_name": "millrace",
            "client_encoding": "utf8",
            "connect_timeout": int(connection.CONNECT_SECONDS),
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
            "gssencmode": "disable",
            "target_session_attrs": "any" if reads else "read-write",
            "sslmode": "prefer" if self.tls is None else "verify-full",
            "sslcertmode": "disable",
            "autocommit": True,
        }
        if self.tls is not None:
            settings["sslrootcert"] = system_authorities(f"{self.field}.tls")
            for part, secret in self.tls:
                setting = _TLS_SETTINGS[part]
                file = folder / setting
                file.touch(mode=0o600)
                file.write_text(secret.resolve() + "\n", encoding="utf-8")
                settings[setting] = str(file)
            if "sslcert" in settings:
                settings["sslcertmode"] = "allow"
        return settings
