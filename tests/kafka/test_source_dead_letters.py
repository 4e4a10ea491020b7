"""Messages that do not decode: the query fails and says which, goes on without them, or keeps them elsewhere."""

from __future__ import annotations

import json

import pytest

from lab import topics
from millrace_api.errors import MillraceError

from .sources import opened, slices, transaction

pytestmark = pytest.mark.kafka

SPEC = {"format": "json", "schema": "a INT"}
GOOD, BAD = '{"a": 1}', '{"a": "\\u00e9'


def read(source, replicas=1):
    start = source.initial()
    end = source.latest(start, everything=True)
    found = list(slices(source, start, end, replicas))
    return [row[0] for rows, _ in found for row in rows], sum(rejected for _, rejected in found)


def letters(policy):
    return {**SPEC, "corruptRecords": {"policy": "DeadLetter", **policy}}


def test_fail_names_topic_partition_offset_and_value(broker, make_topic, tmp_path):
    topic = make_topic(partitions=2)
    topics.fill(broker, topic, [GOOD, GOOD, BAD, "worse"], partition=1)
    with pytest.raises(MillraceError) as raised:
        read(opened(broker, tmp_path, {"topic": topic}, **SPEC))
    assert str(raised.value).startswith(
        f"source trips cannot decode {BAD!r} (topic {topic}, partition 1, offset 2): invalid JSON: "
    )
    assert str(raised.value).endswith("correct it or the schema, or set corruptRecords.policy to Drop or DeadLetter")


def test_drop_counts_and_goes_on(broker, topic, tmp_path):
    topics.fill(broker, topic, [GOOD, BAD, None, "", GOOD, "7"])
    source = opened(broker, tmp_path, {"topic": topic}, **SPEC, corruptRecords={"policy": "Drop"})
    assert read(source, 2) == ([1, 1], 3)


def test_dead_letters_in_a_folder_say_where_they_come_from(broker, make_topic, tmp_path):
    topic = make_topic(partitions=2)
    topics.fill(broker, topic, [GOOD, BAD, GOOD, b"\xff"], partition=1)
    source = opened(broker, tmp_path, {"topic": topic}, **letters({"path": str(tmp_path / "dead")}))
    for _ in range(2):
        assert read(source) == ([1, 1], 2)
        (file,) = (tmp_path / "dead").iterdir()
        found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        assert [(letter["offset"], letter["text"]) for letter in found] == [(1, BAD), (3, "\\xff")]
        assert {(letter["source"], letter["topic"], letter["partition"]) for letter in found} == {("trips", topic, 1)}
        assert all(letter["reason"] for letter in found)


def test_dead_letters_in_a_topic_have_key_value_headers_and_their_place(broker, make_topic, tmp_path):
    topic, dead = make_topic(partitions=2), make_topic()
    with transaction(broker, topic) as producer:
        producer.produce(topic, GOOD, partition=1)
        producer.produce(topic, BAD, "key", partition=1, headers=[("trace", b"\x01")])
        producer.produce(topic, b"\xff\x00", partition=0)
    source = opened(broker, tmp_path, {"topic": topic}, **letters({"topic": dead}))
    assert read(source, 2) == ([1], 2)
    found = {message.value: message for message in topics.committed(broker, dead)}
    assert found.keys() == {BAD.encode(), b"\xff\x00"}
    letter = found[BAD.encode()]
    assert letter.key == b"key"
    assert letter.headers["millrace-reason"].startswith(b"invalid JSON: ")
    assert {name: value for name, value in letter.headers.items() if name != "millrace-reason"} == {
        "trace": b"\x01",
        "millrace-source": b"trips",
        "millrace-topic": topic.encode(),
        "millrace-partition": b"1",
        "millrace-offset": b"1",
    }


def test_every_letter_is_there_when_the_slice_ends_and_a_repeated_one_can_be_told(broker, make_topic, tmp_path):
    topic, dead = make_topic(), make_topic(partitions=3)
    topics.fill(broker, topic, [f"bad-{i}" for i in range(5000)])
    source = opened(broker, tmp_path, {"topic": topic}, **letters({"topic": dead}))
    assert read(source, 3) == ([], 5000)
    assert len(topics.committed(broker, dead)) == 5000
    assert read(source, 3) == ([], 5000)
    found = topics.committed(broker, dead)
    places = [message.headers["millrace-offset"] for message in found]
    assert len(places) == 10_000
    assert set(places) == {str(offset).encode() for offset in range(5000)}


def test_a_missing_topic_of_dead_letters_is_found_before_a_record_is_read(broker, topic, make_topic, tmp_path):
    source = opened(broker, tmp_path, {"topic": topic}, **letters({"topic": "no-letters"}))
    with pytest.raises(MillraceError) as raised:
        source.check_server()
    [problem] = raised.value.problems
    assert problem.field == "spec.sources.trips.corruptRecords.topic"
    assert problem.message.endswith("has no topic no-letters")
    assert "--topic no-letters --create" in problem.hint
    opened(broker, tmp_path, {"topic": topic}, **letters({"topic": make_topic()})).check_server()


def test_a_dead_letter_topic_that_takes_no_letter_is_an_error(broker, make_topic, tmp_path):
    topic, dead = make_topic(), make_topic(max_message_bytes=1000)
    topics.fill(broker, topic, ["x" * 5000])
    source = opened(broker, tmp_path, {"topic": topic}, **letters({"topic": dead}))
    with pytest.raises(MillraceError, match=f"writing dead letters of source trips to topic {dead}"):
        read(source)
