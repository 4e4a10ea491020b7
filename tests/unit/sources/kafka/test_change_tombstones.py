"""Which of Debezium's tombstones count, in messages that are read in pieces."""

import json
import random

import numpy as np
from confluent_kafka import Message

from change_messages import envelope
from millrace_jobs.sources.kafka.message_records import NEAR, lone_tombstones

from .debezium_messages import decoder

SET, DELETE, TOMBSTONE = "set", "delete", "tombstone"


def messages(*kinds, partition=0, begin=0):
    """Messages of pairs of a key and a kind, which is also the value."""
    return [
        Message("t", partition, offset, key.encode(), None if kind is TOMBSTONE else kind.encode())
        for offset, (key, kind) in enumerate(kinds, begin)
    ]


def lone(given, before=()):
    """The places of the tombstones that count, and how often ``before`` was asked."""
    asked = []

    def deleted_before(message):
        asked.append(message)
        return {each.key(): each.value() is not None for each in before if each.value() != SET.encode()}

    valued = [each.value() is not None for each in given]
    deletes = np.array([each.value() == DELETE.encode() for each in given], np.bool_)
    found = lone_tombstones(given, valued, deletes, deleted_before)
    return [given.index(each) for each in found], len(asked)


def test_a_tombstone_after_the_delete_of_its_key_is_left_out():
    assert lone(messages(("a", SET), ("a", DELETE), ("a", TOMBSTONE))) == ([], 0)
    assert lone(messages(("a", DELETE), ("b", DELETE), ("a", TOMBSTONE), ("b", TOMBSTONE))) == ([], 0)
    assert lone(messages(("a", DELETE), ("a", TOMBSTONE), ("a", SET), ("a", TOMBSTONE))) == ([3], 0)
    assert lone(messages(("a", DELETE), ("a", DELETE), ("a", TOMBSTONE), ("a", SET), ("a", TOMBSTONE))) == ([4], 0)


def test_a_newer_row_that_came_between_a_delete_and_its_tombstone_stays():
    """A producer that sends several requests at a time, and repeats one of them, changes their order."""
    rows = [("a", SET)] * 3 * NEAR
    assert lone(messages(("a", DELETE), *rows, ("a", TOMBSTONE))) == ([], 0)
    assert lone(messages(*rows, ("a", TOMBSTONE))) == ([len(rows)], 0)


def test_the_delete_may_be_before_the_messages():
    given = messages(("a", TOMBSTONE), ("b", TOMBSTONE), ("a", SET), ("a", TOMBSTONE), begin=9)
    assert lone(given) == ([0, 1, 3], 1)
    assert lone(given, messages(("a", SET), ("a", DELETE))) == ([1, 3], 1)
    assert lone(given, messages(("a", DELETE), ("a", SET))) == ([1, 3], 1)
    assert lone(given, messages(("a", DELETE), ("a", TOMBSTONE), ("a", SET))) == ([0, 1, 3], 1)


def test_each_partition_has_deletes_of_its_own():
    one, other = messages(("a", DELETE)), messages(("a", TOMBSTONE), partition=1)
    assert lone([*one, *other]) == ([1], 1)


def test_only_the_beginning_is_looked_up():
    given = messages(*((f"b{number}", SET) for number in range(NEAR)), ("a", TOMBSTONE), begin=1)
    assert lone(given, messages(("a", DELETE))) == ([NEAR], 0)


def test_pieces_have_the_tombstones_of_the_whole():
    choose = random.Random(4)
    kinds = [(choose.choice("abc"), choose.choice((SET, DELETE, TOMBSTONE))) for _ in range(200)]
    whole = messages(*kinds)
    counted = []
    for begin in range(0, len(whole), 5):
        places, _ = lone(whole[begin : begin + 5], whole[max(begin - NEAR, 0) : begin])
        counted += [begin + place for place in places]
    assert counted == lone(whole)[0]
    assert 10 < len(counted) < 60


def test_the_decoder_knows_deletes_before_its_messages():
    def message(offset, value):
        return Message("t", 0, offset, b'{"id":1}', value and value.encode())

    source = decoder("id BIGINT, n INT")
    delete = json.dumps(envelope("d", {"id": 1, "n": 2}, None, 1))
    cases = (
        ([message(0, delete)], 0),
        ([message(-1, delete), message(0, None)], 1),
        ([message(0, "no change")], 1),
        ([], 1),
    )
    for before, count in cases:
        records = source._decoder.decode([message(1, None)], lambda *_: None, lambda _, found=before: found)
        assert sum(batch.num_rows for batch in records) == count
