"""The meaning of PostgreSQL's errors: which may pass by themselves, and a sentence for the user about each.

A refused connection has no SQLSTATE in libpq, so its text decides: the server's own messages are in English unless its
``lc_messages`` says otherwise, and an unknown text counts as transient.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import psycopg

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.postgres.connection import PostgresConnection
from millrace_support.backoff import Backoff

PATIENCE = 45.0
"""Seconds for which a call is retried while its error is transient."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0

T = TypeVar("T")


class _Meaning(NamedTuple):
    """What an error means, what to do about it, the field that it is about, and whether it may pass by itself."""

    what: str
    hint: str
    field: str = ""
    passes: bool = False


_UNREACHABLE = _Meaning("cannot be reached", "check host, and whether the server runs", "host", True)
_LOST = _Meaning("has broken the connection", "check that the server and the network are healthy", "", True)
_BUSY = _Meaning("lacks a resource", "raise the server's limits, or free some of it", "", True)
_READ_ONLY = _Meaning("accepts no writes", "write the primary server in host, or all that can become it", "host", True)
_CONFLICT = _Meaning("has ended the transaction for another one", "look for other writers of the table", "", True)
_LOCKED = _Meaning("has made this session wait for too long", "look for a session that locks the table", "", True)
_LOGIN = _Meaning("refuses the login", "check user and password, and the server's pg_hba.conf", "password")
_NO_DATABASE = _Meaning("has no such database", "create it, or correct its name", "database")
_RIGHTS = _Meaning("does not let this user do that", "grant it the rights", "user")
_CERTIFICATE = _Meaning("cannot be verified", "check tls.ca, and the names in the server's certificate", "tls")
_NO_TLS = _Meaning("does not offer TLS", "leave tls out, or turn ssl on at the server", "tls")
_CLIENT_CERTIFICATE = _Meaning("refuses the client certificate", "check tls.certificate and tls.key", "tls")
_CHANGED = _Meaning("has another table than at the start", "start the query again, which checks the table", "table")
_VALUE = _Meaning("does not take a value", "change the type of the column, or the value in the SELECT list", "table")
_NUL = _Meaning("cannot hold the character NUL in text", "select replace(column, chr(0), '') AS column", "table")
_NULL = _Meaning("does not take NULL", "exclude such rows, as in WHERE column IS NOT NULL, or allow NULL", "table")
_UNIQUE = _Meaning("has another row with these values", "drop that constraint, or write its columns in key", "key")
_CONSTRAINT = _Meaning("has a constraint that a row breaks", "exclude such rows, or drop the constraint", "table")

_CONNECTING: tuple[tuple[str, _Meaning], ...] = (
    (r"authentication failed|no password supplied|no pg_hba.conf entry|role \".*\" (does not|is not)", _LOGIN),
    (r"database \".*\" does not exist", _NO_DATABASE),
    (r"permission denied for database", _RIGHTS),
    (r"does not support SSL", _NO_TLS),
    (r"certificate verify failed|does not match host name|root certificate|no certificate or crl found", _CERTIFICATE),
    (r"private key|could not (load|read) (client )?certificate|alert|valid client certificate", _CLIENT_CERTIFICATE),
    (r"read-only", _READ_ONLY),
    (r"too many (clients|connections)|remaining connection slots", _BUSY),
)
"""Meanings of texts with which a connection is refused; the first that matches wins."""

_TEXTS_OF_CONNECTING = ("connection failed", "failed to resolve", "connection timeout", "connection is bad")

