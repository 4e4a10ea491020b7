"""Batches in transactions on a real broker: whole or not at all, once, and by one driver."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from lab.kafka import running_broker
from lab.topics import Message, admin, committed, fill, make, open_transactions
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.base import LastBatch, ResultBatch, WindowColumn
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.table import read_changes
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import BatchTransactions

pytestmark = pytest.mark.kafka

NEW = LastBatch(None, None)
MINUTE = 60_000_000
NOISE = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(5000))
"""A text that hardly compresses."""


def target(broker, topic):
    return TargetTopic(topic, Connection(broker.bootstrap), "spec.sink.kafka.topic")


class Writer(BatchTransactions):
    """Takes messages as pairs of key and value."""

    def write(self, batch, messages):
        super().write(batch, (Outgoing(*each) for each in messages))


def driver(broker, topic, last=NEW, checkpoint="c1"):
    """What a driver writes with, after it has taken over."""
    made = Writer(target(broker, topic), "trips", checkpoint)
    made.open(last, 1_048_588)
    return made


def batch(number, epoch=3):
    return ResultBatch(number, epoch, 0)


def values(broker, topic):
    return [message.value.decode() for message in committed(broker, topic)]


def test_a_batch_is_there_with_its_headers_and_its_number(broker, topic):
    writer = driver(broker, topic)
    writer.write(batch(0), [('{"k":1}', "a"), (None, "b")])
    writer.write(batch(1, epoch=4), [('{"k":1}', None)])
    writer.close()
    headers = {"millrace-query": b"trips", "millrace-batch": b"0", "millrace-epoch": b"3"}
    assert committed(broker, topic) == [
        Message(b'{"k":1}', b"a", headers, 0, 0),
        Message(None, b"b", headers, 0, 1),
        Message(b'{"k":1}', None, headers | {"millrace-batch": b"1", "millrace-epoch": b"4"}, 0, 3),  # 2 is a marker
    ]
    offset = group_offset(broker, topic)
    assert offset.offset == 2
    assert json.loads(offset.metadata) == {"query": "trips", "batch": 1, "epoch": 4}


def test_a_tombstone_says_how_far_event_time_was(broker, topic):
    writer = driver(broker, topic)
    writer.write(ResultBatch(0, 3, 1_700_000_000_000), [("a", "1"), ("b", None)])
    writer.close()
    found = {message.key: message.headers.get("millrace-watermark") for message in committed(broker, topic)}
    assert found == {b"a": None, b"b": b"1700000000000"}


MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
"""Hashes by which Kafka's own clients place keys, from the tests of the Java client."""


def test_keys_are_placed_as_kafka_s_own_clients_do(broker, make_topic):
    topic = make_topic(partitions=4)
    writer = driver(broker, topic)
    writer.write(batch(0), [(key, "x") for key in MURMUR2])
    writer.close()
    placed = {message.key.decode(): message.partition for message in committed(broker, topic)}
    assert placed == {key: (number & 0x7FFFFFFF) % 4 for key, number in MURMUR2.items()}


def test_a_batch_that_fails_midway_leaves_nothing(broker, topic):
    writer = driver(broker, topic)

    def failing():
        yield None, "first"
        raise RuntimeError("as the test wants it")

    with pytest.raises(RuntimeError):
        writer.write(batch(0), failing())
    assert not writer.has(0)
    writer.write(batch(0), [(None, "again")])
    writer.close()
    assert values(broker, topic) == ["again"]


def test_a_driver_that_dies_before_its_commit_has_written_nothing(broker, topic):
    first = driver(broker, topic)
    first.write(batch(0), [(None, "a")])
    taken = []

    def dying():
        yield None, "lost"
        first._producer.flush(30)
        second = driver(broker, topic, LastBatch(1, 0))  # in the midst of the first one's transaction
        taken.append(second)
        yield None, "lost too"

    with pytest.raises(MillraceError, match="another driver has taken over writing the results of trips to topic"):
        first.write(batch(1), dying())
    (second,) = taken
    assert not second.has(1)
    second.write(batch(1), [(None, "b")])
    with pytest.raises(MillraceError, match="another driver has taken over"):
        first.write(batch(1), [(None, "b of the first")])
    first.close()
    second.close()
    assert values(broker, topic) == ["a", "b"]
    assert open_transactions(broker, topic) == {}


def test_a_batch_committed_before_the_crash_is_there_already(broker, topic):
    driver(broker, topic).write(batch(0), [(None, "a")])
    again = driver(broker, topic, LastBatch(0, None))
    assert again.has(0)
    assert not again.has(1)
    again.write(batch(1), [(None, "b")])
    again.close()
    assert values(broker, topic) == ["a", "b"]


