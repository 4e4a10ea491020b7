"""Real servers of both kinds for the tests in this folder: shared ones, and fresh ones for tests that break theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from lab import mariadb, postgres
from lab.mariadb import MariaDbServer, running_mariadb
from lab.postgres import running_postgres
from lab.starts import starts
from spark.conftest import spark, workspace  # noqa: F401

from .sinks import Server

KINDS = [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in ("postgres", "mysql")]
KEY_TEXT = "varchar(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"


def running(kind: str) -> AbstractContextManager[Server]:
    return running_postgres() if kind == "postgres" else running_mariadb()


@pytest.fixture(scope="session", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server that tests share. Leave it running, and use your own tables."""
    with running(request.param) as started:
        yield started


@pytest.fixture(params=KINDS)
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A fresh server for one test, which may break it."""
    with running(request.param) as started:
        yield started


@pytest.fixture
def make_table(server: Server) -> Callable[[str], str]:
    """Return ``make_table(columns)``, which creates a table in a schema of its own and returns ``schema.table``.

    In the columns, ``{text}`` is a type of texts that can be a key.
    """

    def make(columns: str) -> str:
        schema = f"s{uuid.uuid4().hex[:12]}"
        text = KEY_TEXT if isinstance(server, MariaDbServer) else "text"
        server.execute(f"CREATE SCHEMA {schema}")
        server.execute(f"CREATE TABLE {schema}.results ({columns.format(text=text)})")
        return f"{schema}.results"

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long servers took to start."""
    for kind, seconds in (("PostgreSQL", postgres.seconds_to_start), ("MariaDB", mariadb.seconds_to_start)):
        if seconds:
            terminalreporter.line(starts(kind, seconds))
            seconds.clear()  # another folder of tests reports them, too
