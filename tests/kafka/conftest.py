"""A real Kafka broker for the tests in this folder: one for all of them, and fresh ones for those that break theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import kafka
from lab.kafka import Broker, running_broker
from lab.starts import starts
from spark.conftest import spark, workspace  # noqa: F401

from . import topics


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that tests share: leave it running, and use topics of your own."""
    yield from _broker(tmp_path_factory.mktemp("broker"))


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A fresh broker for one test, which may do with it what it wants."""
    yield from _broker(tmp_path_factory.mktemp("broker"))


@pytest.fixture
def make_topic(broker: Broker) -> Callable[..., str]:
    """Makes topics on the shared broker, ``make_topic(partitions=1, **config)``, and returns their names."""

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
    """Say how long brokers took."""
    if kafka.seconds_to_start:
        line = starts("Kafka", kafka.seconds_to_start)
        terminalreporter.line(line)
