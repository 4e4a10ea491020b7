"""Connections to a MySQL or MariaDB server, and the meaning of their errors.

A session says what it depends on, whatever the server's defaults are: strict values, UTC, limits of time. A server that
is not strict cuts texts off, and replaces values that it cannot hold, without an error.

Numbers of errors below 2000 and above 3000 are the server's, those between are the client's:
https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html, https://mariadb.com/kb/en/mariadb-error-codes/.
"""

from __future__ import annotations

import re
import socket
import ssl
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import pymysql
from pymysql.constants import CLIENT, CR, ER
from pymysql.cursors import Cursor, SSCursor

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.databases import connection as common
from millrace_jobs.databases.connection import DatabaseConnection, Meaning, system_authorities, time_limit, worded

SINK = "spec.sink.mysql"
"""Field of a query with its sink; messages name the field of the connection."""

_SESSION_SECONDS = 28_800
"""Seconds for which a session may say nothing between transactions, as long as Spark computes."""

_LOSSY = {ER.WARN_DATA_OUT_OF_RANGE, ER.WARN_DATA_TRUNCATED, ER.TRUNCATED_WRONG_VALUE, ER.DATA_TOO_LONG,
          ER.TRUNCATED_WRONG_VALUE_FOR_FIELD, ER.WARN_NULL_TO_NOTNULL}  # fmt: skip
"""Warnings that a value was changed. Even a strict server only warns where it cuts spaces off a VARCHAR."""

_MOST_WARNINGS = 65_535
"""The most warnings of a statement that a server can show."""

_READ_ONLY = 1290
_LOST = (CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST)

_PARTS = {"ca": "the certificate authority", "certificate": "the client certificate"}

_MODES = (
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)

_LOGIN = Meaning("refuses the login", "check user and password, and from which hosts the user may log in", "password")
_NO_TLS = Meaning("does not offer TLS", "leave tls out, or give the server a certificate", "tls")
_TLS_ONLY = Meaning("takes encrypted connections only", "add tls", "tls")
_NO_NUMBER = Meaning(
    "cannot hold NaN and infinity", "select nullif(column, double('NaN')) AS column, or exclude such rows", "table"
)
_TOO_LARGE = Meaning("does not take a row of that size", "raise max_allowed_packet at the server", "table")

