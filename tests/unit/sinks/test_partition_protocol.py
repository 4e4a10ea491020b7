"""Drivers and attempts of tasks in any order, on brokers in memory: each partition of a batch is written once, by one driver.

The brokers do what Kafka promises of transactions: a producer that begins fences the ones with its id, and a transaction has
its messages and its offset, or nothing. Whatever asks them lets others act first, so attempts overlap at each request.
"""

from __future__ import annotations

import itertools
import json
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.kafka import partition_writer, transactions
from millrace_jobs.sinks.kafka.partition_writer import BatchForTasks, PartitionWriter
from millrace_jobs.sinks.kafka.producer import NumberedProducer, Outgoing
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import DRIVER, BatchTransactions, OvertakenError, PartitionTransactions

TOPIC = TargetTopic("results", Connection("kafka:9092"), "spec.sink.kafka.topic")
DEEPEST = 3
COUNT = 2


class Undisturbed:
    """The choice that nothing acts in between."""

    def draw(self, _: object) -> str:
        return "go on"


class Crash(BaseException):
    """The end of a process, at a request."""


class World:
    """Brokers, the logs of Spark, and everything that runs; ``data`` decides what acts next."""

    def __init__(self, data: st.DataObject | Undisturbed) -> None:
        self.data: Any = data
        self.epochs: dict[str, int] = defaultdict(int)
        self.numbers: dict[str, tuple[int, dict[str, object]]] = {}
        self.written: list[tuple[int, int, int]] = []
        self.contents = itertools.count()
        self.drivers: list[Driver] = []
        self.log = Log()
        self.depth = 0

    def others(self) -> None:
        """Let others act; or end the process that asks."""
        while (
            self.depth < DEEPEST
            and (what := self.data.draw(st.sampled_from(["go on", "go on", "act", "crash"]))) != "go on"
        ):
            if what == "crash" and self.depth:
                raise Crash
            self.depth += 1
            try:
                self.act()
            finally:
                self.depth -= 1

    def act(self) -> None:
        """Begin a driver, perhaps on a copy of a checkpoint, or let one that runs do something."""
        choice = self.data.draw(st.integers(-2, len(self.drivers) - 1)) if self.drivers else -1
        try:
            if choice >= 0:
                self.drivers[choice].act()
            else:
                if choice == -2:
                    self.log = self.log.copy()
                self.begin(self.data.draw(st.booleans()))
        except (MillraceError, Crash):
            pass

    def begin(self, by_partition: bool) -> Driver:
        """Begin a driver on the newest checkpoint; none begins on an older copy of it."""
        driver = Driver(self, self.log, by_partition)
        driver.prepare()
        if driver.log is not self.log:
            raise MillraceError("its checkpoint has been copied meanwhile")
        self.drivers.append(driver)
        return driver


