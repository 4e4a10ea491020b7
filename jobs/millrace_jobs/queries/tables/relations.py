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
from millrace_jobs.queries.tables.operators.merging import Merge, SortOrder
from millrace_jobs.windows import Window

Existing = Literal["semi", "anti"]
JoinType = Literal["inner", "left", "right", "full"] | Existing
"""A semi join has the left rows that have a partner, and an anti join those that have none; both, no right columns."""


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
class PairFilter:
    """A condition on columns of both sides of a join, which pairs of rows have to fulfil beside their keys.

    ``text`` is its SQL over internal columns, and ``sql`` over hidden ones. ``operands`` are the SQL of these, each
    with its name, by side.
    """

    text: str
    sql: str
    operands: Mapping[Side, tuple[tuple[str, str], ...]]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the hidden columns of both sides."""
        return tuple(name for side in self.operands.values() for _, name in side)


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
    where: PairFilter | None = None
    """What pairs have to fulfil in an outer join; an inner join is filtered after it."""

    def preserved(self, side: Side) -> bool:
        """Return whether the result depends on which rows of a side have no partner."""
        return self.type in (side, "full") or (side == "left" and self.type in ("semi", "anti"))

    def operands(self, side: Side) -> tuple[tuple[str, str], ...]:
        """Return the SQL of the hidden columns of a side that ``where`` reads, each with its name."""
        return () if self.where is None else self.where.operands[side]

    def reach(self, side: Side) -> int:
        """Return how far, in microseconds, the period by which a side's row matches can begin before the watermark."""
        return (self.lag[side] or 0) if self.match is None else self.match.reach[side]

    def span(self, side: Side) -> int | None:
        """Return how far, in microseconds, that period can go beyond the row's event time; None without limit."""
        return 0 if self.match is None else self.match.span[side]

    @property
    def keeps_versions(self) -> bool:
        """Whether the result has the versions of a table's rows that no record of a stream has met."""
        sides: dict[Side, Relation] = {"left": self.left, "right": self.right}
        tables = [side for side, each in sides.items() if contents_of(each) is Contents.TABLE]
        return len(tables) == 1 and self.preserved(tables[0])

    @property
    def result_lag(self) -> int | None:
        """How far, in microseconds, the changes of the result can be behind the watermark; None without limit."""
        if self.keeps_versions:
            return None
        sides: tuple[Side, Side] = ("left", "right")
        left, right = (
            JoinInput(pa.schema([]), (), Contents.RECORDS, preserved=self.preserved(side), lag=self.lag[side],
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
    type: Literal["inner", "left"] | Existing
    """In a left join a row without a partner is in the result, with NULL in the columns of the table."""


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
    ``limit``: the number of rows of a list, and ``orders``: how these are sorted, as in ``CountedPart``.
    """

    sql: str
    name: str
    merge: Merge | Deviation | CountedFunction
    counted: bool = False
    fraction: float = 0
    limit: int = 1
    orders: tuple[SortOrder, ...] = ()


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
    session: bool = False
    """Whether the window is a session, whose gap is the window's size."""
    replaces: bool = True
    """Whether a group's row is replaced by a newer one, rather than removed; no filter hides some of the rows."""

    @property
    def result_lag(self) -> int | None:
        """How far the changes of the groups can be behind it; a final group is a record of the end of its time."""
        if self.session and not self.final:
            return None  # a session is as old as its first record
        return self.closing.lag if self.final and self.closing is not None else self.lag


@dataclass(frozen=True)
class Selection:
    """The rows that pass a filter, with items of a SELECT list as internal columns; all columns without items."""

    input: Relation
    where: str
    items: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TopRows:
    """The first rows of each group, from a list of them: the keys of the group, and columns of the rows.

    ``number`` is the internal name of the column with the place of a row in its list, from 1. ``order`` is the SQL of
    the order, over internal columns.
    """

    groups: Grouping
    columns: tuple[str, ...]
    number: str
    order: str

    @property
    def limit(self) -> int:
        """The number of rows of each group, at most."""
        return self.groups.parts[0].limit


@dataclass(frozen=True)
class Repeated:
    """The keys of groups as rows, each as often as two of their parts say.

    That is so many times as the first one is more than the second one or, if ``common``, as both are.
    """

    groups: Grouping
    counts: tuple[str, str]
    common: bool


@dataclass(frozen=True)
class Union:
    """All rows of several relations, which have the same internal columns."""

    inputs: tuple[Relation, ...]


@dataclass(frozen=True)
class KeptRecords:
    """The records of a stream as rows of a table: from its time on, each stays."""

    input: Relation


Relation = Scan | Static | Upserted | Join | Enriched | Grouping | Selection | TopRows | Repeated | Union | KeptRecords


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


def grouping_of(relation: Relation) -> Grouping | None:
    """Return the grouping whose groups a relation's rows are, or are made of one by one; None if there is none."""
    while isinstance(relation, Selection | TopRows | Repeated):
        relation = relation.input if isinstance(relation, Selection) else relation.groups
    return relation if isinstance(relation, Grouping) else None


def top_rows_of(relation: Relation) -> TopRows | None:
    """Return what a relation has the first rows of groups from, perhaps filtered; None if it has none of them."""
    while isinstance(relation, Selection):
        relation = relation.input
    return relation if isinstance(relation, TopRows) else None


def keeps_records(relation: Relation) -> bool:
    """Whether the rows of a relation are records of a stream that stay, so that an operator would keep all of them."""
    if isinstance(relation, Union):
        return any(map(keeps_records, relation.inputs))
    through = isinstance(relation, Selection | Enriched) and keeps_records(relation.input)
    return through or isinstance(relation, KeptRecords)


def lag_of(relation: Relation) -> int | None:
    """Return how far, in microseconds, versions of a table can change behind the watermark; None without limit."""
    while isinstance(relation, Selection | Enriched | KeptRecords):
        relation = relation.input
    if isinstance(relation, Union):
        lags = [lag_of(each) for each in relation.inputs]
        return None if None in lags else max(lag for lag in lags if lag is not None)
    if isinstance(relation, TopRows | Repeated):
        relation = relation.groups
    if isinstance(relation, Grouping):
        return relation.result_lag
    return relation.result_lag if isinstance(relation, Join) else 0


def contents_of(relation: Relation) -> Contents:
    """Return what the rows of a relation are."""
    if isinstance(relation, Scan):
        return Contents.TABLE if relation.keys else Contents.RECORDS
    if isinstance(relation, Upserted | Static | KeptRecords):
        return Contents.TABLE
    if isinstance(relation, Selection | Enriched):
        return contents_of(relation.input)
    if isinstance(relation, TopRows | Repeated):
        return contents_of(relation.groups)
    if isinstance(relation, Union):
        found = {contents_of(each) for each in relation.inputs}
        return found.pop() if len(found) == 1 else Contents.RESULTS  # tables are united with tables alone
    if isinstance(relation, Grouping):
        return Contents.RECORDS if relation.final else Contents.TABLE
    sides = [contents_of(side) for side in (relation.left, relation.right)]
    if sides == [Contents.TABLE, Contents.TABLE]:
        return Contents.TABLE
    # of records that are only added, one has a partner for good
    changes = Contents.RESULTS in sides or Contents.TABLE in sides or relation.type not in ("inner", "semi")
    return Contents.RESULTS if changes and not relation.final else Contents.RECORDS


def wrong_in_spark(relation: Relation) -> str | None:
    """Return what Spark's own plan would do wrong with a relation of streams, over internal names; None if nothing.

    Its joins remove rows by event time even if partners come until another time, and their result has two event times,
    which no further join takes.
    """
    matches = [each.match for each in below(relation) if isinstance(each, Join) and each.match is not None]
    end = next((match.end for match in matches if match.end), None)
    if end is not None:
        return f"join would not keep rows until {end}"
    if any(
        each.match is not None and each.type in ("semi", "anti") for each in below(relation) if isinstance(each, Join)
    ):
        return "plan has no EXISTS or ANTI JOIN of streams"
    if any(isinstance(each, TopRows) for each in below(relation)):
        return "plan has no row_number() of streams"
    if any(isinstance(each, Grouping) and not each.replaces for each in below(relation)):
        return "plan has no EXCEPT or INTERSECT of streams"
    return "join takes no more than two streams" if len(matches) > 1 else None


def below(relation: Relation) -> Iterator[Relation]:
    """Yield a relation and all that it is made of, sources first."""
    match relation:
        case Join():
            yield from (*below(relation.left), *below(relation.right))
        case Enriched():
            yield from (*below(relation.input), relation.table)
        case Union():
            yield from (found for each in relation.inputs for found in below(each))
        case Upserted() | Grouping() | Selection() | KeptRecords():
            yield from below(relation.input)
        case TopRows() | Repeated():
            yield from below(relation.groups)
    yield relation


def texts_of(relation: Relation) -> Iterator[str]:
    """Yield the SQL that a relation computes from its inputs."""
    match relation:
        case Scan():
            yield from (relation.time, *relation.keys, relation.where)
        case Join():
            periods = relation.match.periods if relation.match is not None else {}
            yield from (text for texts in (*relation.keys.values(), *periods.values()) for text in texts)
            yield from (sql for side in relation.keys for sql, _ in relation.operands(side))
        case Enriched():
            yield relation.on
        case Grouping():
            yield from (sql for sql, _ in relation.keys)
            yield from (part.sql for part in relation.parts)
            yield from () if relation.window is None else (relation.window.column,)
        case Selection():
            yield from (relation.where, *(sql for sql, _ in relation.items))
