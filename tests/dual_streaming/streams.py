"""Streams and their operators without state (definitions 9 to 17, 21 to 23, 53, 54, 60 to 63 and 70)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

Time = float
Key = Hashable
"""A key. None is an unassigned key, which equals no other."""


class Record(NamedTuple):
    """A record of a table, or of a stream before it has an offset (definition 9). As an update, None deletes its key."""

    t: Time
    k: Key
    v: Any


class StreamRecord(NamedTuple):
    """A record of a stream, with its offset."""

    o: int
    t: Time
    k: Key
    v: Any

    @property
    def record(self) -> Record:
        """The record without its offset."""
        return Record(self.t, self.k, self.v)


Stream = tuple[StreamRecord, ...]


def stream(records: Iterable[Record]) -> Stream:
    """Return the stream of records in this order (definitions 10 and 12)."""
    return tuple(StreamRecord(offset, *record) for offset, record in enumerate(records))


def facts(values: Iterable[tuple[Time, Any]]) -> Stream:
    """Return the record stream of times and values, with unassigned keys (definitions 53 and 54)."""
    return stream(Record(time, None, value) for time, value in values)


def prefix(records: Stream, length: int) -> Stream:
    """Return the first records of a stream (definition 15)."""
    return records[:length]


def ordered(records: Stream) -> Stream:
    """Return the ordered stream of the same records (definition 21); offsets break ties, and are assigned again."""
    return stream(each.record for each in sorted(records, key=lambda each: (each.t, each.o)))


def out_of_order(records: Stream) -> list[StreamRecord]:
    """Return the records that have a later time before them (definition 22)."""
    return [late for late in records if any(each.o < late.o and each.t > late.t for each in records)]


def without_outdated(records: Stream) -> Stream:
    """Return a stream with updates without the records that are updated later (definition 70).

    Offsets remain. A record without a key is never updated.
    """
    last = {each.k: each.o for each in records}
    return tuple(each for each in records if each.k is None or last[each.k] == each.o)


def equivalent(one: Stream, other: Stream) -> bool:
    """Return whether two streams have the same times and values equally often (definitions 60 and 70)."""
    contents = [Counter((each.t, each.v) for each in without_outdated(records)) for records in (one, other)]
    return contents[0] == contents[1]


def flat_map(records: Stream, function: Callable[[Record], Iterable[Record]]) -> Stream:
    """Return all results of a function of one record (definition 62); each must have the record's time."""
    results = [(each, result) for each in records for result in function(each.record)]
    assert all(result.t == each.t for each, result in results), "results inherit the time of their record"
    return stream(result for _, result in results)


def keep(records: Stream, predicate: Callable[[Record], bool]) -> Stream:
    """Return the records for which a predicate holds (``filter``, definition 63)."""
    return flat_map(records, lambda record: [record] if predicate(record) else [])
