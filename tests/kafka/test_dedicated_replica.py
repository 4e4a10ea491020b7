"""Replicas as processes, from a raw topic to the routed one: every record in exactly one pack, whatever ends them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException

from lab import topics
from lab.kafka import Broker
from lab.waiting import wait_until
from millrace_api.model.deployment import CPU_LIMIT_VARIABLE
from millrace_jobs.dedicated.generation import MOST_AHEAD
from millrace_jobs.dedicated.raw_reader import RawReader, ReassignedError
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.plan.control import Pin

from .faults.feed import Feed
from .replicas import EVERYTHING, Placement, epochs, record
from .sources import transaction

pytestmark = [pytest.mark.kafka, pytest.mark.in_turn, pytest.mark.timeout(600)]

NAME = "millrace.default.placed"


def pin(epoch: int = 1, algorithm: str = "cam", replicas: int = 2, workers: int = 3) -> Pin:
    return Pin(epoch, algorithm, replicas, workers, placement="Dedicated")


@pytest.fixture
def raw(own_broker: Broker) -> str:
    """A raw topic with four partitions on a broker of the test's own."""
    return topics.make(own_broker, "raw", 4)


@pytest.fixture
def placement(own_broker: Broker, raw: str, tmp_path: Path) -> Iterator[Placement]:
    """A query's replicas, of which none runs yet."""
    with Placement(own_broker, raw, tmp_path) as made:
        yield made


@pytest.fixture
def feed(own_broker: Broker, raw: str) -> Iterator[Feed]:
    """A stream to the raw topic, some of it in transactions that commit or abort; not started."""
    made = Feed(own_broker, raw, random.randrange(1 << 32), 4)
    yield made
    made.stop()


def test_every_record_is_in_one_pack_under_kills(placement: Placement, feed: Feed) -> None:
    chance = random.Random(11)
    placement.begin(pin())
    placement.start(0, 1)
    feed.start()
    placed = placement.wait_for(50)
    for victims in [(0,), (1,), (0, 1), (0,)]:
        time.sleep(chance.uniform(0, 2))  # at any moment of an interval
        placement.kill(*victims)
        placement.start(*victims)
        placed = placement.wait_for(sum(each.read for each in placed) + 50)
    placement.wait_for(feed.finish())
    manifests = placement.check()
    assert {each.replica for each in manifests} == {0, 1}


def test_replicas_come_and_go_and_the_workers_grow(placement: Placement, feed: Feed) -> None:
    placement.begin(pin(1, replicas=1))
    placement.start(0)
    feed.start()
    placement.wait_for(50)
    for epoch, replicas, workers in [(2, 4, 3), (3, 4, 6), (4, 2, 2), (5, 3, 5)]:
        placement.instruct(pin=pin(epoch, "dalton" if epoch > 3 else "cam", replicas, workers))
        for index in range(replicas):
            if index not in placement.processes:
                placement.start(index)
        for index in [index for index in placement.processes if index >= replicas]:
            assert placement.terminate(index) == 0, placement.report()
        placement.wait_for_epoch(epoch, replicas)
    placement.wait_for(feed.finish())
    manifests = placement.check()
    for replica in range(4):
        own = epochs([each for each in manifests if each.replica == replica])
        assert own == sorted(own)


def test_a_second_process_with_an_index_fences_the_first(placement: Placement, feed: Feed) -> None:
    placement.begin(pin(replicas=1))
    placement.start(0)
    feed.start()
    placed = placement.wait_for(50)
    first = placement.processes[0]
    placement.start(0)
    assert first.wait(120.0) == 1
    (said,) = [line for line in first.said.splitlines() if line.startswith("error: ")]
    assert "another process works as replica 0" in said
    assert "Traceback" not in first.said
    placement.wait_for(sum(each.read for each in placed) + 50)
    placement.wait_for(feed.finish())
    placement.check()


