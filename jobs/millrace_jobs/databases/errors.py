"""The wording of errors of databases: what an error means, and how long a call is retried while it may pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.databases.connection import DatabaseConnection
from millrace_support.backoff import Backoff

PATIENCE = 45.0
"""Seconds for which a call is retried while its error is transient."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0

T = TypeVar("T")


class Meaning(NamedTuple):
    """What an error means, what to do about it, the field that it is about, and whether it may pass by itself."""

    what: str
    hint: str
    field: str = ""
    passes: bool = False


UNREACHABLE = Meaning("cannot be reached", "check host, and whether the server runs", "host", True)
LOST = Meaning("has broken the connection", "check that the server and the network are healthy", "", True)
BUSY = Meaning("lacks a resource", "raise the server's limits, or free some of it", "", True)
READ_ONLY = Meaning("accepts no writes", "write the primary server in host, or all that can become it", "host", True)
CONFLICT = Meaning("has ended the transaction for another one", "look for other writers of the table", "", True)
LOCKED = Meaning("has made this session wait for too long", "look for a session that locks the table", "", True)
NO_DATABASE = Meaning("has no such database", "create it, or correct its name", "database")
RIGHTS = Meaning("does not let this user do that", "grant it the rights", "user")
CERTIFICATE = Meaning("cannot be verified", "check tls.ca, and the names in the server's certificate", "tls")
CLIENT_CERTIFICATE = Meaning("refuses the client certificate", "check tls.certificate and tls.key", "tls")
CHANGED = Meaning("has another table than at the start", "start the query again, which checks the table", "table")
VALUE = Meaning("does not take a value", "change the type of the column, or the value in the SELECT list", "table")
NULL = Meaning("does not take NULL", "exclude such rows, as in WHERE column IS NOT NULL, or allow NULL", "table")
UNIQUE = Meaning("has another row with these values", "drop that constraint, or write its columns in key", "key")
CONSTRAINT = Meaning("has a constraint that a row breaks", "exclude such rows, or drop the constraint", "table")


def worded(meaning: Meaning, detail: str, doing: str, connection: DatabaseConnection) -> MillraceError:
    """Return the error as a sentence for the user; a TransientError if it may pass by itself.

    ``detail`` is what the server says, and ``doing`` describes the failed operation, such as ``writing batch 7 to table
    public.trips``.
    """
    said = f" ({detail})" if detail else ""
    field = f"{connection.field}.{meaning.field}" if meaning.field else connection.field
    message = f"{connection.server} at {connection.place} {meaning.what}{said} while {doing}"
    problem = Problem(message, meaning.hint, field=field)
    return TransientError(problem) if meaning.passes else MillraceError(problem)


def patiently(action: Callable[[], T], worded: Callable[[Exception], MillraceError | None]) -> T:
    """Return the result of ``action``, retried for ``PATIENCE`` seconds in all while its error is transient.

    ``worded`` returns an error of the client library as a sentence for the user, and None for any other error.

    Raises:
        MillraceError: the error as a sentence.
        Exception: any other error.
    """
    deadline = time.monotonic() + PATIENCE
    backoff = Backoff(_SHORTEST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            return action()
        except Exception as error:
            problem, pause = worded(error), backoff.next()
            if problem is None:
                raise
            if not isinstance(problem, TransientError) or time.monotonic() + pause > deadline:
                raise problem from error
        time.sleep(pause)
