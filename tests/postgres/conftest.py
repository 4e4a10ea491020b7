"""A real PostgreSQL server for the tests in this folder: a shared one, and fresh ones for tests that break theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from lab import postgres
from lab.postgres import PostgresServer, running_postgres
from lab.starts import starts
from spark.conftest import spark, workspace  # noqa: F401


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """The server that tests share. Leave it running, and use your own tables."""
    with running_postgres() as started:
        yield started


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A fresh server for one test, which may break it."""
    with running_postgres() as started:
        yield started


@pytest.fixture
def make_table(server: PostgresServer) -> Callable[[str], str]:
    """Return ``make_table(columns)``, which creates a table in a schema of its own and returns ``schema.table``."""

    def make(columns: str) -> str:
        schema = f"s{uuid.uuid4().hex[:12]}"
        server.execute(f"CREATE SCHEMA {schema}")
        server.execute(f"CREATE TABLE {schema}.results ({columns})")
        return f"{schema}.results"

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long servers took to start."""
    if postgres.seconds_to_start:
        terminalreporter.line(starts("PostgreSQL", postgres.seconds_to_start))
        postgres.seconds_to_start.clear()
