"""Replicas in processes of their own move every raw record to the routed topic exactly once, to its worker."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.kafka import Broker
from lab.processes import Process
from lab.waiting import wait_until

from . import topics
from .replica_process import message_keys

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1200)]

WORKERS = 4
TESTS = str(Path(__file__).parents[1])


class Pipes:
    """A raw topic, its routed topic, and the replicas between them."""

    def __init__(self, broker: Broker, make_topic, folder: Path, *, partitions: int = 3, **about) -> None:
        self.broker, self._folder = broker, folder
        self.raw, self.routed = make_topic(partitions), make_topic(WORKERS)
        self._about = {"servers": broker.bootstrap, "raw": self.raw, "routed": self.routed, "epoch": 7}
        self._about |= {"algorithm": "cam", "replicas": 2, "workers": WORKERS} | about
        self.running: dict[int, Process] = {}
        self.written = 0

    def start(self, index: int, **about) -> None:
        command = [sys.executable, "-m", "kafka.replica_process", json.dumps(self._about | {"index": index} | about)]
        log = self._folder / f"{index}.log"
        self.running[index] = Process(command, log, environment={"PYTHONPATH": TESTS})

    def write(self, records: int) -> None:
        """Write records ``user,n`` with n = 0, 1, ... to all partitions of the raw topic."""
        numbers = range(self.written, self.written + records)
        topics.fill(self.broker, self.raw, [f"user {n * n % 97},{n}" for n in numbers], keys=[str(n) for n in numbers])
        self.written += records

    def moved(self) -> list[topics.Message]:
        return topics.committed(self.broker, self.routed)

    def wait_until_moved(self) -> list[topics.Message]:
        """Wait until every record was moved, and check that none was moved twice."""

        def numbers() -> Counter[int]:
            return Counter(int(each.value.split(b",")[1]) for each in self.moved())

        def done() -> bool:
            for index, process in self.running.items():
                assert process.status is None, f"replica {index} has ended: {process.said}"
            return len(numbers()) >= self.written

        wait_until(done, f"{self.written} records were moved")
        assert numbers() == Counter(range(self.written))
        return self.moved()

    def end(self) -> None:
        for process in self.running.values():
            process.kill()


@pytest.fixture
def pipes(broker, make_topic, tmp_path):
    """Makes pipes, whose replicas end with the test."""
    with ExitStack() as stack:

        def make(**about) -> Pipes:
            made = Pipes(broker, make_topic, tmp_path, **about)
            stack.callback(made.end)
            return made

        yield make


def test_records_arrive_as_they_were_at_the_worker_of_their_key(pipes):
    pipe = pipes()
    pipe.start(0)
    pipe.write(3000)
    moved = pipe.wait_until_moved()
    by_user = defaultdict(set)
    for each in moved:
        assert each.key == each.value.split(b",")[1]
        assert each.headers["millrace-epoch"] == b"7"
        by_user[each.headers["millrace-batch"], each.value.split(b",")[0]].add(each.partition)
    assert {len(partitions) for partitions in by_user.values()} == {1}  # cam keeps a key on one worker in a batch
    assert {each.partition for each in moved} == set(range(WORKERS))
    assert pipe.running[0].end() == 0


def test_the_filter_and_unreadable_messages(pipes):
    pipe = pipes(where="n < 10")
    topics.fill(pipe.broker, pipe.raw, [*[f"user,{n}" for n in range(20)], "user,many", ""])
    pipe.start(0)
    expected = sorted([*[f"user,{n}".encode() for n in range(10)], b"user,many"])
    wait_until(lambda: len(pipe.moved()) >= len(expected), "the records that pass are there")
    values = [each.value for each in pipe.moved()]
    assert sorted(value for value in values if value) == expected  # what is not a record is the job's to judge


def test_nothing_is_lost_or_doubled_while_replicas_are_killed_and_come(pipes):
    chance = random.Random(5)
    pipe = pipes()
    for index in (0, 1):
        pipe.start(index)
    for victim in (0, 1, 0, 2, 1):
        pipe.write(1000)
        pipe.wait_until_moved()
        pipe.write(1000)
        time.sleep(0.6 * chance.random())  # any moment of a batch
        pipe.running[victim].kill()
        for index in (victim, 0, 2):  # the third one joins with the first kill
            if index not in pipe.running or pipe.running[index].status is not None:
                pipe.start(index)
    pipe.wait_until_moved()


def test_a_second_process_of_a_replica_takes_over(pipes):
    pipe = pipes()
    pipe.start(0)
    pipe.write(100)
    pipe.wait_until_moved()
    first = pipe.running[0]
    pipe.start(0)

    def fenced() -> bool:
        pipe.write(30)  # it learns that it is fenced when it has records to write
        return first.status is not None

    wait_until(fenced, "the first process has ended")
    assert first.status != 0
    assert "another process works as replica 0" in first.said
    pipe.wait_until_moved()


def test_messages_are_placed_in_the_order_they_came():
    keys = message_keys()
    fake = [_Text(b"a,1"), _Text(b"b,2"), _Text(b"no record"), _Text(b"a,3")]
    places, hashes = keys.of(fake)
    assert places.tolist() == [0, 1, 2, 3]
    assert hashes[0] == hashes[3] != hashes[1]


class _Text:
    """A message of which only the value counts."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value