class Log:
    """Spark's log of batches, which drivers share: which content each has that was begun, and which are committed."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}
        self.committed: int | None = None

    def copy(self) -> Log:
        made = Log()
        made.begun, made.committed = dict(self.begun), self.committed
        return made

    @property
    def last(self) -> LastBatch:
        return LastBatch(max(self.begun, default=None), self.committed)


class Driver:
    """A driver and the workers that run its tasks."""

    def __init__(self, world: World, log: Log, by_partition: bool) -> None:
        self.world, self.log, self.by_partition = world, log, by_partition
        self.last = log.last
        self.batch: int | None = None
        self.done: set[int] = set()
        self.transactions = BatchTransactions(TOPIC, "trips", "c1")
        self.workers = [OrderedDict(), OrderedDict()]
        self.producers = [""] * COUNT
        self.busy: set[int | str] = set()
        self.in_part: int | None = None
        self.name = ""

    def prepare(self) -> None:
        self.transactions.open(self.last, None)
        has_parts = self.transactions.partitions > 0
        if self.by_partition or has_parts:
            self.in_part = self.last.unfinished if has_parts else None
            self.name = self.transactions.fence_partitions(COUNT, self.last)
            if not self.by_partition and self.in_part is None:
                self.transactions.end_partitions(self.last.next)
        self.batch = self.last.unfinished

    def act(self) -> None:
        if self.batch is None:
            self.begin_batch()
        elif not (self.by_partition or self.batch == self.in_part):
            self.write_whole(self.batch)
        else:
            partition = self.world.data.draw(st.integers(0, COUNT - 1))
            batch = self.world.data.draw(st.sampled_from(sorted(self.log.begun)[-2:]))
            self.attempt(min(batch, self.batch), partition)
        if self.batch is not None and len(self.done) == COUNT:
            if self.batch == self.in_part and not self.by_partition:
                self.transactions.end_partitions(self.batch + 1)
            self.log.committed, self.batch, self.done = self.batch, None, set()

    def begin_batch(self) -> None:
        """Begin the next batch; of two drivers on one log, only one can."""
        number = 0 if self.log.committed is None else self.log.committed + 1
        if number in self.log.begun:
            raise MillraceError("another driver has begun it")
        self.log.begun[number] = next(self.world.contents)
        self.batch = number

    def write_whole(self, batch: int) -> None:
        with self.one_at_a_time("driver"):
            if not self.transactions.has(batch):
                rows = [Outgoing(str(number), str(self.log.begun[batch])) for number in range(COUNT)]
                self.transactions.write(ResultBatch(batch, 1, 0), rows)
            self.done = set(range(COUNT))

    @contextmanager
    def one_at_a_time(self, process: int | str) -> Iterator[None]:
        """Let one of the driver's processes do one thing at a time."""
        if process in self.busy:
            raise MillraceError("it is busy")
        self.busy.add(process)
        try:
            yield
        finally:
            self.busy.remove(process)

    def attempt(self, batch: int, partition: int) -> None:
        """Run an attempt of a task, of the batch or of one before, in one of two workers."""
        worker, counts = self.world.data.draw(st.integers(0, 1)), self.world.data.draw(st.booleans())
        self.run(worker, batch, partition, [self.log.begun[batch]], counts=counts)
        if batch == self.batch:
            self.done.add(partition)

    def run(self, worker: int, batch: int, partition: int, contents: list[int], *, counts: bool = True) -> int:
        """Run an attempt of a task in one of the workers; return how many rows it says there are, if that counts."""
        announced = BatchForTasks(batch, 1, 0, len(self.producers), self.name, None, self.producers)
        text = json.dumps(vars(announced))
        context = SimpleNamespace(partitionId=lambda: partition, getLocalProperty=lambda _: text)
        writer = PartitionWriter(TOPIC, self.transactions.id, "trips")
        first, *more = ((str(partition), str(content)) for content in contents)
        with (
            self.one_at_a_time(worker),
            patch.object(partition_writer, "_producers", self.workers[worker]),
            patch.object(partition_writer, "TaskContext", SimpleNamespace(get=lambda: context)),
        ):
            written = writer._write(first, iter(more))
        assert written.partition == partition
        if counts:
            self.producers[partition] = written.producer
        return written.rows


@contextmanager
def brokers_of(world: World) -> Iterator[None]:
    def take_over(self: NumberedProducer, longest: int | None) -> int | None:
        world.others()
        self.longest = longest
        world.epochs[self.id] += 1
        self._producer = world.epochs[self.id]
        world.others()
        return self._written("read_committed")

    def written(self: NumberedProducer, isolation: str) -> int | None:
        number, self.noted = world.numbers.get(self.id, (None, {}))
        return number

    def send(self: NumberedProducer, producer: int, messages, batch: ResultBatch, note) -> None:
        rows = [(batch.number, int(key), int(value)) for key, value, *_ in messages]
        world.others()
        if world.epochs[self.id] != producer:
            raise self._fenced(batch, 0.0)
        world.numbers[self.id] = batch.number + 1, dict(note)
        world.written += rows

    with (
        patch.object(NumberedProducer, "_take_over", take_over),
        patch.object(NumberedProducer, "_written", written),
        patch.object(NumberedProducer, "_send", send),
        patch.object(NumberedProducer, "close", lambda self: None),
        patch.object(transactions, "for_each", lambda each, action: [action(one) for one in each]),
        patch.object(transactions, "_WAIT_FOR_OTHER_SECONDS", -1.0),
        patch.object(partition_writer, "require_whole", lambda: None),
    ):
        yield


