"""Database servers of either kind for tests, and tables in a schema of their own."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from lab import mariadb, postgres
from lab.mariadb import MariaDbServer, running_mariadb
from lab.postgres import running_postgres
from lab.starts import starts

from .sinks import Server

_KEY_TEXT = "varchar(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"


def running(kind: str) -> AbstractContextManager[Server]:
    """Run a server of a kind: ``postgres`` or ``mysql``."""
    return running_postgres() if kind == "postgres" else running_mariadb()


def table_maker(server: Server) -> Callable[[str], str]:
    """Return ``make_table(columns)``, which creates a table in a schema of its own and returns ``schema.table``.

    In the columns, ``{text}`` is a type of texts that can be a key.
    """

    def make(columns: str) -> str:
        schema = f"s{uuid.uuid4().hex[:12]}"
        text = _KEY_TEXT if isinstance(server, MariaDbServer) else "text"
        server.execute(f"CREATE SCHEMA {schema}")
        server.execute(f"CREATE TABLE {schema}.results ({columns.replace('{text}', text)})")
        return f"{schema}.results"

    return make


def report_starts(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long servers took to start."""
    for kind, seconds in (("PostgreSQL", postgres.seconds_to_start), ("MariaDB", mariadb.seconds_to_start)):
        if seconds:
            terminalreporter.line(starts(kind, seconds))
            seconds.clear()  # another folder of tests reports them, too
