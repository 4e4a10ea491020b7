"""Partitions in transactions of their own on a real broker: whole or not at all, once, and by one driver's tasks."""

from __future__ import annotations

import json
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from lab.topics import admin, committed, open_transactions
from millrace_api.errors import MillraceError
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.kafka import partition_writer
from millrace_jobs.sinks.kafka.partition_writer import BatchForTasks, PartitionWriter
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.sink import AppendSink, TaskWrites
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import DRIVER, BatchTransactions, OvertakenError, PartitionTransactions

from .partition_streams import number_of

pytestmark = pytest.mark.kafka

NEW = LastBatch(None, None)
LONGEST = 1_048_588


class Driver:
    """A driver that has begun, with the attempts of its tasks."""

    def __init__(self, broker, topic, count=2, last=NEW, checkpoint="c1"):
        self.topic = TargetTopic(topic, Connection(broker.bootstrap), "spec.sink.kafka.topic")
        self.transactions = BatchTransactions(self.topic, "trips", checkpoint)
        self.transactions.open(last, LONGEST)
        self.name = self.transactions.fence_partitions(count, last) if count or self.transactions.partitions else ""

    def attempt(self, partition):
        """An attempt that has fenced the ones before, and knows what is there."""
        made = PartitionTransactions(self.transactions.id, partition, self.topic, "trips")
        made.take_over(self.name, LONGEST)
        return made

    def write(self, partition, number, *values):
        """Write a batch by a new attempt, if it is not there; return whether it was written."""
        attempt = self.attempt(partition)
        try:
            return not attempt.has(number) and commit(attempt, self, number, *values)
        finally:
            attempt.close()

    def write_whole(self, number, *values):
        self.transactions.write(ResultBatch(number, 1, 0), [Outgoing(None, value) for value in values])


def commit(attempt, driver, number, *values):
    attempt.write(ResultBatch(number, 1, 0), [Outgoing(None, value) for value in values], {DRIVER: driver.name})
    return True


def values(broker, topic):
    return [message.value.decode() for message in committed(broker, topic)]


def forget(broker, group):
    """Delete the offset of a group, as brokers do with those that are old."""
    client = admin(broker)
    client.delete_consumer_groups([group])[group].result(30)


def test_a_partition_s_number_is_committed_with_its_results(broker, topic):
    driver = Driver(broker, topic)
    assert driver.write(0, 0, "a")
    assert driver.write(1, 0, "b")
    assert driver.write(1, 1, "c")
    assert values(broker, topic) == ["a", "b", "c"]
    (first, *_) = committed(broker, topic)
    assert first.headers == {"millrace-query": b"trips", "millrace-batch": b"0", "millrace-epoch": b"1"}
    numbers = {group: number_of(broker, topic, f"millrace-trips-c1.{group}") for group in (0, 1)}
    assert {group: (offset, note[DRIVER]) for group, (offset, note) in numbers.items()} == {
        0: (1, driver.name),
        1: (2, driver.name),
    }


def test_an_attempt_that_begins_fences_those_before_and_skips_what_they_have_written(broker, topic):
    driver = Driver(broker, topic)
    old, new = driver.attempt(0), driver.attempt(0)
    with pytest.raises(OvertakenError):
        commit(old, driver, 0, "of the old one")
    commit(new, driver, 0, "of the new one")
    assert old.other_has_written(0, driver.name)
    assert not driver.write(0, 0, "again")
    assert values(broker, topic) == ["of the new one"]
    assert open_transactions(broker, topic) == {}


def test_two_attempts_at_once_write_one_of_both(broker, topic):
    driver = Driver(broker, topic)
    attempts = [driver.attempt(0), driver.attempt(0)]

    def try_(attempt):
        try:
            return commit(attempt, driver, 0, *(f"{number}" for number in range(2_000)))
        except OvertakenError:
            return False

    with ThreadPoolExecutor(2) as both:
        assert list(both.map(try_, attempts)) == [False, True]
    assert sorted(map(int, values(broker, topic))) == list(range(2_000))