_MEANINGS: dict[Meaning, tuple[int, ...]] = {
    common.UNREACHABLE: (CR.CR_CONN_HOST_ERROR, CR.CR_CONNECTION_ERROR),
    common.LOST: (
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        1053,
        1077,
        1152,
        1158,
        1159,
        1160,
        1161,
        1184,
        1927,
        4031,
    ),
    common.BUSY: (3, 1021, 1037, 1040, 1041, 1114, 1129, 1203, 1206, 1226),
    common.READ_ONLY: (_READ_ONLY, 1792, 1836, 3100),
    common.CONFLICT: (1020, 1213, 3101),
    common.LOCKED: (1205, 1317, 1969, 3024),
    _LOGIN: (1045, 1130, 1251, 1275, 1524, 1698, 1820, 3118, CR.CR_AUTH_PLUGIN_CANNOT_LOAD),
    common.NO_DATABASE: (1049,),
    common.RIGHTS: (1044, 1142, 1143, 1227, 1370),
    _NO_TLS: (CR.CR_SSL_CONNECTION_ERROR,),
    _TLS_ONLY: (3159,),
    common.CHANGED: (1054, 1072, 1136, 1146, 1364, 3105),
    _NO_NUMBER: (1367,),
    _TOO_LARGE: (1153,),
    common.VALUE: (1264, 1265, 1292, 1366, 1406, 1411, 3140, 3156),
    common.NULL: (1048, 1263),
    common.UNIQUE: (1062, 1586),
    common.CONSTRAINT: (1216, 1217, 1451, 1452, 1644, 3819, 4025),
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

_CONFLICTS = (*_MEANINGS[common.CONFLICT], 1205, *_MEANINGS[common.UNIQUE])
"""A second writer of a key that is new finds it taken once the first one has committed, and replaces its row then."""

_HANDSHAKE: tuple[tuple[str, Meaning], ...] = (
    (r"certificate verify failed|hostname mismatch|doesn't match", common.CERTIFICATE),
    (r"CERTIFICATE_REQUIRED|ALERT|tlsv1", common.CLIENT_CERTIFICATE),
)
"""Meanings of texts with which TLS fails."""


class MySqlSession:
    """An open connection, in autocommit mode; ``largest_packet`` is the most bytes that a statement may have.

    Args:
        connection: PyMySQL's connection, which is not connected yet.
        server: the socket.
    """

    def __init__(self, connection: pymysql.Connection[Any], server: socket.socket) -> None:
        self._connection = connection
        self.line = server.dup()
        """The socket; TLS takes the one that PyMySQL has away."""
        self.is_mariadb = False
        self.largest_packet = 0

    @property
    def broken(self) -> bool:
        """Whether the connection is lost."""
        return not self._connection.open

    def execute(self, query: str | bytes, params: Any = None, /) -> Cursor:
        """Run a statement, with values for its ``%s``.

        Raises:
            pymysql.err.Error: the server refuses it, or the connection is lost.
        """
        cursor: Cursor = self._connection.cursor()
        cursor.execute(query, params)  # type: ignore[arg-type]  # the stubs know no bytes
        return cursor

    def write(self, query: str | bytes) -> int:
        """Run a statement that writes rows, none of whose values may be changed by the server; return their number.

        Raises:
            pymysql.err.Error: as ``execute``, or a value would be changed.
        """
        cursor = self.execute(query)
        if cursor.warning_count:
            warnings = self.execute("SHOW WARNINGS").fetchall()
            for _, number, text in warnings:
                if number in _LOSSY:
                    raise pymysql.err.DataError(number, text)
            if len(warnings) < cursor.warning_count:  # as behind a proxy that asks another session
                text = f"the server shows {len(warnings)} of {cursor.warning_count} warnings"
                raise pymysql.err.DataError(ER.WARN_DATA_TRUNCATED, f"{text}, so it may have changed it")
        return cursor.rowcount

    def stream(self, query: str) -> Generator[tuple[Any, ...], None, None]:
        """Run a query, and yield its rows as they come; the session ends if they are not taken to their end.

        The protocol cannot cancel a query, so another statement of this session would have to read all rows first.
        """
        cursor = self._connection.cursor(SSCursor)
        cursor.execute(query)
        result: Any = cursor._result  # type: ignore[attr-defined]
        try:
            while (row := cursor.fetchone()) is not None:
                yield row
        finally:
            if result.unbuffered_active:
                result.unbuffered_active = False  # PyMySQL reads the rest of an active one when it closes the cursor
                self.close()
            cursor.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is done in this context, and take it back if it raises.

        The server ends the session, and so the transaction, if the client says nothing for ``IDLE_SECONDS``.
        """
        self.execute(f"SET SESSION wait_timeout = {max(1, round(common.IDLE_SECONDS))}")
        self.execute("START TRANSACTION")
        try:
            yield
        except BaseException:
            with suppress(pymysql.err.Error):
                self.execute("ROLLBACK")
                self._be_patient()
            raise
        self.execute("COMMIT")
        with suppress(pymysql.err.Error):  # what is committed is so even if the connection breaks here
            self._be_patient()

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        if self.broken:
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "the connection is closed")
        return self.line.fileno()

    def close(self) -> None:
        """End the session."""
        if not self.broken:
            with suppress(pymysql.err.Error, OSError):
                self._connection.close()
        self.line.close()

    def begin(self, *, reads: bool) -> None:
        """Connect, log in, and set what the session depends on.

        Raises:
            pymysql.err.Error: the server cannot be reached, or refuses.
        """
        self._connection.connect(self.line.dup())
        seconds = round(common.LOCK_SECONDS)
        found = self.execute("SELECT @@version, @@max_allowed_packet, @@global.read_only").fetchall()
        version, packet, read_only = found[0]
        self.is_mariadb, self.largest_packet = "mariadb" in str(version).lower(), int(packet)
        if str(read_only).upper() not in ("0", "OFF") and not reads:
            raise pymysql.err.OperationalError(_READ_ONLY, "the server is read-only")
        settings = {
            "sql_mode": f"'{_MODES}'",
            "time_zone": "'+00:00'",
            "innodb_lock_wait_timeout": seconds,
            "lock_wait_timeout": seconds,
            "wait_timeout": _SESSION_SECONDS,
            "net_write_timeout": round(common.STATEMENT_SECONDS),
            "max_sort_length": 4096,  # no key is longer: what is sorted by its beginning only is not sorted
            "sql_notes": 1,
            "max_error_count": _MOST_WARNINGS,
        }
        if self.is_mariadb:
            settings["max_statement_time"] = common.STATEMENT_SECONDS
        self.execute(f"SET SESSION {', '.join(f'{name} = {value}' for name, value in settings.items())}")
        self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def _be_patient(self) -> None:
        self.execute(f"SET SESSION wait_timeout = {_SESSION_SECONDS}")


class _NoPassword:
    """Refuses to send the password as it is, which a false server would ask for."""

    def __init__(self, connection: object) -> None:
        pass

    def authenticate(self, packet: object) -> NoReturn:
        raise pymysql.err.OperationalError(ER.ACCESS_DENIED_ERROR, "the server asks for the password in clear text")


@dataclass(frozen=True)
class MySqlConnection(DatabaseConnection):
    """Address and login of a server."""

    server: ClassVar[str] = "MySQL"

    field: str = SINK

    def open(self, *, reads: bool = False) -> MySqlSession:
        """Open a session with the first server that accepts writes, or that answers for one that only ``reads``.

        Raises:
            MillraceError: a secret cannot be read, or no certificate.
            pymysql.err.Error: no server can be reached, or all of them refuse; the first one's error.
        """
        password, tls = self.password.resolve() if self.password is not None else "", self._tls()
        first: pymysql.err.Error | None = None
        for host, port in self.hosts:
            try:
                return self._open(host, port, password, tls, reads=reads)
            except pymysql.err.Error as error:
                first = first or error
        assert first is not None
        raise first

    def settings(self, password: str, tls: ssl.SSLContext | None) -> dict[str, Any]:
        """Return PyMySQL's settings; none comes from files of options. Do not store them: they have the password."""
        more: dict[str, Any] = {} if tls is None else {"ssl": tls}
        if tls is None:  # encrypted where the server can, but anyone could be that
            more["auth_plugin_map"] = dict.fromkeys(("mysql_clear_password", "dialog"), _NoPassword)
        return more | {
            "user": self.user,
            "password": password.encode(),
            "database": self.database,
            "charset": "utf8mb4",
            "collation": "utf8mb4_bin",
            "autocommit": True,
            "client_flag": CLIENT.FOUND_ROWS,
            "program_name": "millrace",
            "defer_connect": True,
        }

    def _open(self, host: str, port: int, password: str, tls: ssl.SSLContext | None, *, reads: bool) -> MySqlSession:
        try:
            server = socket.create_connection((host, port), common.CONNECT_SECONDS)
        except OSError as error:
            raise pymysql.err.OperationalError(CR.CR_CONN_HOST_ERROR, str(error)) from error
        with server:
            _keep_alive(server)
            session = MySqlSession(pymysql.Connection(host=host, port=port, **self.settings(password, tls)), server)
        try:
            with time_limit(session.line, common.CONNECT_SECONDS):  # it is not connected yet
                session.begin(reads=reads)
        except BaseException as error:
            session.close()
            if isinstance(error, RuntimeError):  # PyMySQL lacks a library to encrypt the password with
                message = f"MySQL at {self.place} encrypts no connection, and asks for an encrypted password"
                hint = "turn TLS on at the server, or use a user with mysql_native_password"
                raise MillraceError(Problem(message, hint, field=f"{self.field}.tls")) from error
            if isinstance(error, pymysql.err.OperationalError) and error.args[0] in _LOST:
                raise pymysql.err.OperationalError(CR.CR_CONN_HOST_ERROR, "it does not answer") from error
            raise
        return session

    def _tls(self) -> ssl.SSLContext | None:
        if self.tls is None:
            return None
        given = {part: secret.resolve() for part, secret in self.tls}
        ca = given.get("ca")
        part = "ca"
        try:
            context = ssl.create_default_context(
                cafile=None if ca else system_authorities(f"{self.field}.tls"), cadata=ca
            )
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if "certificate" in given:
                part = "certificate"
                with tempfile.NamedTemporaryFile("w", prefix="millrace-tls-", encoding="utf-8") as file:
                    file.write(f"{given['certificate']}\n{given.get('key', '')}\n")
                    file.flush()
                    context.load_cert_chain(file.name)
        except (ssl.SSLError, ValueError) as error:
            message = f"{_PARTS[part]} for MySQL at {self.place} is not in PEM: {error}"
            raise MillraceError(Problem(message, "correct it", field=f"{self.field}.tls.{part}")) from error
        return context


def _keep_alive(server: socket.socket) -> None:
    """Notice within a minute that a connection is cut off silently."""
    server.settimeout(None)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
    for option, value in options.items():
        if hasattr(socket, option):
            server.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def mysql_problem(
    error: pymysql.err.Error, doing: str, connection: DatabaseConnection, *, reads: bool = False
) -> MillraceError:
    """Return the error as a sentence for the user; a TransientError if it may pass by itself.

    ``doing`` describes the failed operation, such as ``writing batch 7 to table trips``; ``reads`` is whether that only
    reads.
    """
    number, text = number_of(error), " ".join(str(error.args[-1] if error.args else error).split())
    if number in _MEANINGS[common.UNREACHABLE]:
        meaning = next((each for pattern, each in _HANDSHAKE if re.search(pattern, text)), common.UNREACHABLE)
    elif number == 0:  # such as InterfaceError: the connection is closed
        meaning = common.LOST
    else:
        known = (_READING.get(number) if reads else None) or _NUMBERS.get(number)
        meaning = known or Meaning(f"gave the error {number}", "see the server's log")
    return worded(meaning, text, doing, connection)


def number_of(error: Exception) -> int:
    """Return the number of an error; 0 if it has none."""
    found = error.args[0] if error.args else 0
    return found if isinstance(found, int) else 0


def is_conflict(error: Exception) -> bool:
    """Return whether a transaction has failed because of another one, so that it can be tried again."""
    return number_of(error) in _CONFLICTS


def is_denied(error: Exception) -> bool:
    """Return whether the user lacks a right."""
    return number_of(error) in _MEANINGS[common.RIGHTS]