def test_a_replica_that_hung_writes_nothing_after_it_was_replaced(placement: Placement, feed: Feed) -> None:
    placement.begin(pin())
    placement.start(0, 1)
    feed.start()
    placed = placement.wait_for(50)
    placement.processes[0].pause()  # longer than the session, so that the other one gets its partitions
    placed = placement.wait_for(sum(each.read for each in placed) + 300)
    placement.processes[0].resume()
    until = placed[-1].batch
    wait_until(
        lambda: {0, 1} == {each.replica for each in placement.manifests() if each.batch > until},
        lambda: f"both go on: {placement.report()}",
        240.0,
    )
    placement.wait_for(feed.finish())
    placement.check()


def test_records_are_placed_once_although_the_broker_pauses(placement: Placement, feed: Feed) -> None:
    placement.begin(pin())
    placement.start(0, 1)
    feed.start()
    placed = placement.wait_for(50)
    placement.broker.pause()
    time.sleep(30)
    placement.broker.resume()
    placement.wait_for(sum(each.read for each in placed) + 100)
    placement.wait_for(feed.finish())
    placement.check()


@pytest.mark.parametrize(
    ("request_", "delivered"),
    [("EndTxn", True), ("EndTxn", False), ("TxnOffsetCommit", True), ("Produce", True), ("AddOffsetsToTxn", False)],
)
def test_records_are_placed_once_although_the_network_is_cut_in_a_transaction(
    own_broker: Broker, raw: str, feed: Feed, tmp_path: Path, request_: str, delivered: bool
) -> None:
    with own_broker.proxied() as proxy, Placement(own_broker, raw, tmp_path, bootstrap=proxy.bootstrap) as placement:
        placement.begin(pin())
        placement.start(0, 1)
        feed.start()
        placed = placement.wait_for(50)
        proxy.cut_at(request_, delivered=delivered)
        assert proxy.wait_for_moment(120.0), placement.report()
        time.sleep(12)  # longer than one call of a transaction waits
        proxy.heal()
        placement.wait_for(sum(each.read for each in placed) + 100)
        placement.wait_for(feed.finish())
        placement.check()


def test_a_stranger_in_the_group_and_new_partitions_lose_no_record(placement: Placement, feed: Feed) -> None:
    placement.begin(pin())
    placement.start(0, 1)
    feed.start()
    placed = placement.wait_for(50)
    topics.add_partitions(placement.broker, placement.topic, 6)
    feed.partitions = 6
    settings = {"bootstrap.servers": placement.broker.bootstrap, "group.id": f"{NAME}.0123456789ab", "log_level": 2}
    assert placement.work is not None
    with Consumer(settings | {"partition.assignment.strategy": "range", "enable.auto.commit": False}) as stranger:
        stranger.subscribe([placement.topic])
        wait_until(lambda: stranger.poll(0.1) is not None or stranger.assignment(), "the stranger has joined", 120.0)
    found = Partition(placement.topic, 5)
    wait_until(lambda: any(found in each.raw for each in placement.manifests()), placement.report, 240.0)
    placement.wait_for(max(feed.finish(), sum(each.read for each in placed)))
    placement.check()


def test_aborted_records_and_those_beyond_the_end_are_not_placed(placement: Placement) -> None:
    for partition in range(3):
        topics.fill(placement.broker, placement.topic, [record(100 * partition + i) for i in range(70)], partition)
    with transaction(placement.broker, placement.topic, commit=False) as producer:
        for number in range(10):
            producer.produce(placement.topic, json.dumps(record(1000 + number)), partition=number % 4)
    ends = {Partition(placement.topic, 0): 50, Partition(placement.topic, 1): 74, Partition(placement.topic, 3): 3}
    placement.begin(pin(), ends=ends)
    placement.start(0, 1)
    reached = {**ends, Partition(placement.topic, 2): 0}

    def positions() -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for each in placement.manifests():
            found |= each.raw
        return found

    wait_until(lambda: positions() == reached, lambda: f"{positions()}: {placement.report()}", 240.0)
    topics.fill(placement.broker, placement.topic, [record(2000)], 0)
    time.sleep(2)
    placement.check()
    assert positions() == reached


