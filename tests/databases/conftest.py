"""Real servers of both kinds for the tests in this folder: shared ones, and fresh ones for tests that break theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark.conftest import spark, workspace  # noqa: F401

from .servers import report_starts, running, table_maker
from .sinks import Server

KINDS = [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in ("postgres", "mysql")]


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
    """``make_table(columns)`` creates a table and returns its name, see ``table_maker``."""
    return table_maker(server)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long servers took to start."""
    report_starts(terminalreporter)
