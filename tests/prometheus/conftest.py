"""A real Prometheus for the tests in this folder."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lab import prometheus as lab
from lab.prometheus import PrometheusServer, running_prometheus
from lab.starts import starts
from millrace_operator.metrics_source.client import Prometheus
from millrace_operator.metrics_source.settings import PrometheusSettings


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., PrometheusServer]]:
    """Return a function that starts a Prometheus for one test, with the arguments of ``PrometheusServer``."""
    with ExitStack() as started:

        def start_one(*targets: Any, **options: Any) -> PrometheusServer:
            folder = tmp_path / f"prometheus-{uuid.uuid4().hex[:8]}"
            folder.mkdir()
            return started.enter_context(running_prometheus(folder, *targets, **options))

        yield start_one


@pytest.fixture
def connect() -> Iterator[Callable[..., Prometheus]]:
    """Return a function that makes a client of a Prometheus, with further settings."""
    with ExitStack() as connected:

        def connect_one(server: PrometheusServer, **settings: Any) -> Prometheus:
            client = Prometheus(PrometheusSettings(server.url, **settings))
            connected.callback(client.close)
            return client

        yield connect_one


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that tests share and that scrapes nothing. Use it only for questions that need no samples."""
    with running_prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long the starts took."""
    if lab.seconds_to_start:
        line = starts("Prometheus", lab.seconds_to_start)
        terminalreporter.line(line)
