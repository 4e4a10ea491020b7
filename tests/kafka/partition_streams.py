"""Streams of updates that tasks write in transactions of their own."""

from __future__ import annotations

import json
from collections import defaultdict

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from lab.topics import admin, committed
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root

from .sink_streams import UPDATES, answer

PROGRAM = "kafka.die_between_partitions"
REPARTITIONED = 6
"""The batch in which Spark rewrites the state, which writes nothing."""


def updates(broker, topic):
    """The rows of the results in a topic by batch, each of which is there once; all of a key are in one order."""
    found, last = defaultdict(list), defaultdict(int)
    for message in committed(broker, topic):
        batch = int(message.headers["millrace-batch"])
        assert batch >= last[message.key]
        last[message.key] = batch
        found[batch].append(tuple(json.loads(message.value).values()))
    assert all(len(set(rows)) == len(rows) for rows in found.values()), "rows are there twice"
    return {batch: sorted(rows) for batch, rows in found.items()}


def expected(batches):
    """What each batch updates."""
    found = {}
    for number, batch in enumerate(batches):
        keys = {key for _, key, _ in batch}
        found[number + (number >= REPARTITIONED)] = sorted(
            row for row in answer(batches[: number + 1], UPDATES) if row[0] in keys
        )
    return found


def die_in_part(broker, topic, stream, file, whole):
    """Run a batch in a process that dies when the topic has a part of it, or of the one that was not finished before."""
    assert stream.feed_in_a_process_that_dies(*file, PROGRAM) == -9
    part = updates(broker, topic)
    there = part[max(part)]
    assert there
    assert set(there) < set(whole[max(part)])


def checkpoint_id(stream):
    checkpoint = Checkpoint(checkpoint_root(stream.query))
    checkpoint.open(stream.query)
    checkpoint.close()
    return checkpoint.id


def number_of(broker, topic, group):
    """The offset of a group, and its note."""
    place = [TopicPartition(topic, 0)]
    client = admin(broker)  # which must live until the answer is there
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, place)])
    (offset,) = asked[group].result(30).topic_partitions
    return offset.offset, json.loads(offset.metadata or "{}")
