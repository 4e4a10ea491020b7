"""What slices of a topic give: exactly the committed records, whatever lies between them, the same every time."""

from __future__ import annotations

import json
import random
import time

import duckdb
import pytest
from confluent_kafka import TopicPartition

from lab import topics
from millrace_api.errors import MillraceError
from millrace_jobs.sources.kafka import range_reader

from .sources import everything, opened, remove, slices, transaction, values

pytestmark = pytest.mark.kafka


def test_every_record_comes_once_however_the_batch_is_cut(broker, make_topic, tmp_path):
    topic = make_topic(partitions=5)
    for number, count in enumerate((0, 1, 2500, 17, 400)):
        topics.fill(broker, topic, [f"{number}-{i}" for i in range(count)], partition=number)
    source = opened(broker, tmp_path, {"topic": topic})
    start = source.initial()
    end = source.latest(start, everything=False)
    expected = [value.value for value in topics.committed(broker, topic)]
    assert len(expected) == 2918
    for replicas in (1, 2, 7, 40):
        pieces = values(source, start, end, replicas)
        assert [value for piece in pieces for value in piece] == expected
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
    assert source.lag(start) == 2918
    assert source.lag(end) == 0


def test_one_consumer_reads_slice_after_slice(broker, make_topic, tmp_path):
    topic = make_topic(partitions=3)
    source = opened(broker, tmp_path, {"topic": topic})
    start = source.initial()
    used = set()
    for batch in range(4):
        for number in range(3):
            topics.fill(broker, topic, [f"{batch}-{number}-{i}" for i in range(20)], partition=number)
        end = source.latest(start, everything=False)
        expected = [f"{batch}-{number}-{i}".encode() for number in range(3) for i in range(20)]
        assert [value for piece in values(source, start, end, 2) for value in piece] == expected
        used |= {id(reading.consumer) for reading in range_reader._idle.values()}
        start = end
    assert len(used) == 1


def test_a_consumer_whose_slice_was_left_is_not_kept(broker, topic, tmp_path):
    topics.fill(broker, topic, map(str, range(50)))
    source = opened(broker, tmp_path, {"topic": topic})
    start = source.initial()
    end = source.latest(start, everything=False)
    assert len(everything(source)) == 50
    assert range_reader._idle
    reading = source.read(source.slices(start, end, 1)[0], "0-0")
    next(reading)
    reading.close()
    assert not range_reader._idle


def test_a_fat_partition_makes_no_fat_slice(broker, make_topic, tmp_path):
    topic = make_topic(partitions=8)
    topics.fill(broker, topic, map(str, range(90_000)), partition=3)
    for number in (0, 1, 2, 4, 5, 6, 7):
        topics.fill(broker, topic, map(str, range(1428)), partition=number)
    source = opened(broker, tmp_path, {"topic": topic})
    start = source.initial()
    lengths = [len(rows) for rows, _ in slices(source, start, source.latest(start, everything=True), 8)]
    assert sum(lengths) == 90_000 + 7 * 1428
    assert max(lengths) - min(lengths) <= 1


def test_small_ranges_come_in_order_whether_they_are_held_at_once_or_not(broker, make_topic, tmp_path, monkeypatch):
    topic = make_topic(partitions=30)
    for number in range(30):
        topics.fill(broker, topic, [f"{number}-{i}-{'x' * 100}" for i in range(20)], partition=number)
    expected = [value.value for value in topics.committed(broker, topic)]
    assert everything(opened(broker, tmp_path / "a", {"topic": topic})) == expected
    monkeypatch.setattr(range_reader, "BLOCK_BYTES", 5000)
    assert everything(opened(broker, tmp_path / "b", {"topic": topic})) == expected
    monkeypatch.setattr(range_reader, "BLOCK_RECORDS", 70)
    assert everything(opened(broker, tmp_path / "c", {"topic": topic}), 3) == expected


