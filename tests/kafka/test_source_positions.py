"""Where a Kafka source starts and stops, and what it finds on the way."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from lab import topics
from millrace_api.errors import MillraceError

from .late_queries import document
from .live import LiveQuery
from .sources import everything, opened, remove, transaction, values

pytestmark = pytest.mark.kafka


def at(millis: int) -> str:
    """A time as a spec writes it."""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run(source, replicas=2):
    """All values, batch by batch until nothing comes, and where that was."""
    position, found = source.initial(), []
    while (end := source.latest(position, everything=False)) != position:
        found += [value for piece in values(source, position, end, replicas) for value in piece]
        position = end
    return found, position


def timed(broker, topic, millis, partition=0):
    """Write records ``at-N`` with the timestamps N."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for time_ in millis:
        producer.produce(topic, f"at-{time_}", partition=partition, timestamp=time_)
    assert producer.flush(topics.PATIENCE) == 0


def test_a_new_query_starts_at_the_earliest_record_or_behind_the_latest(broker, topic, tmp_path):
    topics.fill(broker, topic, ["old"])
    earliest = opened(broker, tmp_path / "earliest", {"topic": topic})
    latest = opened(broker, tmp_path / "latest", {"topic": topic, "startingOffsets": "Latest"})
    assert latest.initial() == {topic: {"0": 1}}
    topics.fill(broker, topic, ["new"])
    assert run(earliest)[0] == [b"old", b"new"]
    assert run(latest)[0] == [b"new"]
    again = opened(broker, tmp_path / "latest", {"topic": topic, "startingOffsets": "Latest"})
    assert again.initial() == {topic: {"0": 1}}  # a query that ended before its first batch did


def test_a_source_reads_from_a_starting_to_an_ending_timestamp(broker, make_topic, tmp_path):
    topic = make_topic(partitions=3)
    timed(broker, topic, range(1000, 2000, 100), 0)
    timed(broker, topic, [50, 60], 1)
    both = {"startingTimestamp": at(1250), "endingTimestamp": at(1700)}
    source = opened(broker, tmp_path, {"topic": topic, **both})
    found, position = run(source)
    assert found == [f"at-{t}".encode() for t in (1300, 1400, 1500, 1600)]
    assert position == {topic: {"0": 7, "1": 2, "2": 0}}
    assert source.exhausted(position)
    assert source.lag(position) == 0
    assert source.longest_lags(position) == {}
    assert source.longest_lags({topic: {"0": 4, "1": 2, "2": 0}}) == {f"{topic}-0": 3}
    timed(broker, topic, [1350, 99], 0)
    assert source.latest(position, everything=False) == position


def test_a_source_stops_at_a_time_that_is_still_to_come(broker, topic, tmp_path):
    now = round(time.time() * 1000)
    source = opened(broker, tmp_path, {"topic": topic, "endingTimestamp": at(now + 3000)})
    timed(broker, topic, [now, now + 60_000, now + 1])
    found, position = run(source)
    assert found == [f"at-{now}".encode()]  # what is not before the time ends the partition, early as it came
    deadline = time.monotonic() + topics.PATIENCE
    while not source.exhausted(position):
        assert source.latest(position, everything=False) == position
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_ending_at_latest_is_the_end_as_of_the_first_start(broker, make_topic, tmp_path):
    topic = make_topic(partitions=2)
    topics.fill(broker, topic, ["a", "b"], partition=0)
    with transaction(broker, topic) as producer:
        producer.produce(topic, "c", partition=1)
    spec = {"topic": topic, "endingOffsets": "Latest"}
    source = opened(broker, tmp_path, spec)
    start = source.initial()
    assert not source.exhausted(start)
    topics.fill(broker, topic, ["later"], partition=0)
    topics.add_partitions(broker, topic, 3)
    topics.fill(broker, topic, ["later"], partition=2)
    again = opened(broker, tmp_path, spec)
    found, position = run(again)
    assert found == [b"a", b"b", b"c"]
    assert source.exhausted(position)
    assert opened(broker, tmp_path, spec).exhausted(position)


