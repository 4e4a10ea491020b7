"""Connections to a PostgreSQL server: address, login, TLS, and a limit of time for every call.

Secrets stay references until a connection is opened. Libpq reads certificates from files only, so these are written to
a folder of their own, which is removed when the connection is open.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.postgres import PostgresServerSpec
from millrace_jobs.secrets import Secret

Session = psycopg.Connection[tuple[Any, ...]]
"""An open connection, in autocommit mode."""

SINK = "spec.sink.postgres"
"""Field of a query with its sink; messages name the field of the connection."""

CONNECT_SECONDS = 10.0
"""Seconds after which a server that does not answer is given up; libpq allows as many for each address of a host."""

STATEMENT_SECONDS = 600.0
"""Seconds that the server may take for one statement, such as the merge of a batch into the table."""

LOCK_SECONDS = 30.0
"""Seconds to wait for a lock that another session holds."""

IDLE_SECONDS = 20.0
"""Seconds after which the server ends a transaction whose client says nothing: that of a driver that is frozen.

It is shorter than the wait for a lock, so that the next driver gets those of a frozen one."""

_GRACE_SECONDS = 15.0
"""Seconds for the answer on top of the server's own limit: only a server that is frozen or cut off exceeds both."""

_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where systems keep the certificate authorities that they trust; the client library has no folder of its own."""

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


@dataclass(frozen=True)
class PostgresConnection:
    """Address and login of a server; it holds only references to secrets.

    ``tls`` are pairs of a libpq setting and the reference to the certificate or key; None without TLS. ``field`` is the
    field of the query that the connection is described in.
    """

    hosts: tuple[tuple[str, int], ...]
    database: str
    user: str
    password: Secret | None = None
    tls: tuple[tuple[str, Secret], ...] | None = None
    field: str = SINK

    @classmethod
    def of(cls, spec: PostgresServerSpec, field: str = SINK) -> Self:
        """Return the connection that a query specifies in a field; read no secret."""
        where = f"for PostgreSQL at {spec.host}"
        password = None if spec.password is None else Secret.of(f"the password {where}", spec.password)
        tls = None
        if spec.tls is not None:
            found = {
                "sslrootcert": ("the certificate authority", spec.tls.ca),
                "sslcert": ("the client certificate", spec.tls.certificate),
                "sslkey": ("the key of the client certificate", spec.tls.key),
            }
            tls = tuple(
                (setting, Secret.of(f"{what} {where}", value))
                for setting, (what, value) in found.items()
                if value is not None
            )
        return cls(spec.addresses, spec.database, spec.user, password, tls, field)

    @property
    def place(self) -> str:
        """The servers, host:port, as messages name them."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    def open(self, *, reads: bool = False) -> Session:
        """Open a session with a server that accepts writes, or with any one for a session that only ``reads``.

        Raises:
            MillraceError: a secret cannot be read.
            psycopg.Error: no server can be reached, or all of them refuse.
        """
        with tempfile.TemporaryDirectory(prefix="millrace-tls-") as folder:
            session: Session = psycopg.connect(  # a prepared statement would not outlive a change of the table
                **self.settings(Path(folder), reads=reads),  # type: ignore[arg-type]
                prepare_threshold=None,
            )
        try:
            with time_limit(session, CONNECT_SECONDS):
                limits = {"statement": STATEMENT_SECONDS, "lock": LOCK_SECONDS, "idle": IDLE_SECONDS}
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
            "connect_timeout": int(CONNECT_SECONDS),
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
            settings["sslrootcert"] = _system_authorities(f"{self.field}.tls")
            for setting, secret in self.tls:
                file = folder / setting
                file.touch(mode=0o600)
                file.write_text(secret.resolve() + "\n", encoding="utf-8")
                settings[setting] = str(file)
            if "sslcert" in settings:
                settings["sslcertmode"] = "allow"
        return settings


@contextmanager
def time_limit(session: Session, seconds: float = STATEMENT_SECONDS) -> Iterator[None]:
    """Break the connection if the block takes longer than ``seconds`` and a grace period: libpq would wait for ever.

    The call that waits then raises psycopg.OperationalError.
    """
    line = socket.socket(fileno=os.dup(session.fileno()))  # stays open, whatever number the session's gets

    def break_connection() -> None:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds + _GRACE_SECONDS, break_connection)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        line.close()


def _system_authorities(field: str) -> str:
    """Return the file with the certificate authorities that this system trusts.

    Raises:
        MillraceError: there is none.
    """
    for file in _AUTHORITIES:
        if Path(file).exists():
            return file
    message = "this system has no file of certificate authorities that it trusts"
    raise MillraceError(Problem(message, "write the server's in tls.ca", field=field))
