"""Relations: a query with joins and tables as a tree, between its SQL and the stages that compute it.

All SQL in the tree is over *internal* columns, whose names are unique in the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from millrace_api.sql.join_conditions import Side
from millrace_jobs.queries.tables.operators.counted_values import CountedFunction
from millrace_jobs.queries.tables.operators.deviations import Deviation
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import Contents, JoinInput
from millrace_jobs.queries.tables.operators.merging import Merge
from millrace_jobs.windows import Window

JoinType = Literal["inner", "left", "right", "full"]


@dataclass(frozen=True)
class Scan:
    """The records of a source, or the upserts of a table."""

    source: str
    columns: tuple[tuple[str, str], ...]
    """Columns of the source, each with its internal name."""
    time: str
    keys: tuple[str, ...]
    where: str = ""
    """Filter of a table: an upsert that does not pass deletes its key."""


@dataclass(frozen=True)
class Static:
    """A static table: rows without changes, which only a join with other rows reads."""

    source: str
    columns: tuple[tuple[str, str], ...]
    """Columns of the source, each with its internal name."""


@dataclass(frozen=True)
class Upserted:
    """The table of a ``Scan`` of upserts, for an operator that does not read upserts itself."""

    input: Scan


@dataclass(frozen=True)
class Match:
    """The SQL of the periods, in microseconds, by which the records of two streams match.

    ``reach`` is how far each side's period can begin before the watermark, and ``span`` how far it can go beyond the
    event time of its record, as in ``JoinInput``. ``longest`` is how long a record can wait for a partner, in
    microseconds; where that is not known, ``end`` is the SQL of the time until then.
    """

    periods: Mapping[Side, tuple[str, str]]
    reach: Mapping[Side, int]
    span: Mapping[Side, int | None]
    longest: int
    end: str


@dataclass(frozen=True)
class Join:
    """A join; ``keys`` are the SQL of the keys of each side, NULL for records that cannot have a partner."""

    left: Relation
    right: Relation
    type: JoinType
    keys: Mapping[Side, tuple[str, ...]]
    match: Match | None
    final: bool
    """Whether only results that can no longer change are emitted."""
    lag: Mapping[Side, int | None]
    """How far each side's changes can be behind the watermark, as in ``JoinInput``."""

    def reach(self, side: Side) -> int:
        """Return how far, in microseconds, the period by which a side's row matches can begin before the watermark."""
        return (self.lag[side] or 0) if self.match is None else self.match.reach[side]

    def span(self, side: Side) -> int | None:
        """Return how far, in microseconds, that period can go beyond the row's event time; None without limit."""
        return 0 if self.match is None else self.match.span[side]

    @property
    def result_lag(self) -> int | None:
        """How far, in microseconds, the changes of the result can be behind the watermark; None without limit."""
        sides: tuple[Side, Side] = ("left", "right")
        left, right = (
            JoinInput(pa.schema([]), (), Contents.RECORDS, preserved=self.type in (side, "full"), lag=self.lag[side],
                      reach=self.reach(side), span=self.span(side))
            for side in sides
        )  # fmt: skip
        return TemporalJoin(left, right, versions=True).lag


@dataclass(frozen=True)
class Enriched:
    """The join of each row with the rows of a static table that fulfil ``on``; it has no state."""

    input: Relation
    table: Static
    on: str
    preserved: bool
    """Whether a row without a partner is in the result, with NULL in the columns of the table."""


WINDOW = "millrace_window"
"""Struct column with the window of a row, while its group is determined."""


@dataclass(frozen=True)
class Closing:
    """When a group can no longer change: once the watermark has passed ``sql``, in microseconds, by ``lag``."""

    sql: str
    lag: int


@dataclass(frozen=True)
class GroupPart:
    """A part of an aggregate: the SQL of what one row adds to it, its internal name, and how it is merged.

    ``counted``: the values of a group are counted, so that rows can be taken back. ``fraction``: of a percentile.
    ``limit``: the number of rows of a list.
    """

    sql: str
    name: str
    merge: Merge | Deviation | CountedFunction
    counted: bool = False
    fraction: float = 0
    limit: int = 1