_STATES: dict[str, _Meaning] = {
    "08": _LOST,
    "21000": _CHANGED,
    "22021": _NUL,
    "22P05": _NUL,
    "22": _VALUE,
    "23502": _NULL,
    "23505": _UNIQUE,
    "23": _CONSTRAINT,
    "25006": _READ_ONLY,
    "25P03": _LOST,
    "28": _LOGIN,
    "3D": _NO_DATABASE,
    "40": _CONFLICT,
    "42501": _RIGHTS,
    "42": _CHANGED,
    "53": _BUSY,
    "54": _VALUE,
    "55P03": _LOCKED,
    "57014": _LOCKED,
    "57": _LOST,
    "58": _LOST,
}
"""Meanings by SQLSTATE, or by its first two characters."""

_READING: dict[str, _Meaning] = {
    "22": _Meaning("cannot compute a value", "correct the query, or exclude such rows in it", "query"),
    "25006": _Meaning("does not let a source write", "write a query that only reads", "query"),
    "3F": _Meaning("has no such schema", "create it, or correct its name", "table"),
    "40": _Meaning("has ended the transaction for another one", "look for long reads of a standby server", "", True),
    "42501": _Meaning("does not let this user read that", "grant it SELECT", "user"),
    "42703": _Meaning(
        "has no such column", "correct it in schema; names are in lower case unless the table was made with quotes"
    ),
    "42P01": _Meaning("has no such table", "create it, or correct its name"),
    "42": _Meaning("does not accept the query", "correct it", "query"),
    "0A": _Meaning("does not accept the query", "correct it", "query"),
}
"""Meanings by SQLSTATE, or by its first two characters, where they differ for reading."""

_DETAIL = re.compile(r".*(?:failed: |resolve host )(?:FATAL:\s*|SSL error:\s*)?", re.DOTALL)
_PLACE = re.compile(r"COPY [^,]+, line \d+, column ([^:\n]+)")


def postgres_problem(
    error: psycopg.Error, doing: str, connection: PostgresConnection, *, reads: bool = False
) -> MillraceError:
    """Return the error as a sentence for the user; a TransientError if it may pass by itself.

    ``doing`` describes the failed operation, such as ``writing batch 7 to table public.trips``; ``reads`` is whether
    that only reads.
    """
    meaning, detail = (_meaning_of_reading if reads else _meaning)(error), _detail(error)
    told = f" ({detail})" if detail else ""
    field = f"{connection.field}.{meaning.field}" if meaning.field else connection.field
    problem = Problem(f"PostgreSQL at {connection.place} {meaning.what}{told} while {doing}", meaning.hint, field=field)
    return TransientError(problem) if meaning.passes else MillraceError(problem)


def is_conflict(error: psycopg.Error) -> bool:
    """Return whether a transaction has failed because of another one, so that it can be tried again."""
    return (error.sqlstate or "").startswith("40") or error.sqlstate == "55P03"


def patiently(action: Callable[[], T], doing: str, connection: PostgresConnection) -> T:
    """Return the result of ``action``, retried for ``PATIENCE`` seconds in all while its error is transient.

    Raises:
        MillraceError: the error as worded by ``postgres_problem``.
    """
    deadline = time.monotonic() + PATIENCE
    backoff = Backoff(_SHORTEST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            return action()
        except psycopg.Error as error:
            problem, pause = postgres_problem(error, doing, connection), backoff.next()
            if not isinstance(problem, TransientError) or time.monotonic() + pause > deadline:
                raise problem from error
        time.sleep(pause)


def _meaning_of_reading(error: psycopg.Error) -> _Meaning:
    state = error.sqlstate or ""
    return _READING.get(state) or _READING.get(state[:2]) or _meaning(error)


def _meaning(error: psycopg.Error) -> _Meaning:
    state = error.sqlstate
    if state is None:
        text = str(error)
        found = (meaning for pattern, meaning in _CONNECTING if re.search(pattern, text))
        connecting = text.startswith(
            ("connection failed", "failed to resolve", "connection timeout", "connection is bad")
        )
        return next(found, _UNREACHABLE if connecting else _LOST)
    known = _STATES.get(state) or _STATES.get(state[:2])
    return known or _Meaning(f"gave the error {state}", "see the server's log")


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