def test_a_producer_that_is_kept_writes_the_next_batch_unless_another_worker_has_written(broker, topic, monkeypatch):
    driver, workers, producers = Driver(broker, topic), {"A": OrderedDict(), "B": OrderedDict()}, [""]
    writer, used = PartitionWriter(driver.topic, driver.transactions.id, "trips"), []
    monkeypatch.setattr(partition_writer, "require_whole", lambda: None)
    for number, worker in ((0, "A"), (3, "A"), (4, "B"), (5, "A")):  # it had no results in between
        about = BatchForTasks(number, 1, 0, len(producers), driver.name, LONGEST, producers)
        task = SimpleNamespace(partitionId=lambda: 0, getLocalProperty=lambda _, about=about: json.dumps(asdict(about)))
        monkeypatch.setattr(partition_writer, "TaskContext", SimpleNamespace(get=lambda task=task: task))
        monkeypatch.setattr(partition_writer, "_producers", workers[worker])
        producers[0] = writer._write((None, f"{number}"), iter(())).producer
        used.append(producers[0])
    assert [used.index(each) for each in used] == [0, 0, 2, 3]
    assert values(broker, topic) == ["0", "3", "4", "5"]


def test_an_attempt_for_an_old_batch_finds_that_it_is_there(broker, topic):
    driver = Driver(broker, topic)
    driver.write(0, 0, "a")
    driver.write(0, 1, "b")
    late = driver.attempt(0)  # for batch 0
    assert late.has(0)
    assert late.has(1)
    assert not late.has(2)


def test_a_driver_that_dies_between_two_partitions_leaves_one_that_the_next_one_skips(broker, topic):
    first = Driver(broker, topic)
    first.write(0, 0, "a0")
    first.write(1, 0, "b0")
    first.write(0, 1, "a1")
    second = Driver(broker, topic, last=LastBatch(1, 0))
    assert not second.write(0, 1, "a1 again")
    assert second.write(1, 1, "b1")
    assert second.write(0, 2, "a2")
    assert values(broker, topic) == ["a0", "b0", "a1", "b1", "a2"]


def test_no_task_of_a_driver_that_was_replaced_commits_or_begins(broker, topic):
    old = Driver(broker, topic)
    old.write(0, 0, "a")
    begun = old.attempt(1)
    new = Driver(broker, topic, last=LastBatch(0, None))
    with pytest.raises(OvertakenError):
        commit(begun, old, 0, "b of the old one")
    with pytest.raises(MillraceError, match="another driver has taken over writing the results of trips to topic"):
        begun.other_has_written(0, old.name)
    for partition in (0, 1):
        with pytest.raises(MillraceError, match="another driver has taken over"):
            old.attempt(partition)
    assert new.write(1, 0, "b")
    with pytest.raises(MillraceError, match="another driver has taken over"):
        old.transactions.renew()
    assert values(broker, topic) == ["a", "b"]


def test_a_task_of_an_old_driver_is_refused_also_where_the_partition_s_number_is_gone(broker, topic):
    old = Driver(broker, topic)
    new = Driver(broker, topic)
    forget(broker, f"{new.transactions.id}.0")
    with pytest.raises(MillraceError, match="another driver has taken over"):
        old.attempt(0)
    assert new.write(0, 0, "a")
    assert values(broker, topic) == ["a"]


def test_a_driver_that_dies_while_it_fences_is_followed(broker, topic, monkeypatch):
    Driver(broker, topic).write(0, 0, "a")
    with monkeypatch.context() as patch:
        patch.setattr(PartitionTransactions, "fence", dying_at(1, PartitionTransactions.fence))
        with pytest.raises(KeyboardInterrupt):
            Driver(broker, topic, last=LastBatch(0, None))
    third = Driver(broker, topic, last=LastBatch(0, None))
    assert not third.write(0, 0, "a again")
    assert third.write(1, 0, "b")
    assert values(broker, topic) == ["a", "b"]


def test_an_attempt_of_an_old_driver_that_begins_while_the_new_one_fences_is_fenced_as_well(broker, topic, monkeypatch):
    old, late = Driver(broker, topic), []
    record = PartitionTransactions.record

    def overtaken(transactions, *rest):
        if not late and transactions.id.endswith(".1"):
            late.append(old.attempt(1))
        record(transactions, *rest)

    monkeypatch.setattr(PartitionTransactions, "record", overtaken)
    new = Driver(broker, topic, last=LastBatch(0, None))
    with pytest.raises(OvertakenError):
        commit(late[0], old, 0, "of the old one")
    assert new.write(1, 0, "of the new one")
    assert values(broker, topic) == ["of the new one"]


