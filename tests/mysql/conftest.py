"""A real MariaDB server for the tests in this folder: a shared one, and fresh ones for tests that break theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from databases.refusals import results  # noqa: F401
from databases.servers import report_starts, table_maker
from lab.mariadb import MariaDbServer, running_mariadb
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
    """``make_table(columns)`` creates a table and returns its name, see ``table_maker``."""
    return table_maker(server)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long servers took to start."""
    report_starts(terminalreporter)