def test_a_source_reads_explicit_partitions_and_offsets_only(broker, make_topic, tmp_path):
    one, other = make_topic(partitions=3), make_topic(partitions=2)
    for number in range(3):
        topics.fill(broker, one, [f"{number}-{i}" for i in range(10)], partition=number)
    topics.fill(broker, other, ["x", "y"], partition=1)
    wanted = [
        {"topic": one, "partition": 2, "startingOffset": 7},
        {"topic": one, "partition": 0, "startingOffset": 2, "endingOffset": 4},
        {"topic": other, "partition": 1},
    ]
    source = opened(broker, tmp_path / "open", {"partitions": wanted})
    found, position = run(source)
    assert sorted(found) == [b"0-2", b"0-3", b"2-7", b"2-8", b"2-9", b"x", b"y"]
    assert not source.exhausted(position)
    topics.fill(broker, one, ["2-10"], partition=2)
    topics.fill(broker, one, ["0-10", "1-10"], partition=0)
    assert values(source, position, source.latest(position, everything=False)) == [[b"2-10"]]
    bounded = [{**each, "endingOffset": end} for each, end in zip(wanted, (8, 4, 5), strict=True)]
    source = opened(broker, tmp_path / "bounded", {"partitions": bounded})
    found, position = run(source)
    assert len(found) == 5
    assert not source.exhausted(position)  # it is said to go on to offset 5 of a partition with two records
    topics.fill(broker, other, map(str, range(10)), partition=1)
    found, position = run(source)
    assert len(found) == 8
    assert source.exhausted(position)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"partition": 7}, "has no partition 7; write one of 0 to 0"),
        ({"partition": 0, "startingOffset": 3}, "startingOffset 3 is outside of topic .*, which has offsets 0 to 2"),
    ],
)
def test_partitions_and_offsets_that_do_not_exist_are_refused(broker, topic, tmp_path, chosen, said):
    topics.fill(broker, topic, ["a", "b"])
    with pytest.raises(MillraceError, match=said):
        opened(broker, tmp_path, {"partitions": [{"topic": topic, **chosen}]}).initial()


def test_a_topic_that_is_not_there_is_told_with_the_one_that_was_meant(broker, topic, tmp_path):
    with pytest.raises(MillraceError, match=rf"has no topic {topic}x; did you mean {topic}\?"):
        opened(broker, tmp_path, {"topic": topic + "x"}).initial()


def test_a_run_that_misses_its_topic_says_so_to_the_operator(spark, broker, tmp_path):
    asked = document(broker.bootstrap, "absent", {"console": {}}, tmp_path, "OnUpdate", sql="SELECT key FROM events")
    with (
        pytest.raises(MillraceError, match="has no topic absent") as failed,
        LiveQuery(spark, broker, tmp_path, asked).run(("native", 1, 1)) as run,
    ):
        run.wait()
    assert failed.value.failure == "SourceMissing"


def test_new_partitions_are_found_while_running_and_begin_at_their_beginning(broker, make_topic, tmp_path):
    topic = make_topic(partitions=1)
    topics.fill(broker, topic, ["a"])
    source = opened(broker, tmp_path, {"topic": topic, "startingOffsets": "Latest"})
    start = source.initial()
    assert source.latest(start, everything=False) == start
    topics.add_partitions(broker, topic, 3)
    topics.fill(broker, topic, ["b", "c"], partition=2)
    end = source.latest(start, everything=False)
    assert end == {topic: {"0": 1, "2": 2}}
    assert values(source, start, end, 1) == [[b"b", b"c"]]
    again = opened(broker, tmp_path, {"topic": topic, "startingOffsets": "Latest"})
    assert values(again, start, end, 1) == [[b"b", b"c"]]  # replayed after a crash
    topics.fill(broker, topic, ["d"], partition=1)
    assert values(again, end, again.latest(end, everything=False)) == [[b"d"]]


def test_a_partition_added_to_a_backlog_is_read_after_what_was_there_before_it(broker, make_topic, tmp_path):
    topic, spec = make_topic(partitions=2), {"maxRecordsPerBatch": 3}
    for number in range(2):
        topics.fill(broker, topic, [f"old-{number}-{i}" for i in range(5)], partition=number)
    source = opened(broker, tmp_path, {"topic": topic} | spec)
    found, position = [], source.initial()
    topics.add_partitions(broker, topic, 3)
    topics.fill(broker, topic, [f"new-{i}" for i in range(5)], partition=2)
    for restarted in (False, True):
        end = source.latest(position, everything=False)
        assert source.lag(position) == 15 - 3 * restarted
        found += [value for piece in values(source, position, end) for value in piece]
        source, position = opened(broker, tmp_path, {"topic": topic} | spec), end
    for _ in range(4):
        end = source.latest(position, everything=True)
        found += [value for piece in values(source, position, end) for value in piece]
        position = end
    assert sorted(value[:3] for value in found[:10]) == [b"old"] * 10
    assert sorted(found[10:]) == [f"new-{i}".encode() for i in range(5)]