def test_committed_records_are_read_among_any_mixture_of_transactions(broker, topic, tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    expected: list[bytes] = []
    for number in range(30):
        records = [f"{number}-{i}".encode() for i in range(draw.choice([0, 1, 1, 5, 300]))]
        fate = draw.choice(["plain", "committed", "aborted", "aborted"])
        if fate == "plain":
            topics.fill(broker, topic, records)
        elif records:
            with transaction(broker, topic, commit=fate == "committed") as producer:
                for record in records:
                    producer.produce(topic, record)
        expected += records if fate != "aborted" else []
    source = opened(broker, tmp_path, {"topic": topic})
    assert everything(source) == expected
    start, batches = source.initial(), []
    while (end := source.latest(start, everything=False, most=draw.randrange(1, 200))) != start:
        for piece in values(source, start, end, draw.randrange(1, 5)):
            batches += piece
        start = end
    assert batches == expected


def test_an_open_transaction_is_waited_for(broker, topic, tmp_path):
    topics.fill(broker, topic, ["before"])
    source = opened(broker, tmp_path, {"topic": topic})
    with transaction(broker, topic) as producer:
        producer.produce(topic, "in")
        producer.flush(topics.PATIENCE)
        topics.fill(broker, topic, ["after"])
        start = source.initial()
        end = source.latest(start, everything=False)
        assert values(source, start, end) == [[b"before"]]
        assert source.latest(end, everything=False) == end
    assert values(source, end, source.latest(end, everything=False)) == [[b"in", b"after"]]


def test_compaction_leaves_gaps(broker, make_topic, tmp_path):
    topic = make_topic(
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.0001,
        max_compaction_lag_ms=100,
        delete_retention_ms=0,
        min_compaction_lag_ms=0,
    )
    for turn in range(5):
        topics.fill(broker, topic, [f"{turn}-{key}" for key in range(50)], keys=[str(key) for key in range(50)])
        time.sleep(0.3)
    deadline = time.monotonic() + topics.PATIENCE
    while len(found := topics.committed(broker, topic)) == 250:
        assert time.monotonic() < deadline, "the broker did not compact"
        topics.fill(broker, topic, ["tick"], keys=["tick"])
        time.sleep(0.5)
    source = opened(broker, tmp_path, {"topic": topic})
    start = source.initial()
    end = source.latest(start, everything=True)
    found = [message.value for message in topics.committed(broker, topic)]
    for replicas in (1, 9, 60):  # some slices have nothing left
        pieces = values(source, start, end, replicas)
        seen = [value for piece in pieces for value in piece]
        assert {value for value in seen if value != b"tick"} >= {f"4-{key}".encode() for key in range(50)}
        assert seen == found or len(seen) >= 51  # the cleaner goes on meanwhile


def test_deleted_records_are_refused_and_never_passed_over(broker, make_topic, tmp_path):
    topic = make_topic(partitions=2)
    topics.fill(broker, topic, map(str, range(100)), partition=1)
    source = opened(broker, tmp_path, {"topic": topic})
    start = source.initial()
    end = source.latest(start, everything=False, most=80)
    reached = end[topic]["1"]  # batches end where time does, so this depends on how long it took to fill the topic
    assert 30 < reached <= 80
    client = topics.admin(broker)
    for deleted in client.delete_records([TopicPartition(topic, 1, 30)]).values():
        deleted.result(topics.PATIENCE)
    with pytest.raises(MillraceError) as raised:
        values(source, start, end)
    assert f"the records of topic {topic}, partition 1, offsets 0 to {reached - 1} are gone" in str(raised.value)
    assert "there are offsets 30 to 99 now; start with another metadata.name" in str(raised.value)
    with pytest.raises(MillraceError, match=rf"topic {topic}, partition 1: the records from offset 0 on are gone"):
        source.latest(start, everything=False)
    assert len(everything(opened(broker, tmp_path / "new", {"topic": topic}))) == 70


def test_a_topic_recreated_is_refused_however_many_records_it_has(broker, make_topic, tmp_path):
    topic = make_topic()
    topics.fill(broker, topic, map(str, range(10)))
    source = opened(broker, tmp_path, {"topic": topic})
    end = source.latest(source.initial(), everything=False)
    remove(broker, topic)
    topics.make(broker, topic)
    topics.fill(broker, topic, map(str, range(50)))
    for again in (source, opened(broker, tmp_path, {"topic": topic})):
        with pytest.raises(MillraceError, match=rf"topic {topic} was deleted and created again since this query began"):
            again.latest(end, everything=False)


def test_metadata_columns_have_the_values_of_the_message(broker, make_topic, tmp_path):
    topic = make_topic(partitions=2)
    with transaction(broker, topic) as producer:
        headers = [("trace", b"\x00\x01"), ("trace", b"again"), ("none", None)]
        producer.produce(topic, '{"a": 1}', "key", 1, timestamp=1_700_000_000_123, headers=headers)
        producer.produce(topic, "bad", "b", 1)
        producer.produce(topic, '{"a": 3}', None, 1)
        producer.produce(topic, '{"a": 4}', "", 0, timestamp=5)
    spec = {"format": "json", "schema": "a INT", "corruptRecords": {"policy": "Drop"}}
    source = opened(broker, tmp_path, {"topic": topic, "includeMetadata": True}, **spec)
    start = source.initial()
    ((rows, rejected),) = slices(source, start, source.latest(start, everything=True))
    assert source.schema.names == ["a", "_key", "_headers", "_topic", "_partition", "_offset", "_timestamp"]
    assert rejected == 1
    assert [row[:2] + row[3:6] for row in rows] == [
        (4, b"", topic, 0, 0),
        (1, b"key", topic, 1, 0),
        (3, None, topic, 1, 2),
    ]
    assert [row[2] for row in rows] == [
        None,
        [{"key": "trace", "value": b"\x00\x01"}, {"key": "trace", "value": b"again"}, {"key": "none", "value": None}],
        None,
    ]
    assert [row[6].timestamp() for row in rows[:2]] == [0.005, 1_700_000_000.123]


def test_tombstones_are_rows_of_raw_topics_only(broker, topic, tmp_path):
    topics.fill(broker, topic, ['{"a": 1}', None, '{"a": 2}'], keys=["x", "x", "y"])
    assert everything(opened(broker, tmp_path / "raw", {"topic": topic})) == [b'{"a": 1}', None, b'{"a": 2}']
    source = opened(broker, tmp_path / "json", {"topic": topic}, format="json", schema="a INT")
    start = source.initial()
    assert list(slices(source, start, source.latest(start, everything=True))) == [([(1,), (2,)], 0)]


def test_sums_agree_with_duckdb(broker, make_topic, tmp_path):
    topic = make_topic(partitions=3)
    draw = random.Random(7)
    records = [{"key": f"k{draw.randrange(50)}", "n": draw.randrange(10**6)} for _ in range(20_000)]
    topics.fill(broker, topic, records)
    lines = tmp_path / "records.jsonl"
    lines.write_text("".join(json.dumps(record) + "\n" for record in records))
    source = opened(broker, tmp_path, {"topic": topic}, format="json", schema="key STRING, n BIGINT")
    start = source.initial()
    end = source.latest(start, everything=True)
    sums: dict[str, int] = {}
    for rows, _ in slices(source, start, end, 4):
        for key, n in rows:
            sums[key] = sums.get(key, 0) + n
    asked = duckdb.sql(f"SELECT key, sum(n)::BIGINT FROM read_json('{lines}') GROUP BY key").fetchall()
    assert sums == dict(asked)


def test_a_topic_of_large_records_is_read_in_bounded_blocks(broker, make_topic, tmp_path):
    topic = make_topic(max_message_bytes=2_000_000)
    topics.fill(broker, topic, [str(i).encode() * (900_000 // len(str(i))) for i in range(100)])
    source = opened(broker, tmp_path, {"topic": topic, "maxBytesPerBatch": "45m"})
    start = source.initial()
    end = source.latest(start, everything=False)
    assert 30 <= end[topic]["0"] <= 60
    (piece,) = source.slices(start, source.latest(start, everything=True) | {topic: {"0": 100}}, 1)
    sizes = [block.nbytes for block in source.read(piece, "0-0")]
    assert sum(sizes) > 80_000_000
    assert max(sizes) < range_reader.BLOCK_BYTES + 80_000_000
    assert len(sizes) >= 2
