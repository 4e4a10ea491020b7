"""The meaning of MySQL's errors: which may pass by themselves, and a sentence for the user about each.

Numbers below 2000 and above 3000 are the server's, those between are the client's:
https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html, https://mariadb.com/kb/en/mariadb-error-codes/.
"""

from __future__ import annotations

import re

import pymysql
from pymysql.constants import CR

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

_LOGIN = Meaning("refuses the login", "check user and password, and from which hosts the user may log in", "password")
_NO_TLS = Meaning("does not offer TLS", "leave tls out, or give the server a certificate", "tls")
_TLS_ONLY = Meaning("takes encrypted connections only", "add tls", "tls")
_NO_NUMBER = Meaning(
    "cannot hold NaN and infinity", "select nullif(column, double('NaN')) AS column, or exclude such rows", "table"
)
_TOO_LARGE = Meaning("does not take a row of that size", "raise max_allowed_packet at the server", "table")

_MEANINGS: dict[Meaning, tuple[int, ...]] = {
    UNREACHABLE: (CR.CR_CONN_HOST_ERROR, CR.CR_CONNECTION_ERROR),
    LOST: (CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 4031),
    BUSY: (3, 1021, 1037, 1040, 1041, 1114, 1129, 1203, 1206, 1226),
    READ_ONLY: (1290, 1792, 1836, 3100),
    CONFLICT: (1020, 1213, 3101),
    LOCKED: (1205, 1317, 1969, 3024),
    _LOGIN: (1045, 1130, 1251, 1275, 1524, 1698, 1820, 3118, CR.CR_AUTH_PLUGIN_CANNOT_LOAD),
    NO_DATABASE: (1049,),
    RIGHTS: (1044, 1142, 1143, 1227, 1370),
    _NO_TLS: (CR.CR_SSL_CONNECTION_ERROR,),
    _TLS_ONLY: (3159,),
    CHANGED: (1054, 1072, 1136, 1146, 1364, 3105),
    _NO_NUMBER: (1367,),
    _TOO_LARGE: (1153,),
    VALUE: (1264, 1265, 1292, 1366, 1406, 1411, 3140, 3156),
    NULL: (1048, 1263),
    UNIQUE: (1062, 1586),
    CONSTRAINT: (1216, 1217, 1451, 1452, 1644, 3819, 4025),
}
_NUMBERS = {number: meaning for meaning, numbers in _MEANINGS.items() for number in numbers}

_READING: dict[int, Meaning] = {
    1054: Meaning("has no such column", "correct it in schema"),
    1060: Meaning("does not accept the query", "give its columns different names", "query"),
    1064: Meaning("does not accept the query", "correct it", "query"),
    1142: Meaning("does not let this user read that", "grant it SELECT", "user"),
    1143: Meaning("does not let this user read that", "grant it SELECT", "user"),
    1146: Meaning("has no such table", "create it, or correct its name"),
    1227: Meaning("does not let this user read that", "grant it the right", "user"),
    1290: Meaning("does not let a source write", "write a query that only reads", "query"),
    1365: Meaning("cannot compute a value", "correct the query, or exclude such rows in it", "query"),
    1690: Meaning("cannot compute a value", "correct the query, or exclude such rows in it", "query"),
    1792: Meaning("does not let a source write", "write a query that only reads", "query"),
}
"""Meanings of numbers where they differ for reading."""

_CONFLICTS = (*_MEANINGS[CONFLICT], 1205, *_MEANINGS[UNIQUE])
"""A second writer of a key that is new finds it taken once the first one has committed, and replaces its row then."""

_HANDSHAKE: tuple[tuple[str, Meaning], ...] = (
    (r"certificate verify failed|hostname mismatch|doesn't match", CERTIFICATE),
    (r"CERTIFICATE_REQUIRED|ALERT|tlsv1", CLIENT_CERTIFICATE),
)
"""Meanings of texts with which TLS fails."""


def mysql_problem(
    error: pymysql.err.Error, doing: str, connection: DatabaseConnection, *, reads: bool = False
) -> MillraceError:
    """Return the error as a sentence for the user; a TransientError if it may pass by itself.

    ``doing`` describes the failed operation, such as ``writing batch 7 to table trips``; ``reads`` is whether that only
    reads.
    """
    text = _text(error)
    return worded(_meaning(number_of(error), text, reads=reads), text, doing, connection)


def number_of(error: Exception) -> int:
    """Return the number of an error; 0 if it has none."""
    found = error.args[0] if error.args else 0
    return found if isinstance(found, int) else 0


def is_conflict(error: Exception) -> bool:
    """Return whether a transaction has failed because of another one, so that it can be tried again."""
    return number_of(error) in _CONFLICTS


def is_denied(error: Exception) -> bool:
    """Return whether the user lacks a right."""
    return number_of(error) in _MEANINGS[RIGHTS]


def _meaning(number: int, text: str, *, reads: bool) -> Meaning:
    if number in _MEANINGS[UNREACHABLE]:
        return next((meaning for pattern, meaning in _HANDSHAKE if re.search(pattern, text)), UNREACHABLE)
    if number == 0:  # such as InterfaceError: the connection is closed
        return LOST
    known = (_READING.get(number) if reads else None) or _NUMBERS.get(number)
    return known or Meaning(f"gave the error {number}", "see the server's log")


def _text(error: pymysql.err.Error) -> str:
    """Return what the server says, in one line."""
    return " ".join(str(error.args[-1] if error.args else error).split())