@settings(max_examples=100, deadline=None, phases=[Phase.generate])
@given(st.data())
def test_each_partition_of_a_batch_is_written_once_and_all_of_them_by_the_same_log(data: st.DataObject) -> None:
    world = World(data)
    with brokers_of(world):
        for _ in range(data.draw(st.integers(1, 25))):
            world.act()
        complete(world)
    places = [(batch, partition) for batch, partition, _ in world.written]
    assert len(places) == len(set(places)), "written twice"
    contents = defaultdict(set)
    for batch, _, content in world.written:
        contents[batch].add(content)
    assert all(len(each) == 1 for each in contents.values()), f"two drivers' results in one batch: {contents}"


def test_an_attempt_of_a_driver_that_was_replaced_fences_none_of_the_new_one() -> None:
    world = World(Undisturbed())
    with brokers_of(world):
        old, new = world.begin(True), world.begin(True)
        attempt = PartitionTransactions(new.transactions.id, 0, TOPIC, "trips")
        attempt.take_over(new.name, None)
        with pytest.raises(MillraceError, match="another driver has taken over"):
            PartitionTransactions(old.transactions.id, 0, TOPIC, "trips").take_over(old.name, None)
        attempt.write(ResultBatch(0, 1, 0), [Outgoing("0", "1")], {DRIVER: new.name})
    assert world.written == [(0, 0, 1)]


def test_an_attempt_that_finds_its_results_there_counts_them() -> None:
    world = World(Undisturbed())
    with brokers_of(world):
        driver = world.begin(True)
        assert driver.run(0, 0, 1, [1, 2, 3]) == 3
        assert driver.run(1, 0, 1, [1, 2, 3]) == 3
    assert world.written == [(0, 1, 1), (0, 1, 2), (0, 1, 3)]


def test_a_partition_that_returns_to_a_worker_finds_no_rival_there() -> None:
    world = World(Undisturbed())
    with (
        brokers_of(world),
        patch.object(PartitionTransactions, "other_has_written", side_effect=AssertionError("it waits")),
        patch.object(NumberedProducer, "_take_over", autospec=True, side_effect=NumberedProducer._take_over) as begun,
    ):
        driver = world.begin(True)
        before = begun.call_count
        for batch, worker in enumerate([0, 1, 0, 0]):
            assert driver.run(worker, batch, 0, [batch]) == 1
    assert [(batch, content) for batch, _, content in world.written] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert begun.call_count - before == 3, "the last batch needs no new producer"


def test_a_kept_producer_that_is_fenced_fails_without_a_wait_for_an_attempt_of_an_earlier_batch() -> None:
    world = World(Undisturbed())
    with (
        brokers_of(world),
        patch.object(PartitionTransactions, "other_has_written", side_effect=AssertionError("it waits")),
    ):
        driver = world.begin(True)
        driver.run(0, 0, 0, [0])
        driver.run(1, 0, 0, [0], counts=False)  # it comes late
        with pytest.raises(OvertakenError):
            driver.run(0, 1, 0, [1])
        assert driver.run(0, 1, 0, [1]) == 1
    assert world.written == [(0, 0, 0), (1, 0, 1)]


def complete(world: World) -> None:
    """Let a driver end what was begun, undisturbed, and compare with its log."""
    world.depth = DEEPEST
    try:
        driver = world.begin(True)
    except MillraceError:
        return  # of the checkpoint that was copied, a driver has written more since
    if driver.batch is not None:
        for partition in range(COUNT):
            driver.attempt(driver.batch, partition)
    known = {(batch, partition, content) for batch, content in world.log.begun.items() for partition in range(COUNT)}
    assert set(world.written) == known, "results are missing, or of another log"
