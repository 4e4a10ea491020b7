"""The meaning of PostgreSQL's errors: which may pass by themselves, and a sentence for the user about each.

A refused connection has no SQLSTATE in libpq, so its text decides: the server's own messages are in English unless its
``lc_messages`` says otherwise, and an unknown text counts as transient.
"""

from __future__ import annotations

import re

import psycopg

from millrace_api.errors import MillraceError
from millrace_jobs.databases.connection import DatabaseConnection
from millrace_jobs.databases.errors import (
    BUSY,
    CERTIFICATE,
    CHANGED,
    CLIENT_CERTIFICATE,
    CONFLICT,
    CONSTRAINT,
    LOCKED,
    LOST,
    NO_DATABASE,
    NULL,
    READ_ONLY,
    RIGHTS,
    UNIQUE,
    UNREACHABLE,
    VALUE,
    Meaning,
    worded,
)

_LOGIN = Meaning("refuses the login", "check user and password, and the server's pg_hba.conf", "password")
_NO_TLS = Meaning("does not offer TLS", "leave tls out, or turn ssl on at the server", "tls")
_NUL = Meaning("cannot hold the character NUL in text", "select replace(column, chr(0), '') AS column", "table")

_CONNECTING: tuple[tuple[str, Meaning], ...] = (
    (r"authentication failed|no password supplied|no pg_hba.conf entry|role \".*\" (does not|is not)", _LOGIN),
    (r"database \".*\" does not exist", NO_DATABASE),
    (r"permission denied for database", RIGHTS),
    (r"does not support SSL", _NO_TLS),
    (r"certificate verify failed|does not match host name|root certificate|no certificate or crl found", CERTIFICATE),
    (r"private key|could not (load|read) (client )?certificate|alert|valid client certificate", CLIENT_CERTIFICATE),
    (r"read-only", READ_ONLY),
    (r"too many (clients|connections)|remaining connection slots", BUSY),
)
"""Meanings of texts with which a connection is refused; the first that matches wins."""

_TEXTS_OF_CONNECTING = ("connection failed", "failed to resolve", "connection timeout", "connection is bad")

_STATES: dict[str, Meaning] = {
    "08": LOST,
    "21000": CHANGED,
    "22021": _NUL,
    "22P05": _NUL,
    "22": VALUE,
    "23502": NULL,
    "23505": UNIQUE,
    "23": CONSTRAINT,
    "25006": READ_ONLY,
    "25P03": LOST,
    "28": _LOGIN,
    "3D": NO_DATABASE,
    "40": CONFLICT,
    "42501": RIGHTS,
    "42": CHANGED,
    "53": BUSY,
    "54": VALUE,
    "55P03": LOCKED,
    "57014": LOCKED,
    "57": LOST,
    "58": LOST,
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


def postgres_problem(
    error: psycopg.Error, doing: str, connection: DatabaseConnection, *, reads: bool = False
) -> MillraceError:
    """Return the error as a sentence for the user; a TransientError if it may pass by itself.

    ``doing`` describes the failed operation, such as ``writing batch 7 to table public.trips``; ``reads`` is whether
    that only reads.
    """
    return worded((_meaning_of_reading if reads else _meaning)(error), _detail(error), doing, connection)


def is_conflict(error: psycopg.Error) -> bool:
    """Return whether a transaction has failed because of another one, so that it can be tried again."""
    return (error.sqlstate or "").startswith("40") or error.sqlstate == "55P03"


def _meaning_of_reading(error: psycopg.Error) -> Meaning:
    state = error.sqlstate or ""
    return _READING.get(state) or _READING.get(state[:2]) or _meaning(error)


def _meaning(error: psycopg.Error) -> Meaning:
    state = error.sqlstate
    if state is None:
        text = str(error)
        found = (meaning for pattern, meaning in _CONNECTING if re.search(pattern, text))
        return next(found, UNREACHABLE if text.startswith(_TEXTS_OF_CONNECTING) else LOST)
    known = _STATES.get(state) or _STATES.get(state[:2])
    return known or Meaning(f"gave the error {state}", "see the server's log")


def _detail(error: psycopg.Error) -> str:
    """Return what the server says, in one line, with the column that it names."""
    if error.sqlstate is None:
        lines = str(error).splitlines()
        return _DETAIL.sub("", lines[-1] if lines else "", count=1).strip() if len(lines) < 2 else _first(lines)
    message = " ".join((error.diag.message_primary or str(error)).split())
    column = error.diag.column_name or next(iter(_PLACE.findall(error.diag.context or "")), "")
    return f"{message}, in column {column}" if column and f'"{column}"' not in message else message


def _first(lines: list[str]) -> str:
    return _DETAIL.sub("", lines[0], count=1).strip()
