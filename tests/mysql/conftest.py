"""A real MariaDB server for the tests in this folder: a shared one, and fresh ones for tests that break theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from lab import mariadb
from lab.mariadb import MariaDbServer, running_mariadb
from lab.starts import starts
from spark.conftest import spark, workspace  # noqa: F401


@pytest.fixture(scope="session")
def server() -> Iterator[MariaDbServer]:
    """The server that tests share. Leave it running, and use your own tables."""
    with running_mariadb() as started:
        yield started


@pytest.fixture
def own_server() -> Iterator[MariaDbServer]:
    """A fresh server for one test, which may break it."""
    with running_mariadb() as started:
        yield started


@pytest.fixture
def make_table(server: MariaDbServer) -> Callable[[str], str]:
    """Return ``make_table(columns)``, which creates a table in a database of its own and returns ``database.table``.

    In the columns, ``{text}`` is a type of texts that can be a key.
    """

    def make(columns: str) -> str:
        database = f"s{uuid.uuid4().hex[:12]}"
        server.execute(f"CREATE DATABASE {database}")
        text = "varchar(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
        server.execute(f"CREATE TABLE {database}.results ({columns.replace('{text}', text)})")
        return f"{database}.results"

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long servers took to start."""
    if mariadb.seconds_to_start:
        terminalreporter.line(starts("MariaDB", mariadb.seconds_to_start))
        mariadb.seconds_to_start.clear()
