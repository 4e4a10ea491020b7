"""The address and login of a database server, limits of time for calls, and the wording of errors, whatever the server.

Secrets stay references until a connection is opened.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.databases import DatabaseServerSpec
from millrace_jobs.pending import AwaitedServer
from millrace_jobs.secrets import Secret
from millrace_support.backoff import Backoff

CONNECT_SECONDS = 10.0
"""Seconds after which a server that does not answer is given up, for each address of a host."""

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
"""Where systems keep the certificate authorities that they trust."""

PATIENCE = 45.0
"""Seconds for which a call is retried while its error is transient."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0

T = TypeVar("T")


class Rows(Protocol):
    """The outcome of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that were written or found."""
        ...

    def fetchone(self) -> Any:
        """Return the next row as a tuple; None after the last one."""
        ...

    def fetchall(self) -> Any:
        """Return the rest of the rows."""
        ...


class HasSocket(Protocol):
    """A connection, also one that is not open yet."""

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        ...


class Session(HasSocket, Protocol):
    """An open connection, in autocommit mode."""

    @property
    def broken(self) -> bool:
        """Whether the connection is lost."""
        ...

    def execute(self, query: Any, params: Any = None, /) -> Rows:
        """Run a statement, with values for its ``%s``."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """Return a context that commits what is done in it, and takes it back if it raises."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


@dataclass(frozen=True)
class DatabaseConnection(ABC):
    """Address and login of a server; it holds only references to secrets.

    ``tls`` are ``ca``, ``certificate`` and ``key``, as far as they are given; None without TLS. ``field`` is the field
    of the query that the connection is described in.
    """

    server: ClassVar[str]
    """The kind of server, as messages name it."""

    hosts: tuple[tuple[str, int], ...]
    database: str
    user: str
    password: Secret | None = None
    tls: tuple[tuple[str, Secret], ...] | None = None
    field: str = "spec.sink"

    @classmethod
    def of(cls, spec: DatabaseServerSpec, field: str | None = None) -> Self:
        """Return the connection that a query specifies in a field, by default that of its sink; read no secret."""
        where = f"for {cls.server} at {spec.host}"
        password = None if spec.password is None else Secret.of(f"the password {where}", spec.password)
        tls = None
        if spec.tls is not None:
            found = {
                "ca": ("the certificate authority", spec.tls.ca),
                "certificate": ("the client certificate", spec.tls.certificate),
                "key": ("the key of the client certificate", spec.tls.key),
            }
            tls = tuple(
                (part, Secret.of(f"{what} {where}", value))
                for part, (what, value) in found.items()
                if value is not None
            )
        made = cls(spec.addresses, spec.database, spec.user, password, tls)
        return made if field is None else replace(made, field=field)

    @abstractmethod
    def open(self, *, reads: bool = False) -> Session:
        """Open a session with a server that accepts writes, or with any one for a session that only ``reads``.

        Raises:
            MillraceError: a secret cannot be read.
            Exception: the client library's error: no server can be reached, or all of them refuse.
        """

    @property
    def place(self) -> str:
        """The servers, host:port, as messages name them."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


@contextmanager
def time_limit(session: HasSocket, seconds: float = STATEMENT_SECONDS) -> Iterator[None]:
    """Break the connection if the block takes longer than ``seconds`` and a grace period: clients would wait forever.

    The call that waits then raises the error of a lost connection.
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


def system_authorities(field: str) -> str:
    """Return the file with the certificate authorities that this system trusts.

    Raises MillraceError if there is none.
    """
    for file in _AUTHORITIES:
        if Path(file).exists():
            return file
    message = "this system has no file of certificate authorities that it trusts"
    raise MillraceError(Problem(message, "write the server's in tls.ca", field=field))


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


def patiently(
    action: Callable[[], T],
    worded: Callable[[Exception], MillraceError | None],
    doing: str,
    connection: DatabaseConnection,
) -> T:
    """Return the result of ``action``, retried for ``PATIENCE`` seconds in all while its error is transient.

    Args:
        action: the operation.
        worded: returns an error of the client library as a sentence for the user, and None for any other error.
        doing: description of the operation, for the mark of the call.
        connection: the server, for the mark of the call.

    Raises:
        MillraceError: the error as a sentence.
        Exception: any other error.
    """
    deadline = time.monotonic() + PATIENCE
    backoff = Backoff(_SHORTEST_PAUSE, _LONGEST_PAUSE)
    with AwaitedServer(f"{connection.server} at {connection.place}", doing) as server:
        while True:
            try:
                return action()
            except Exception as error:
                problem, pause = worded(error), backoff.next()
                if problem is None:
                    raise
                if not isinstance(problem, TransientError) or time.monotonic() + pause > deadline:
                    raise problem from error
                server.failed(problem.problems[0].message, problem.problems[0].hint)
            time.sleep(pause)
