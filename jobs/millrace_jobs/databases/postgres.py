"""Connections to a PostgreSQL server, and the meaning of its errors.

Libpq reads certificates from files only, so these are written to a folder of their own, which is removed when the
connection is open. A refused connection has no SQLSTATE in libpq, so its text decides: the server's own messages are in
English unless its ``lc_messages`` says otherwise, and an unknown text counts as transient.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from millrace_api.errors import MillraceError
from millrace_jobs.databases import connection as common
from millrace_jobs.databases.connection import DatabaseConnection, Meaning, system_authorities, time_limit, worded

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

_LOGIN = Meaning("refuses the login", "check user and password, and the server's pg_hba.conf", "password")
_NO_TLS = Meaning("does not offer TLS", "leave tls out, or turn ssl on at the server", "tls")
_NUL = Meaning("cannot hold the character NUL in text", "select replace(column, chr(0), '') AS column", "table")

_CONNECTING: tuple[tuple[str, Meaning], ...] = (
    (r"authentication failed|no password supplied|no pg_hba.conf entry|role \".*\" (does not|is not)", _LOGIN),
    (r"database \".*\" does not exist", common.NO_DATABASE),
    (r"permission denied for database", common.RIGHTS),
    (r"does not support SSL", _NO_TLS),
    (
        r"certificate verify failed|does not match host name|root certificate|no certificate or crl found",
        common.CERTIFICATE,
    ),
    (
        r"private key|could not (load|read) (client )?certificate|alert|valid client certificate",
        common.CLIENT_CERTIFICATE,
    ),
    (r"read-only", common.READ_ONLY),
    (r"too many (clients|connections)|remaining connection slots", common.BUSY),
)
"""Meanings of texts with which a connection is refused; the first that matches wins."""

_TEXTS_OF_CONNECTING = ("connection failed", "failed to resolve", "connection timeout", "connection is bad")

_STATES: dict[str, Meaning] = {
    "08": common.LOST,
    "21000": common.CHANGED,
    "22021": _NUL,
    "22P05": _NUL,
    "22": common.VALUE,
    "23502": common.NULL,
    "23505": common.UNIQUE,
    "23": common.CONSTRAINT,
    "25006": common.READ_ONLY,
    "25P03": common.LOST,
    "28": _LOGIN,
    "3D": common.NO_DATABASE,
    "40": common.CONFLICT,
    "42501": common.RIGHTS,
    "42": common.CHANGED,
    "53": common.BUSY,
    "54": common.VALUE,
    "55P03": common.LOCKED,
    "57014": common.LOCKED,
    "57": common.LOST,
    "58": common.LOST,
}
"""Meanings by SQLSTATE, or by its first two characters."""

_READING: dict[str, Meaning] = {
    "22": Meaning("cannot compute a value", "correct the query, or exclude such rows in it", "query"),
    "25006": Meaning("does not let a source write", "write a query that only reads", "query"),
    "3F": Meaning("has no such schema", "create it, or correct its name", "table"),
    "40": Meaning("has ended the transaction for another one", "look for long reads of a standby server", "", True),
    "42501": Meaning("does not let this user read that", "grant it SELECT", "user"),
    "42703": Meaning(
        "has no such column", "correct it in schema; names are in lower case unless the table was made with quotes"
    ),
    "42P01": Meaning("has no such table", "create it, or correct its name"),
    "42": Meaning("does not accept the query", "correct it", "query"),
    "0A": Meaning("does not accept the query", "correct it", "query"),
}
"""Meanings by SQLSTATE, or by its first two characters, where they differ for reading."""

_DETAIL = re.compile(r".*(?:failed: |resolve host )(?:FATAL:\s*|SSL error:\s*)?", re.DOTALL)
_PLACE = re.compile(r"COPY [^,]+, line \d+, column ([^:\n]+)")


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
            with time_limit(session, common.CONNECT_SECONDS):
                limits = {
                    "statement": common.STATEMENT_SECONDS,
                    "lock": common.LOCK_SECONDS,
                    "idle": common.IDLE_SECONDS,
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

        Raises MillraceError if a secret cannot be read.
        """
        settings: dict[str, str | int | bool] = {
            "host": ",".join(host for host, _ in self.hosts),
            "port": ",".join(str(port) for _, port in self.hosts),
            "dbname": self.database,
            "user": self.user,
            "password": self.password.resolve() if self.password is not None else "",
            "passfile": f"{os.devnull}/none",  # about one that is there and no plain file, libpq prints a warning
            "options": "",
            "application_name": "millrace",
            "client_encoding": "utf8",
            "connect_timeout": int(common.CONNECT_SECONDS),
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


def postgres_problem(
    error: psycopg.Error, doing: str, connection: DatabaseConnection, *, reads: bool = False
) -> MillraceError:
    """Return the error as a sentence for the user; a TransientError if it may pass by itself.

    ``doing`` describes the failed operation, such as ``writing batch 7 to table public.trips``; ``reads`` is whether
    that only reads.
    """
    state = error.sqlstate or ""
    meaning = (_READING.get(state) or _READING.get(state[:2])) if reads else None
    return worded(meaning or _meaning(error), _detail(error), doing, connection)


def is_conflict(error: psycopg.Error) -> bool:
    """Return whether a transaction has failed because of another one, so that it can be tried again."""
    return (error.sqlstate or "").startswith("40") or error.sqlstate == "55P03"


def _meaning(error: psycopg.Error) -> Meaning:
    state = error.sqlstate
    if state is None:
        text = str(error)
        found = (meaning for pattern, meaning in _CONNECTING if re.search(pattern, text))
        return next(found, common.UNREACHABLE if text.startswith(_TEXTS_OF_CONNECTING) else common.LOST)
    known = _STATES.get(state) or _STATES.get(state[:2])
    return known or Meaning(f"gave the error {state}", "see the server's log")


def _detail(error: psycopg.Error) -> str:
    """Return what the server says, in one line, with the column that it names."""
    if error.sqlstate is None:
        return _DETAIL.sub("", next(iter(str(error).splitlines()), ""), count=1).strip()
    message = " ".join((error.diag.message_primary or str(error)).split())
    column = error.diag.column_name or next(iter(_PLACE.findall(error.diag.context or "")), "")
    return f"{message}, in column {column}" if column and f'"{column}"' not in message else message