def test_unreadable_messages_end_the_query(placement: Placement) -> None:
    topics.fill(placement.broker, placement.topic, [record(1), record(2), '{"id": "\\u00e9'], 1)
    placement.begin(pin())
    placement.start(0, 1)
    failure, *_ = wait_until(
        lambda: [each.failure for each in placement.manifests() if each.failure], placement.report, 240.0
    )
    assert failure[0].startswith("source events cannot decode ")
    assert "(topic raw, partition 1, offset 2)" in failure[0]
    assert "corruptRecords.policy" in failure[1]
    assert not topics.committed(placement.broker, placement.topics.routed)
    assert all(process.status is None for process in placement.processes.values()), placement.report()


@pytest.mark.parametrize("policy", ["Drop", "DeadLetter"])
def test_unreadable_messages_are_left_out_by_policy(own_broker: Broker, raw: str, tmp_path: Path, policy: str) -> None:
    letters = {"topic": topics.make(own_broker, "letters", 1)} if policy == "DeadLetter" else {}
    for partition in range(4):
        values = [record(10 * partition), "no JSON", record(10 * partition + 1), None]
        topics.fill(own_broker, raw, values, partition)
    with Placement(own_broker, raw, tmp_path, corruptRecords={"policy": policy, **letters}) as placement:
        placement.begin(pin())
        placement.start(0, 1)
        manifests = placement.wait_for(12)
        good = {
            partition: {offset: record(10 * partition.number + offset // 2) for offset in (0, 2)}
            for partition in (Partition(raw, number) for number in range(4))
        }
        placement.check(good)
        assert sum(each.rejected for each in manifests) == 4, "a message without a value is no record"
    if policy == "DeadLetter":
        found = {
            (each.headers["millrace-partition"], each.headers["millrace-offset"])
            for each in topics.committed(own_broker, "letters")
        }
        assert found == {(str(n).encode(), b"1") for n in range(4)}


def test_replicas_wait_for_the_job_and_go_on(placement: Placement) -> None:
    """With a replica paused by back pressure, the partitions are assigned again, and nothing is skipped."""
    rows = 3 * MOST_AHEAD
    for partition in range(4):
        topics.fill(
            placement.broker, placement.topic, (record(rows * partition + i) for i in range(rows // 4)), partition
        )
    placement.begin(pin(replicas=1))
    placement.start(0)
    placed = placement.wait_for(MOST_AHEAD)
    time.sleep(5)
    waiting = placement.manifests()
    ahead = sum(each.read for each in waiting)
    assert MOST_AHEAD < ahead < rows, "it has waited"
    assert placed[-1].batch <= waiting[-1].batch
    placement.start(1)  # which gets half of the partitions, and reads on
    wait_until(lambda: {each.replica for each in placement.manifests()} == {0, 1}, placement.report, 240.0)
    assert placement.terminate(1) == 0, placement.report()

    def consumed() -> bool:
        messages = topics.committed(placement.broker, placement.topics.manifests)
        placement.instruct(consumed=messages[-1].offset + 1)
        return sum(each.read for each in placement.manifests()) >= rows

    wait_until(consumed, placement.report, 400.0)
    placement.check()


def test_replicas_that_were_released_go_on_in_the_same_generation(placement: Placement) -> None:
    topics.fill(placement.broker, placement.topic, [record(number) for number in range(100)])
    placement.begin(pin(replicas=1))
    placement.start(0)
    placement.wait_for(100)
    generation = placement.instructions.generation
    placement.instruct(generation="")
    wait_until(lambda: not placement.is_ready(0), "the replica rests")
    topics.fill(placement.broker, placement.topic, [record(number) for number in range(100, 200)])
    placement.instruct(generation=generation)
    placement.wait_for(200)
    placement.check()


def test_a_partition_that_was_paused_is_read_when_it_is_assigned_again(placement: Placement) -> None:
    """As of a replica that waits for the job when another one comes, and need not wait when its partitions are back."""
    for partition in range(4):
        topics.fill(placement.broker, placement.topic, [record(number) for number in range(20)], partition)
    placement.begin(pin())
    with ExitStack() as stack:
        first = Member(placement)
        stack.callback(first.reader.close)
        wait_until(first.read, "the first one reads")
        first.reader.wait(0.1)
        second = Member(placement)
        stack.callback(second.reader.close)
        wait_until(first.is_reassigned, "the first one loses its partitions")
        first.reader.resume()  # before it has got some again
        wait_until(lambda: [second.read(), first.read()][1], "the first one reads again", 90.0)


class Member:
    """A reader of the raw topic that is used as a replica uses it."""

    def __init__(self, placement: Placement) -> None:
        assert placement.work is not None
        self.reader = RawReader(placement.source, placement.topics, placement.work, lambda _: None)
        self._astray = False

    def read(self) -> int:
        """Return how many records it takes now; none if its partitions change, as then they come again."""
        try:
            if self._astray:
                self.reader.rewind()
            self._astray = False
            return len(self.reader.take(1000, 0.2))
        except (ReassignedError, KafkaException):
            self._astray = True
            return 0

    def is_reassigned(self) -> bool:
        """Whether its partitions change while it waits."""
        try:
            self.reader.wait(0.2)
        except ReassignedError:
            self._astray = True
        return self._astray


def test_a_manifest_has_at_most_the_records_that_the_job_allows(placement: Placement) -> None:
    topics.fill(placement.broker, placement.topic, [record(i) for i in range(1500)], 0)
    placement.begin(pin(replicas=1))
    placement.instruct(most=200)
    placement.start(0)
    placed = placement.wait_for(1500)
    assert {each.read for each in placed if each.read} <= set(range(201))
    assert placed[-1].heartbeat * placement.interval < time.time(), "no interval has ended before its end"
    placement.instruct(most=EVERYTHING)
    topics.fill(placement.broker, placement.topic, [record(i) for i in range(1500, 20_000)], 0)
    placement.wait_for(20_000)
    assert max(each.read for each in placement.check()) > 200


def test_a_replica_with_little_cpu_is_busy_while_it_waits(placement: Placement) -> None:
    """Its processor time over a limit of a thousandth of a core is more than the time that has passed."""
    topics.fill(placement.broker, placement.topic, [record(i) for i in range(20_000)], 0)
    placement.begin(pin(replicas=1))
    began = time.monotonic()
    placement.start(0, environment={CPU_LIMIT_VARIABLE: "1"})
    placement.wait_for(20_000)
    assert placement.metric(0, "busy_seconds_total") > time.monotonic() - began


def test_keys_of_an_interval_are_on_one_worker(placement: Placement, feed: Feed) -> None:
    """One replica with ``hash``: no key is split, in no interval."""
    placement.begin(pin(algorithm="hash", replicas=1))
    placement.start(0)
    feed.start()
    placement.wait_for(300)
    feed.finish()
    for manifest in placement.check():
        assert all(len(workers) == 1 for workers in placement.keys_of(manifest).values())


def test_sigterm_ends_a_replica_also_without_a_broker(placement: Placement, feed: Feed) -> None:
    placement.begin(pin())
    placement.start(0, 1)
    feed.start()
    placement.wait_for(50)
    assert placement.terminate(1) == 0
    placed = placement.manifests()
    placement.wait_for(sum(each.read for each in placed) + 100)
    placement.wait_for(feed.finish())
    placement.check()
    placement.broker.pause()
    time.sleep(2)
    assert placement.terminate(0) in (0, 1)
    placement.broker.resume()
