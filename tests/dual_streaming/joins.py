"""Joins of streams and tables (definitions 67 to 70 and 74)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from .streams import Key, Record, Stream, StreamRecord, Time, stream
from .tables import EvolvingTable


class JoinType(StrEnum):
    """Which records without a partner are in the result."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def of_left(self) -> bool:
        """Whether the result has left records without a partner."""
        return self in (JoinType.LEFT, JoinType.FULL)

    @property
    def of_right(self) -> bool:
        """Whether the result has right records without a partner."""
        return self in (JoinType.RIGHT, JoinType.FULL)


class Side(StrEnum):
    """An input of a join."""

    LEFT = "left"
    RIGHT = "right"


JoinKey = Callable[[Any], Key]
"""The join attribute of a record (``g``); None joins with nothing."""


Condition = Callable[[Any, Any], bool]
"""A further condition on the values of a left and a right record with equal join attributes.

The paper has equi-joins alone. As in relational systems, records that do not fulfil it are no partners, also for
outer results.
"""


def always(left: Any, right: Any) -> bool:
    """Return True: the condition of an equi-join."""
    return True


class Band(NamedTuple):
    """What makes two stream records partners: equal join attributes, times at most ``size`` apart, and a condition."""

    left: JoinKey
    right: JoinKey
    size: Time
    condition: Condition = always

    def joins(self, left: StreamRecord, right: StreamRecord) -> bool:
        """Return whether two records join."""
        key = self.left(left)
        near = key is not None and key == self.right(right) and abs(left.t - right.t) <= self.size
        return near and self.condition(left.v, right.v)


def of_streams(left: Stream, right: Stream, band: Band, join_type: JoinType = JoinType.INNER) -> Stream:
    """Return the windowed join of two streams (definition 67), as values ``(left value, right value)``.

    A result's key is the pair of its records' offsets, with None for a partner that does not exist.
    """
    results = [
        Record(max(one.t, other.t), (one.o, other.o), (one.v, other.v))
        for one in left
        for other in right
        if band.joins(one, other)
    ]
    if join_type.of_left:
        lonely = [one for one in left if not any(band.joins(one, other) for other in right)]
        results += [Record(one.t, (one.o, None), (one.v, None)) for one in lonely]
    if join_type.of_right:
        lonely = [other for other in right if not any(band.joins(one, other) for one in left)]
        results += [Record(other.t, (None, other.o), (None, other.v)) for other in lonely]
    return stream(results)


def having_partner(left: Stream, right: Stream, band: Band, *, exists: bool) -> Stream:
    """Return the left records that join with a right one, or with none (``filter`` by an existential predicate)."""
    return stream(one.record for one in left if any(band.joins(one, other) for other in right) == exists)


def having_row(
    records: Stream, table: EvolvingTable, key: JoinKey, *, exists: bool, condition: Condition = always
) -> Stream:
    """Return the records that a table has a record for at their own time, or has none."""
    joined = of_stream_and_table(records, table, key, JoinType.LEFT, condition)
    met = {each.k for each in joined if each.v[1] is not None}
    return stream(each.record for each in records if (each.o in met) == exists)


def rows_having_row(
    left: EvolvingTable, right: EvolvingTable, keys: Sequence[JoinKey], *, exists: bool, condition: Condition = always
) -> EvolvingTable:
    """Return the rows of a table that another one has a row for, or has none, in each version."""
    joined = of_tables(left, right, keys, JoinType.LEFT, condition)
    result = EvolvingTable()
    before: dict[Key, Any] = {}
    for time in joined.times:
        rows = {key[0]: record.v[0] for key, record in joined.at(time).items()}
        met = {key[0] for key in joined.at(time) if key[1] is not None}
        now = {key: value for key, value in rows.items() if (key in met) == exists}
        for key in sorted({*before, *now}, key=repr):
            if before.get(key) != now.get(key):
                result.update(Record(time, key, now.get(key)))
        before = now
    return result


def of_streams_eagerly(
    arrivals: Iterable[tuple[Side, StreamRecord]], band: Band, join_type: JoinType = JoinType.INNER
) -> Stream:
    """Join two streams record by record; an outer result is emitted at once, and updated when a partner comes later.

    The first inner result of a record that had an outer one takes its key, so that it replaces it (examples 21 and 22).
    Of two partners, only the one that came first can have an outer result.
    """
    seen: dict[Side, list[StreamRecord]] = {Side.LEFT: [], Side.RIGHT: []}
    outer: set[tuple[int | None, int | None]] = set()
    results: list[Record] = []
    for side, record in arrivals:
        pairs = (
            [(record, other) for other in seen[Side.RIGHT]]
            if side is Side.LEFT
            else [(other, record) for other in seen[Side.LEFT]]
        )
        partners = [(one, other) for one, other in pairs if band.joins(one, other)]
        for one, other in partners:
            replaced = ({(one.o, None), (None, other.o)} & outer) or {(one.o, other.o)}
            outer -= replaced
            results += [Record(max(one.t, other.t), key, (one.v, other.v)) for key in replaced]
        if not partners and (join_type.of_left if side is Side.LEFT else join_type.of_right):
            key, value = (
                ((record.o, None), (record.v, None)) if side is Side.LEFT else ((None, record.o), (None, record.v))
            )
            outer.add(key)
            results.append(Record(record.t, key, value))
        seen[side].append(record)
    return stream(results)