def test_a_pattern_matches_whole_names_also_of_new_topics(broker, make_topic, tmp_path):
    first = make_topic()
    source = opened(broker, tmp_path, {"topicPattern": rf"{first}|{first}-\d+"})
    topics.fill(broker, first, ["a"])
    topics.fill(broker, topics.make(broker, f"{first}-x"), ["no"])
    found, position = run(source)
    assert found == [b"a"]
    topics.fill(broker, topics.make(broker, f"{first}-2", 2), ["b"], partition=1)
    end = source.latest(position, everything=False)
    assert end == {first: {"0": 1}, f"{first}-2": {"1": 1}}
    assert values(source, position, end) == [[b"b"]]


def test_a_pattern_may_match_nothing_yet(broker, make_topic, tmp_path):
    name = make_topic()
    source = opened(broker, tmp_path, {"topicPattern": f"{name}-later"})
    start = source.initial()
    assert start == {}
    assert source.latest(start, everything=False) == {}
    topics.fill(broker, topics.make(broker, f"{name}-later"), ["a"])
    assert values(source, start, source.latest(start, everything=False)) == [[b"a"]]


def test_a_run_of_everything_reads_what_its_first_call_finds(broker, make_topic, tmp_path):
    topic = make_topic(partitions=2)
    topics.fill(broker, topic, map(str, range(10)), partition=0)
    source = opened(broker, tmp_path, {"topic": topic, "maxRecordsPerBatch": 4})
    position, batches = source.initial(), []
    while (end := source.latest(position, everything=True)) != position:
        batches.append(sum(map(len, values(source, position, end))))
        topics.fill(broker, topic, ["later"], partition=1)
        position = end
    assert batches == [4, 4, 2]


def test_a_batch_has_at_most_what_is_admitted_and_goes_to_the_same_time_in_all_partitions(broker, make_topic, tmp_path):
    topic = make_topic(partitions=3)
    begin = int(time.time() * 1000) - 3_600_000
    for number, count in enumerate((900, 90, 9)):
        timed(broker, topic, [begin + record * 9000 // count for record in range(count)], number)
    source = opened(broker, tmp_path, {"topic": topic, "maxRecordsPerBatch": 500})
    start = source.initial()
    end = source.latest(start, everything=False, most=111)
    assert 100 <= sum(end[topic].values()) <= 111
    assert [end[topic][number] for number in "012"] == pytest.approx([95, 10, 1], abs=6)
    assert 450 <= sum(source.latest(start, everything=False)[topic].values()) <= 500
    assert 450 <= sum(source.latest(start, everything=False, most=10**6)[topic].values()) <= 500


def test_a_limit_in_bytes_follows_what_records_weigh(broker, topic, tmp_path):
    topics.fill(broker, topic, ["x" * 1000] * 500 + ["y" * 10] * 500)
    source = opened(broker, tmp_path, {"topic": topic, "maxBytesPerBatch": "100k"})
    start = source.initial()
    end = source.latest(start, everything=False)
    assert 90 <= end[topic]["0"] <= 104


def test_a_topic_that_goes_away_is_refused(broker, make_topic, tmp_path, monkeypatch):
    from millrace_jobs.sources.kafka import offsets

    monkeypatch.setattr(offsets, "RECHECK_SECONDS", 0.5)
    topic = make_topic()
    topics.fill(broker, topic, ["a"])
    source = opened(broker, tmp_path, {"topic": topic})
    start = source.initial()
    remove(broker, topic)
    with pytest.raises(MillraceError, match=rf"topic {topic}, which this query has been reading, is gone"):
        source.latest(start, everything=False)


def test_the_beginning_of_a_query_is_not_asked_for_twice(broker, topic, tmp_path):
    source = opened(broker, tmp_path, {"topic": topic})
    assert everything(source) == []
    topics.fill(broker, topic, ["a"])
    assert opened("127.0.0.1:1", tmp_path, {"topic": topic}).initial() == {topic: {"0": 0}}