def test_a_driver_that_hangs_while_it_fences_takes_no_partition_from_the_one_after_it(broker, topic, monkeypatch):
    record, hung, younger = BatchTransactions.record, [], []

    def hanging(transactions, number, note):
        record(transactions, number, note)
        if DRIVER in note and not hung:
            hung.append(True)
            younger.append(Driver(broker, topic))

    monkeypatch.setattr(BatchTransactions, "record", hanging)
    with pytest.raises(MillraceError, match="another driver has taken over"):
        Driver(broker, topic)
    assert younger[0].write(0, 0, "a")
    assert younger[0].write(1, 0, "b")
    assert values(broker, topic) == ["a", "b"]


def test_the_driver_writes_a_whole_batch_only_after_partitions_that_are_complete(broker, topic):
    """From batches to partitions and back; each batch is once there, by whom it was begun."""
    batches = Driver(broker, topic, count=0)
    batches.write_whole(0, "whole 0")
    batches.write_whole(1, "whole 1")
    tasks = Driver(broker, topic, last=LastBatch(1, 0))  # it died before Spark knew of batch 1
    assert not tasks.write(0, 1, "a1")
    assert not tasks.write(1, 1, "b1")
    tasks.write(0, 2, "a2")  # and it dies before that of the other one
    again = Driver(broker, topic, count=0, last=LastBatch(2, 1))
    assert again.transactions.partitions == 2, "batch 2 is to be ended by partition"
    assert not again.transactions.has(2)
    assert not again.write(0, 2, "a2 again")
    assert again.write(1, 2, "b2")
    again.write_whole(3, "whole 3")
    with pytest.raises(MillraceError, match="another driver has taken over"):
        tasks.attempt(0)
    last = Driver(broker, topic, count=0, last=LastBatch(3, 2))
    assert last.transactions.has(3)
    assert last.transactions.partitions == 0
    assert values(broker, topic) == ["whole 0", "whole 1", "a2", "b2", "whole 3"]


def test_a_batch_that_the_driver_begins_after_those_of_tasks_is_not_in_part(broker, topic):
    tasks = Driver(broker, topic)
    tasks.write(0, 0, "a0")
    tasks.write(1, 0, "b0")
    target, keys = tasks.topic, ResultKeys(("k",))
    for last in (LastBatch(0, 0), LastBatch(1, 0)):  # the second one follows the first, which died in batch 1
        sink = AppendSink(target, keys, "trips", "c1", TaskWrites(2))
        sink.prepare(last)
        assert sink._in_part is None
        sink.close()
    table = BatchTransactions(target, "trips", "c1")
    table.open(LastBatch(1, 0), LONGEST)
    assert table.partitions == 0, "a sink without partitions may write it, too"
    with pytest.raises(MillraceError, match="another driver has taken over"):
        tasks.attempt(0)


def test_the_number_of_partitions_changes_between_batches(broker, topic):
    few = Driver(broker, topic, count=2)
    few.write(0, 0, "a0")
    few.write(1, 0, "b0")
    many = Driver(broker, topic, count=4, last=LastBatch(0, 0))
    assert [many.write(number, 1, f"{number}1") for number in range(4)] == [True] * 4
    zombie = many.attempt(3)
    fewer = Driver(broker, topic, count=1, last=LastBatch(1, 1))
    with pytest.raises(OvertakenError):
        commit(zombie, many, 2, "of the one with four")
    assert fewer.write(0, 2, "a2")
    assert values(broker, topic) == ["a0", "b0", "01", "11", "21", "31", "a2"]


def test_a_driver_s_offset_that_is_lost_is_refused_only_while_a_batch_is_in_doubt(broker, topic):
    driver = Driver(broker, topic)
    driver.write(0, 0, "a")
    driver.transactions.close()
    forget(broker, driver.transactions.id)
    with pytest.raises(MillraceError, match="batch 1 was begun and not finished, and the consumer group"):
        Driver(broker, topic, last=LastBatch(1, 0))
    assert Driver(broker, topic, last=LastBatch(0, 0)).write(0, 1, "b")


def test_a_checkpoint_older_than_a_partition_is_refused_and_fences_nobody(broker, topic):
    driver = Driver(broker, topic)
    for number in range(3):
        driver.write(1, number, f"{number}")
    kept = driver.attempt(1)
    with pytest.raises(MillraceError, match="has results up to batch 2, but the checkpoint knows of no batch after 0"):
        Driver(broker, topic, last=LastBatch(0, 0))
    commit(kept, driver, 3, "3")
    assert values(broker, topic) == ["0", "1", "2", "3"]


def dying_at(partition, fence):
    def dying(transactions, *rest):
        if transactions.id.endswith(f".{partition}"):
            raise KeyboardInterrupt
        fence(transactions, *rest)

    return dying