def test_a_batch_without_results_counts_too(broker, topic):
    writer = driver(broker, topic)
    writer.write(batch(0), [])
    writer.close()
    again = driver(broker, topic, LastBatch(0, None))
    assert again.has(0)
    again.close()


def test_checkpoints_have_numbers_of_their_own(broker, topic):
    one, other = driver(broker, topic, checkpoint="c1"), driver(broker, topic, checkpoint="c2")
    one.write(batch(0), [(None, "of one")])
    assert not other.has(0)
    other.write(batch(0), [(None, "of the other")])
    one.write(batch(1), [(None, "of one again")])
    one.close()
    other.close()
    assert values(broker, topic) == ["of one", "of the other", "of one again"]


def test_an_offset_that_is_lost_is_refused_only_while_a_batch_is_in_doubt(broker, topic):
    driver(broker, topic).write(batch(0), [(None, "a")])
    client = admin(broker)
    client.delete_consumer_groups(["millrace-trips-c1"])["millrace-trips-c1"].result(30)
    with pytest.raises(MillraceError, match="has lost its offset") as refused:
        driver(broker, topic, LastBatch(1, 0))
    assert "look for messages with the header millrace-batch 1" in str(refused.value)
    writer = driver(broker, topic, LastBatch(0, 0))
    writer.write(batch(1), [(None, "b")])
    writer.close()
    assert values(broker, topic) == ["a", "b"]


def test_a_topic_that_is_new_gets_the_batch_in_doubt_and_knows_of_it_at_once(broker, make_topic):
    old, new = make_topic(), make_topic()
    driver(broker, old).write(batch(0), [(None, "a")])
    driver(broker, new, LastBatch(1, 0, elsewhere=True)).close()  # it dies before the batch is written
    assert group_offset(broker, new).offset == 1
    again = driver(broker, new, LastBatch(1, 0))
    assert not again.has(1)
    again.write(batch(1), [(None, "b")])
    again.close()
    back = driver(broker, old, LastBatch(2, 1, elsewhere=True))
    back.write(batch(2), [(None, "c")])
    back.close()
    assert (values(broker, old), values(broker, new)) == (["a", "c"], ["b"])


def test_a_checkpoint_older_than_the_topic_is_refused(broker, topic):
    writer = driver(broker, topic)
    for number in range(3):
        writer.write(batch(number), [(None, str(number))])
    writer.close()
    with pytest.raises(MillraceError, match="has results up to batch 2, but the checkpoint knows of no batch after 0"):
        driver(broker, topic, LastBatch(0, 0))


@pytest.mark.in_turn
def test_a_transaction_outlasts_a_restart_of_the_broker(own_broker):
    """The coordinator of the group goes in the midst; librdkafka would wait for it forever."""
    topic = make(own_broker, "results")
    writer = driver(own_broker, topic)
    writer.write(batch(0), [(None, "a")])
    killed = threading.Event()

    def messages():
        yield None, "b"
        writer._producer.flush(30)
        own_broker.kill()
        killed.set()
        yield None, "c"

    with ThreadPoolExecutor(1) as elsewhere:
        written = elsewhere.submit(writer.write, batch(1), messages())
        assert killed.wait(60)
        own_broker.start()  # here: a process ends with the thread that has started it
        try:
            written.result()
        except TransientError:  # the machine was slow, and its patience has ended
            writer.open(LastBatch(1, 0), None)
            if not writer.has(1):
                writer.write(batch(1), [(None, "b"), (None, "c")])
    writer.close()
    assert values(own_broker, topic) == ["a", "b", "c"]


def test_more_messages_than_the_queue_holds_are_all_written(broker, topic):
    writer = driver(broker, topic)
    writer.write(batch(0), ((None, f"{number:0200}") for number in range(250_000)))
    writer.close()
    assert values(broker, topic) == [f"{number:0200}" for number in range(250_000)]


def test_a_message_that_is_too_long_is_told_with_its_size_and_the_limit(broker, make_topic):
    topic = make_topic(max_message_bytes=2000)
    longest = target(broker, topic).settings().max_message_bytes
    assert longest == 2000
    writer = Writer(target(broker, topic), "trips", "c1")
    writer.open(NEW, longest)
    with pytest.raises(MillraceError) as refused:
        writer.write(batch(0), [(None, "short"), ('{"k":"ä"}', "x" * 3000)])
    assert str(refused.value).startswith(
        f"spec.sink.kafka.topic: a result of batch 0 is 3010 bytes long, and topic {topic} accepts at most "
        "2000 (max.message.bytes); select fewer columns, or: kafka-configs --bootstrap-server "
    )
    writer.close()
    assert values(broker, topic) == []