@dataclass(frozen=True)
class Grouping:
    """Groups of rows: their keys, each as SQL over the input and ``WINDOW`` with an internal name, and their parts."""

    input: Relation
    keys: tuple[tuple[str, str], ...]
    window: Window | None
    closing: Closing | None
    parts: tuple[GroupPart, ...]
    final: bool
    """Whether only groups that can no longer change are emitted, as records of a stream."""
    lag: int | None
    """How far, in microseconds, the changes of the input can be behind the watermark; None without limit."""

    @property
    def result_lag(self) -> int | None:
        """How far the changes of the groups can be behind it; a final group is a record of the end of its time."""
        return self.closing.lag if self.final and self.closing is not None else self.lag


@dataclass(frozen=True)
class Selection:
    """The rows that pass a filter, with items of a SELECT list as internal columns; all columns without items."""

    input: Relation
    where: str
    items: tuple[tuple[str, str], ...] = ()


Relation = Scan | Static | Upserted | Join | Enriched | Grouping | Selection


def joins_streams(relation: Relation) -> bool:
    """Whether a relation is the join of two streams, whose records are only added."""
    return isinstance(relation, Join) and all(
        contents_of(side) is Contents.RECORDS for side in (relation.left, relation.right)
    )


def emits_at_once(relation: Relation) -> bool:
    """Whether a relation has the pairs of the records of two sources, which are emitted when the second one comes."""
    while isinstance(relation, Selection | Enriched):
        relation = relation.input
    if not isinstance(relation, Join) or relation.type != "inner" or not joins_streams(relation):
        return False
    return all(isinstance(each, Scan | Selection) for side in (relation.left, relation.right) for each in below(side))


def groups_of(relation: Relation) -> Grouping | None:
    """Return the grouping of which each row of a relation is a group; None if they are no groups."""
    while isinstance(relation, Selection):
        relation = relation.input
    return relation if isinstance(relation, Grouping) else None


def lag_of(relation: Relation) -> int | None:
    """Return how far, in microseconds, versions of a table can change behind the watermark; None without limit."""
    while isinstance(relation, Selection | Enriched):
        relation = relation.input
    if isinstance(relation, Grouping):
        return relation.result_lag
    return relation.result_lag if isinstance(relation, Join) else 0


def contents_of(relation: Relation) -> Contents:
    """Return what the rows of a relation are."""
    if isinstance(relation, Scan):
        return Contents.TABLE if relation.keys else Contents.RECORDS
    if isinstance(relation, Upserted | Static):
        return Contents.TABLE
    if isinstance(relation, Selection | Enriched):
        return contents_of(relation.input)
    if isinstance(relation, Grouping):
        return Contents.RECORDS if relation.final else Contents.TABLE
    sides = [contents_of(side) for side in (relation.left, relation.right)]
    if sides == [Contents.TABLE, Contents.TABLE]:
        return Contents.TABLE
    changes = Contents.RESULTS in sides or Contents.TABLE in sides or relation.type != "inner"
    return Contents.RESULTS if changes and not relation.final else Contents.RECORDS


def wrong_in_spark(relation: Relation) -> str | None:
    """Return what Spark's own joins of streams would do wrong with a relation, over internal names; None if nothing.

    They remove rows by event time even if partners come until another time, and their result has two event times, which
    no further join takes.
    """
    matches = [each.match for each in below(relation) if isinstance(each, Join) and each.match is not None]
    end = next((match.end for match in matches if match.end), None)
    if end is not None:
        return f"would not keep rows until {end}"
    return "takes no more than two streams" if len(matches) > 1 else None


def below(relation: Relation) -> Iterator[Relation]:
    """Yield a relation and all that it is made of, sources first."""
    match relation:
        case Join():
            yield from (*below(relation.left), *below(relation.right))
        case Enriched():
            yield from (*below(relation.input), relation.table)
        case Upserted() | Grouping() | Selection():
            yield from below(relation.input)
    yield relation


def texts_of(relation: Relation) -> Iterator[str]:
    """Yield the SQL that a relation computes from its inputs."""
    match relation:
        case Scan():
            yield from (relation.time, *relation.keys, relation.where)
        case Join():
            periods = relation.match.periods if relation.match is not None else {}
            yield from (text for texts in (*relation.keys.values(), *periods.values()) for text in texts)
        case Enriched():
            yield relation.on
        case Grouping():
            yield from (sql for sql, _ in relation.keys)
            yield from (part.sql for part in relation.parts)
            yield from () if relation.window is None else (relation.window.column,)
        case Selection():
            yield from (relation.where, *(sql for sql, _ in relation.items))
