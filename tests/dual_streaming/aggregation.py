"""Aggregation of a record stream to a table (definitions 64 and 66, algorithms 4 and 5), and windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from .streams import Key, Record, Stream, StreamRecord, Time
from .tables import EvolvingTable

Grouping = Callable[[StreamRecord], set[Key]]
"""The keys of the groups of a record (``g``, which returns a set since example 16)."""

Step = Callable[[StreamRecord, Any], Any]
"""The aggregate of a group with one more record, from the record and the aggregate before it, or None (``f``)."""


def by_value(record: StreamRecord) -> set[Key]:
    """Group by the value of a record."""
    return {record.v}


def count(_: StreamRecord, before: int | None) -> int:
    """Count the records of a group."""
    return (before or 0) + 1


def tumbling(size: Time, group: Grouping) -> Grouping:
    """Return the grouping into windows of one size; a key is a group's key and the start of a window."""
    return hopping(size, size, group)


def hopping(size: Time, advance: Time, group: Grouping) -> Grouping:
    """Return the grouping into windows that begin every ``advance``, none of them before time 0 (example 16)."""

    def keys(record: StreamRecord) -> set[Key]:
        first = math.floor((record.t - size) / advance)
        number = math.floor(record.t / advance) - first
        starts = [(first + each) * advance for each in range(1, number + 1)]
        return {(key, start) for key in group(record) for start in starts if start >= 0}

    return keys


def aggregate(records: Stream, group: Grouping, function: Callable[[Stream], Any]) -> EvolvingTable:
    """Return the table of aggregates over all records up to the time of each version (definition 64).

    ``function`` sees all records of a group and must not depend on their order.
    """
    table = EvolvingTable()
    for time in sorted({each.t for each in records}):
        so_far = tuple(each for each in records if each.t <= time)
        for key in sorted({key for each in so_far if each.t == time for key in group(each)}, key=repr):
            table.update(Record(time, key, function(tuple(each for each in so_far if key in group(each)))))
    return table


def sessions(records: Stream, group: Grouping, gap: Time, function: Callable[[Stream], Any]) -> EvolvingTable:
    """Return the table of aggregates over sessions: records of a group with at most ``gap`` from one to the next.

    A key is a group's key and the start of a session. The paper names sessions only in a footnote; records exactly ``gap``
    apart are in one session, as in Spark, whose ``session_window`` queries use. With the records up to the time of a
    version, a session grows at its end alone, so that its start identifies it in all versions.
    """
    table = EvolvingTable()
    for time in sorted({each.t for each in records}):
        for key in sorted({key for each in records if each.t == time for key in group(each)}, key=repr):
            members = sorted(
                (each for each in records if each.t <= time and key in group(each)), key=lambda each: each.t
            )
            apart = [at for at in range(1, len(members)) if members[at].t - members[at - 1].t > gap]
            last = tuple(members[apart[-1] if apart else 0 :])
            table.update(Record(time, (key, last[0].t), function(last)))
    return table


def ordered_only(records: Iterable[StreamRecord], group: Grouping, step: Step) -> EvolvingTable:
    """Aggregate one record after the other, which is right for ordered streams alone (algorithm 4)."""
    table = EvolvingTable()
    for record in records:
        for key in group(record):
            found = table.lookup(key)
            table.update(Record(record.t, key, step(record, found and found.v)))
    return table


def incrementally(records: Iterable[StreamRecord], group: Grouping, step: Step) -> EvolvingTable:
    """Aggregate one record after the other and correct every later version that a late one affects (algorithm 5)."""
    table = EvolvingTable()
    for record in records:
        keys = group(record)
        # Fixed before any update: an update adds to the modified keys that decide which versions are affected.
        affected = {record.t: keys} | {
            time: keys & table.modified(time) for time in table.times if time > record.t and keys & table.modified(time)
        }
        aggregates = {
            (time, key): step(record, (found := table.lookup(key, time)) and found.v)
            for time, each in affected.items()
            for key in each
        }
        for (time, key), aggregate_now in aggregates.items():
            table.update(Record(time, key, aggregate_now))
    return table