def test_a_message_that_only_the_broker_finds_too_long_is_told(broker, make_topic):
    topic = make_topic(max_message_bytes=2000)
    writer = driver(broker, topic)  # which takes the usual limit for that of the topic
    with pytest.raises(MillraceError, match=f"a result of batch 0 is 15000 bytes long, and topic {topic} accepts"):
        writer.write(batch(0), [(None, NOISE)])
    writer.close()
    assert values(broker, topic) == []


def test_a_topic_that_is_not_there_is_refused_and_not_made(broker):
    with pytest.raises(MillraceError) as refused:
        target(broker, "nowhere").settings(create_with=" --config cleanup.policy=compact")
    assert str(refused.value) == (
        f"spec.sink.kafka.topic: Kafka at {broker.bootstrap} has no topic nowhere; create it: kafka-topics "
        f"--bootstrap-server {broker.bootstrap} --topic nowhere --create --partitions 8 --config cleanup.policy=compact"
    )
    assert "nowhere" not in admin(broker).list_topics(timeout=30).topics


def test_transactions_that_may_not_take_so_long_are_refused(broker, tmp_path):
    assert broker.bootstrap  # there is a broker to be had
    with running_broker(tmp_path, {"transaction.max.timeout.ms": "60000"}) as strict:
        topic = make(strict, "results")
        with pytest.raises(
            MillraceError, match=r"raise transaction\.max\.timeout\.ms of the brokers to 900000 or more"
        ):
            driver(strict, topic)


def test_live_rows_are_those_of_committed_messages(broker, make_topic):
    topic = make_topic(partitions=3, cleanup_policy="compact")
    writer = driver(broker, topic)
    rows = [(json.dumps({"since": f"2024-03-01T00:{m:02}:00.000000Z", "k": k}), "{}") for m in range(5) for k in "ab"]
    writer.write(batch(0), rows)
    writer.write(batch(1), [(key, None) for key, _ in rows[:4]])
    with pytest.raises(RuntimeError):
        writer.write(batch(2), failing_after((key, None) for key, _ in rows))
    ends = dict(read_changes(target(broker, topic), writer.id, WindowColumn("since", "start", 10 * MINUTE)))
    writer.close()
    start = 1_709_251_200_000_000
    assert ends == {
        key: None if number < 4 else start + (10 + number // 2) * MINUTE for number, (key, _) in enumerate(rows)
    }


def test_messages_that_are_no_rows_of_the_table_are_told(broker, topic):
    fill(broker, topic, ["anything"], keys=["no JSON"])
    with pytest.raises(MillraceError, match=r"no row of this table: partition 0, offset 0; give the table a topic"):
        list(read_changes(target(broker, topic), "group", WindowColumn("since", "start", MINUTE)))


def failing_after(messages):
    yield from messages
    raise RuntimeError("as the test wants it")


def group_offset(broker, topic):
    client = admin(broker)
    place = [TopicPartition(topic, 0)]
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions("millrace-trips-c1", place)])
    (offset,) = asked["millrace-trips-c1"].result(30).topic_partitions
    assert (offset.topic, offset.partition) == (topic, 0)
    return offset


def test_a_batch_goes_to_two_topics_or_to_none(broker, topic, make_topic):
    other = make_topic(max_message_bytes=2_000)
    history = TargetTopic(other, Connection(broker.bootstrap), "spec.sink.table.history.topic")
    writer = BatchTransactions(target(broker, topic), "trips", "c1", history)
    writer.open(NEW, 1_048_588)
    writer.write(batch(0), [Outgoing("a", "old", [("from", b"1")], other), Outgoing("a", "new")], {"since": 7})
    with pytest.raises(MillraceError) as refused:
        writer.write(batch(1), [Outgoing("a", "newer"), Outgoing("a", NOISE, (), other)])
    (problem,) = refused.value.problems
    assert problem.field == "spec.sink.table.history.topic"
    assert f"topic {other} accepts less" in problem.message
    assert [values(broker, each) for each in (topic, other)] == [["new"], ["old"]]
    (message,) = committed(broker, other)
    assert (message.headers["from"], message.headers["millrace-batch"]) == (b"1", b"0")
    again = BatchTransactions(target(broker, topic), "trips", "c1", history)
    again.open(LastBatch(0, 0), 1_048_588)
    assert again.noted["since"] == 7
    writer.close()
    again.close()
