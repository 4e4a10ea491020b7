"""Faults while a slice is being read: what passes is survived without a record lost or read twice."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from lab import topics
from lab.kafka import Broker, running_broker
from lab.waiting import wait_until
from millrace_api.errors import MillraceError
from millrace_jobs import pending
from millrace_jobs.kafka import cluster
from millrace_jobs.sources.kafka import range_reader

from .sources import opened, values

pytestmark = pytest.mark.kafka

RECORDS = 300_000
"""More than a consumer fetches ahead."""


T = TypeVar("T")


def meanwhile(read: Callable[[], T], *actions: Callable[[], object]) -> T:
    """What ``read`` gives, while something else is done; a broker ends with the thread that started it, so in this one."""
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(read)
        for do in actions:
            do()
        return reading.result()


def seconds(number: float) -> Callable[[], None]:
    """Let so much time pass."""
    return lambda: time.sleep(number)


def what_is_waited_for() -> list[str]:
    """What the page of a run would say half a minute from now, if nothing changed."""
    return [str(call) for call in pending.WATCH.lasting(time.monotonic() + 30)]


def named(doing: str) -> Callable[[], None]:
    """Go on once the broker is named as what is waited for."""
    sentence = re.compile(rf"Kafka at \S+ cannot be reached .*while {doing}.*, for \d+ s so far")
    return lambda: wait_until(lambda: any(map(sentence.fullmatch, what_is_waited_for())))


@pytest.fixture(scope="module")
def shaken(tmp_path_factory):
    """A broker for the tests of this file: each of them brings it back."""
    with running_broker(tmp_path_factory.mktemp("shaken")) as broker:
        yield broker


@pytest.fixture(scope="module")
def filled(shaken):
    topic = topics.make(shaken, "filled", 2)
    for number in range(2):
        topics.fill(shaken, topic, (f"{number}-{i}-{'x' * 100}" for i in range(RECORDS // 2)), partition=number)
    return topic


@pytest.fixture(autouse=True)
def small_blocks_and_time_for_a_slow_machine(monkeypatch):
    monkeypatch.setattr(range_reader, "BLOCK_RECORDS", 1000)
    for module in (range_reader, cluster):
        monkeypatch.setattr(module, "PATIENCE", 240.0)


def first_blocks(address: Broker | str, state: Path, topic: str) -> tuple[list[bytes], Iterator]:
    """What the first block of one slice of all there is holds, and the rest of the blocks."""
    source = opened(address, state, {"topic": topic})
    start = source.initial()
    (piece,) = source.slices(start, source.latest(start, everything=True), 1)
    blocks = source.read(piece, "0-0")
    return next(blocks).column(0).to_pylist(), blocks


def expected() -> list[bytes]:
    return [f"{number}-{i}-{'x' * 100}".encode() for number in range(2) for i in range(RECORDS // 2)]


def the_rest(found: list[bytes], blocks: Iterator) -> list[bytes]:
    for block in blocks:
        found += block.column(0).to_pylist()
    return found


@pytest.mark.in_turn
def test_a_broker_that_pauses_for_30_seconds_costs_no_record(shaken, filled, tmp_path):
    found, blocks = first_blocks(shaken, tmp_path, filled)
    shaken.pause()
    assert meanwhile(lambda: the_rest(found, blocks), seconds(30), shaken.resume) == expected()


def test_a_broker_that_is_killed_and_comes_back_costs_no_record(shaken, filled, tmp_path):
    found, blocks = first_blocks(shaken, tmp_path, filled)
    shaken.kill()
    of_the_topic = named(rf"reading topic {filled}, partition \d, from offset \d+ on")
    assert meanwhile(lambda: the_rest(found, blocks), of_the_topic, shaken.start) == expected()
    assert what_is_waited_for() == []


def test_a_network_that_is_cut_for_a_while_costs_no_record(shaken, filled, tmp_path):
    with shaken.proxied() as proxy:
        found, blocks = first_blocks(proxy.bootstrap, tmp_path, filled)
        proxy.cut()
        assert meanwhile(lambda: the_rest(found, blocks), seconds(5), proxy.heal) == expected()


def test_the_end_of_the_next_batch_is_asked_for_until_the_broker_is_back(shaken, tmp_path):
    topic = topics.make(shaken, "asked")
    topics.fill(shaken, topic, ["a"])
    source = opened(shaken, tmp_path, {"topic": topic})
    start = source.initial()
    shaken.kill()
    end = meanwhile(lambda: source.latest(start, everything=False), named("(asking|looking) for .*"), shaken.start)
    assert end == {topic: {"0": 1}}
    assert what_is_waited_for() == []


def test_corrupted_records_are_never_passed_over(shaken, tmp_path, monkeypatch):
    topic = topics.make(shaken, "corrupted")
    for number in range(10):
        topics.fill(shaken, topic, [f"record-{number}"])
    source = opened(shaken, tmp_path, {"topic": topic})
    start = source.initial()
    end = source.latest(start, everything=True)
    (log,) = (shaken.folder / "data" / f"{topic}-0").glob("*.log")
    good = log.read_bytes()

    def flip(byte: bytes) -> None:
        with log.open("r+b") as file:
            file.seek(good.index(b"record-4") + 7)
            file.write(byte)

    flip(b"5")
    monkeypatch.setattr(range_reader, "PATIENCE", 2.0)
    with pytest.raises(
        MillraceError, match=f"fail their checksum .* reading topic {topic}, partition 0, from offset 4"
    ):
        values(source, start, end)
    monkeypatch.setattr(range_reader, "PATIENCE", 240.0)
    found = meanwhile(lambda: values(source, start, end), seconds(1), lambda: flip(b"4"))
    assert found == [[f"record-{number}".encode() for number in range(10)]]
