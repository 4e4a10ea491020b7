"""A real Kafka broker for the tests in this folder: a shared one, and fresh ones for tests that break theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import kafka, topics
from lab.kafka import Broker, running_broker
from lab.starts import starts
from spark.conftest import spark, workspace  # noqa: F401


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that tests share. Leave it running, and use your own topics."""
    yield from _broker(tmp_path_factory.mktemp("broker"))


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A fresh broker for one test, which may break it."""
    yield from _broker(tmp_path_factory.mktemp("broker"))


@pytest.fixture
def make_topic(broker: Broker) -> Callable[..., str]:
    """Return ``make_topic(partitions=1, **config)``, which creates a topic on the shared broker and returns the name."""

    def make(partitions: int = 1, **config: Any) -> str:
        return topics.make(broker, f"topic-{uuid.uuid4().hex[:12]}", partitions, **config)

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A fresh topic with one partition on the shared broker."""
    return make_topic()


def _broker(folder: Path) -> Iterator[Broker]:
    with running_broker(folder) as started:
        yield started


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long brokers took to start."""
    if kafka.seconds_to_start:
        line = starts("Kafka", kafka.seconds_to_start)
        terminalreporter.line(line)
