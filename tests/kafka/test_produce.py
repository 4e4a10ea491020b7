"""``millrace produce`` and a real broker: every message that it counts is there, once, and decodes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from lab.kafka import Broker
from lab.topics import PATIENCE, admin, committed, partitions
from millrace_jobs.sources.generated.rows import GeneratedRows, RateSource
from spark.cli import MILLRACE, Running, fields

pytestmark = pytest.mark.kafka

START = "2024-05-01T00:00:00Z"
EPOCH = 1_714_521_600_000_000


def produce(folder: Path, *arguments: str) -> dict[str, str]:
    """Run the command in a folder; the fields of its last line."""
    done = subprocess.run([MILLRACE, "produce", *arguments], cwd=folder, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done
    return fields(done.stdout.splitlines()[-1])


def named(broker: Broker, topic: str) -> list[str]:
    return ["--topic", topic, "--bootstrap-servers", broker.bootstrap]


def begun(broker: Broker, topic: str) -> bool:
    """Whether the topic has a message by now; reading it to its end would take as long as it is filled."""
    client = admin(broker)
    if topic not in client.list_topics(timeout=PATIENCE).topics:
        return False
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions(broker, topic)}
    with suppress(KafkaException):  # a topic that was just made has no leader yet
        return any(answer.result(PATIENCE).offset for answer in client.list_offsets(wanted).values())
    return False


def test_a_generator_fills_a_topic_that_it_makes(broker: Broker, topic: str, tmp_path: Path) -> None:
    rate = ("--generate", "rate", "--count", "25000", "--keys", "50", "--skew", "1", "--start", START, "--seed", "7")
    target = named(broker, f"{topic}-new")
    said = produce(tmp_path, *target, *rate, "--key", "key", "--partitions", "3")
    assert (said["finished"], said["messages"], said["delivered"]) == (f"{topic}-new", "25000", "25000")
    messages = committed(broker, f"{topic}-new")
    assert {message.partition for message in messages} == {0, 1, 2}
    assert int(said["bytes"]) == sum(len(message.value or b"") for message in messages)
    places = {(message.key, message.partition) for message in messages}
    assert len(places) == 50  # a key is in one partition

    source = RateSource("rate", 1000.0, keys=50, skew=1.0, seed=7)
    (made,) = source.read(GeneratedRows(0, 25_000, EPOCH), "")
    wanted = Counter(zip(*(made.column(name).to_pylist() for name in ("key", "value")), strict=True))
    values = [json.loads(message.value or b"") for message in messages]
    assert Counter((value["key"], value["value"]) for value in values) == wanted
    assert [message.key for message in messages] == [value["key"].encode() for value in values]
    assert min(value["timestamp"] for value in values) == "2024-05-01T00:00:00.000000Z"
    assert max(value["timestamp"] for value in values) == "2024-05-01T00:00:24.999000Z"

    again = produce(tmp_path, *target, *rate)
    assert (again["delivered"], again["partitions"]) == ("25000", "3")
    assert len(committed(broker, f"{topic}-new")) == 50_000


def test_a_file_is_sent_in_the_format_of_the_query_that_reads_it(broker: Broker, topic: str, tmp_path: Path) -> None:
    times = pa.array([EPOCH, EPOCH + 1_500_000, None], pa.timestamp("us", tz="UTC"))
    rides = pa.table({"extra": [1, 2, 3], "taxi": ["a", 'b "2"', None], "at": times, "fare": [1.5, None, 2.0]})
    pq.write_table(rides, tmp_path / "rides.parquet")
    (tmp_path / "query.yaml").write_text(f"""
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {{name: rides}}
spec:
  sources:
    rides:
      kafka: {{bootstrapServers: "{broker.bootstrap}", topic: {topic}}}
      format: csv
      timestampFormat: seconds
      schema: taxi STRING, at TIMESTAMP, fare DOUBLE
  query: {{sql: "SELECT taxi FROM rides"}}
  sink: {{console: {{}}}}
""")
    said = produce(tmp_path, "query.yaml", "--input", "rides.parquet")
    assert said["delivered"] == "3"
    assert [m.value for m in committed(broker, topic)] == [b"a,1714521600,1.5", b'"b ""2""",1714521601.5,', b",,2"]


def test_the_lines_of_a_file_are_sent_as_they_are(broker: Broker, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines.json").write_text('{"a": 1}\nnot json at all\n\n{"a":\t2}\n')
    said = produce(tmp_path, *named(broker, topic), "--input", "lines.json", "--format", "raw")
    assert said["delivered"] == "3"
    assert [m.value for m in committed(broker, topic)] == [b'{"a": 1}', b"not json at all", b'{"a":\t2}']


def test_messages_that_are_larger_than_the_topic_takes_are_an_error(
    broker: Broker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    small = make_topic(max_message_bytes=1000)
    (tmp_path / "lines.csv").write_text("short\n" + "x" * 5000 + "\n")
    arguments = [*named(broker, small), "--input", "lines.csv", "--format", "raw"]
    done = subprocess.run([MILLRACE, "produce", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    said = r"error: a message is 5000 bytes long, and the topic takes 1000 \(max.message.bytes\), "
    assert re.match(rf"{said}while sending to topic {small} \(\d messages were delivered\); ", done.stderr), done
    assert "--alter --add-config max.message.bytes=1048576" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_topic_that_takes_large_messages_gets_them(
    broker: Broker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    large = make_topic(max_message_bytes=4_000_000)
    (tmp_path / "lines.csv").write_text("x" * 3_000_000 + "\nshort\n")
    said = produce(tmp_path, *named(broker, large), "--input", "lines.csv", "--format", "raw")
    assert said["delivered"] == "2"
    assert [len(m.value or b"") for m in committed(broker, large)] == [3_000_000, 5]


@pytest.mark.parametrize("terminal", [False, True])
def test_ctrl_c_flushes_and_counts(broker: Broker, topic: str, tmp_path: Path, terminal: bool) -> None:
    command = [MILLRACE, "produce", *named(broker, topic), "--generate", "bid", "--rate", "2000"]
    with Running(command, tmp_path, terminal=terminal) as running:
        while not begun(broker, topic):
            assert running.process.poll() is None
        if terminal:
            running.press_ctrl_c()
        else:
            running.process.send_signal(signal.SIGTERM)
        ended = running.finish()
    assert ended.status == 0, ended
    there = len(committed(broker, topic))
    if terminal:
        assert f"{topic}: {there:,} messages delivered" in ended.out
        assert "stopped before the end" in ended.out
    else:
        assert (ended.summary["stopped"], ended.summary["messages"], ended.summary["delivered"]) == (
            topic,
            str(there),
            str(there),
        )


@pytest.mark.in_turn
def test_a_broker_that_goes_away_for_a_while_costs_no_message(own_broker: Broker, tmp_path: Path) -> None:
    arguments = [*named(own_broker, "bids"), "--partitions", "2", "--generate", "bid", "--rate", "3000"]
    command = [MILLRACE, "produce", *arguments, "--count", "20000"]
    with Running(command, tmp_path, terminal=False) as running:
        while not begun(own_broker, "bids"):
            assert running.process.poll() is None
        own_broker.restart()
        ended = running.finish()
    assert (ended.status, ended.err) == (0, ""), ended
    assert ended.summary["delivered"] == "20000"
    messages = committed(own_broker, "bids")
    assert len(messages) == 20_000
    assert len({message.value for message in messages}) == 20_000
