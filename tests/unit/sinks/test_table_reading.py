"""Reading a table to its end: every partition to its own, whatever the others do meanwhile."""

import pytest
from confluent_kafka import KafkaError, Message

from millrace_api.errors import TransientError
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.kafka.table_reading import _polled
from millrace_jobs.sinks.kafka.topic import TargetTopic

TOPIC = TargetTopic("results", Connection("kafka:9092"), "spec.sink.table.topic")
PARTITIONS = [Partition("results", 0), Partition("results", 1)]
READING = "reading the table in topic results"


def row(partition, key):
    return Message("results", partition, 0, key, b"{}")


def end(partition):
    return Message("results", partition, 0, error=KafkaError(KafkaError._PARTITION_EOF))


class Script:
    """A consumer that brings these messages, one call after the other, and then the last ones forever."""

    def __init__(self, *calls):
        self._calls = list(calls)
        self._patience = 2_000_000

    def consume(self, *_):
        self._patience -= 1
        assert self._patience, "it goes on forever"
        return self._calls.pop(0) if len(self._calls) > 1 else self._calls[0]


def read(consumer, patience=60.0):
    polls = _polled(consumer, TOPIC, PARTITIONS, {}, None, READING, 1.0, patience)
    return [message for messages in polls for message in messages]


def test_a_partition_that_ends_twice_does_not_stand_for_another():
    calls = [row(0, b"a"), end(0)], [row(0, b"b"), end(0)], [], [row(1, b"c")], [row(1, b"d"), end(1)]
    assert [message.key() for message in read(Script(*calls))] == [b"a", b"b", b"c", b"d"]


def test_a_broker_that_only_complains_is_not_waited_for_longer_than_a_silent_one():
    away = Message("results", error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    with pytest.raises(TransientError, match=r"cannot be reached .*while reading the table in topic results"):
        read(Script([end(0)], [away]), 0.05)
    with pytest.raises(TransientError, match=r"did not answer in time .*while reading the table in topic results"):
        read(Script([]), 0.05)


def test_a_reader_with_marks_stops_there_and_says_where_it_is():
    messages = [Message("results", 0, offset, b"k", b"{}") for offset in range(5)]
    last = Message("results", 1, 7, error=KafkaError(KafkaError._PARTITION_EOF))  # a transaction's marker is before it
    positions, marks = {PARTITIONS[0]: 1}, {PARTITIONS[0]: 3, PARTITIONS[1]: 7}
    polls = _polled(Script(messages[1:], [last]), TOPIC, PARTITIONS, positions, marks, READING, 1.0, 60.0)
    assert [[message.offset() for message in poll] for poll in polls] == [[1, 2], []]
    assert positions == {PARTITIONS[0]: 3, PARTITIONS[1]: 7}


def test_a_partition_that_was_read_to_its_mark_is_not_read_again():
    """Its position may have become invalid while others were read, so that Kafka's client begins again."""
    first, again = Message("results", 0, 2, b"k", b"{}"), Message("results", 0, 1, b"k", b"{}")
    other = Message("results", 1, 0, b"l", b"{}")
    positions, marks = {}, {PARTITIONS[0]: 3, PARTITIONS[1]: 1}
    polls = _polled(Script([first], [again], [other]), TOPIC, PARTITIONS, positions, marks, READING, 1.0, 60.0)
    assert [[message.offset() for message in poll] for poll in polls] == [[2], [], [0]]
    assert positions == {PARTITIONS[0]: 3, PARTITIONS[1]: 1}