def by_time(left: Stream, right: Stream) -> list[tuple[Side, StreamRecord]]:
    """Return the records of two ordered streams in the order in which a join takes them; a tie goes to the right.

    A table's update comes before a stream's record of the same time ("Incremental Join Computation").
    """
    both = [(Side.RIGHT, each) for each in right] + [(Side.LEFT, each) for each in left]
    return sorted(both, key=lambda each: each[1].t)


def of_stream_and_table(
    records: Stream,
    table: EvolvingTable,
    key: JoinKey,
    join_type: JoinType = JoinType.INNER,
    condition: Condition = always,
) -> Stream:
    """Return each record with the table's record at its own time (definitions 68 and 69).

    A result's key is the offset of its stream record. The paper has no right and full joins, since a table's updates join
    passively. Here they have, as in the join of two streams, each record of the table's changelog that no stream record
    has met, at its own time; its key is that of the table's record, with its time.
    """
    looked_up = [(each, None if key(each) is None else table.lookup(key(each), each.t)) for each in records]
    found = [(each, partner if partner and condition(each.v, partner.v) else None) for each, partner in looked_up]
    results = [
        Record(each.t, each.o, (each.v, partner and partner.v))
        for each, partner in found
        if partner is not None or join_type.of_left
    ]
    if join_type.of_right:
        met = {(partner.t, partner.k) for _, partner in found if partner is not None}
        lonely = [each for each in table.changelog if each.v is not None and (each.t, each.k) not in met]
        results += [Record(each.t, (None, each.t, each.k), (None, each.v)) for each in lonely]
    return stream(results)


def of_stream_and_table_eagerly(
    arrivals: Iterable[tuple[Side, StreamRecord]], key: JoinKey, join_type: JoinType = JoinType.INNER
) -> Stream:
    """Join stream records (left) and a table's changelog (right) in the order of arrival.

    A late update of the table joins the affected stream records again; their new results replace the earlier ones, which
    None does if an inner join's result is no more.
    """
    table = EvolvingTable()
    seen: list[StreamRecord] = []
    latest: dict[int, Any] = {}
    results: list[Record] = []
    for side, arrived in arrivals:
        if side is Side.RIGHT:
            table.update(arrived.record)
        else:
            seen.append(arrived)
        for each in seen if side is Side.RIGHT else [arrived]:
            partner = None if key(each) is None else table.lookup(key(each), each.t)
            value = (each.v, partner and partner.v) if partner is not None or join_type.of_left else None
            if value != latest.get(each.o):
                latest[each.o] = value
                results.append(Record(each.t, each.o, value))
    return stream(results)


def of_tables(
    left: EvolvingTable,
    right: EvolvingTable,
    keys: Sequence[JoinKey],
    join_type: JoinType = JoinType.INNER,
    condition: Condition = always,
) -> EvolvingTable:
    """Return the join of two tables, version by version (definition 74).

    A result's key is the pair of its records' keys, so that any number of records may join with any number, as by a
    foreign key. ``keys`` are the join attributes of a left and of a right record.
    """
    result = EvolvingTable()
    before: dict[Key, Record] = {}
    for time in sorted({*left.times, *right.times}):
        now = _joined(left.at(time).values(), right.at(time).values(), keys, join_type, condition)
        for key in sorted({*before, *now}, key=repr):
            if before.get(key) != now.get(key):
                result.update(Record(time, key, now[key].v if key in now else None))
        before = now
    return result


def _joined(
    left: Iterable[Record],
    right: Iterable[Record],
    keys: Sequence[JoinKey],
    join_type: JoinType,
    condition: Condition,
) -> dict[Key, Record]:
    left, right = list(left), list(right)
    pairs = [
        (one, other)
        for one in left
        for other in right
        if keys[0](one) is not None and keys[0](one) == keys[1](other) and condition(one.v, other.v)
    ]
    found: list[tuple[Record | None, Record | None]] = [*pairs]
    if join_type.of_left:
        found += [(one, None) for one in left if all(one is not each for each, _ in pairs)]
    if join_type.of_right:
        found += [(None, other) for other in right if all(other is not each for _, each in pairs)]
    return {
        (one and one.k, other and other.k): Record(
            max(each.t for each in (one, other) if each), (), (one and one.v, other and other.v)
        )
        for one, other in found
    }
