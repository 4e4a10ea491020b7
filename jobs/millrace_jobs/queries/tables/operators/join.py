"""The join of two inputs by key and period: of streams, of a stream and a table, and of tables.

All joins are one operator, because they differ only in the periods by which rows match:

- *stream-stream* (definition 67): a record matches those of the other stream in a band of event time around it;
- *stream-table* (definitions 68 and 69): a record matches the version of the table that is valid at its event time. The
  print looks up ``r.k``, which a record does not have; the join attribute is meant;
- *table-table* (definition 74): two rows match in the versions that have both.

An outer join can also keep the rows of a table that a stream is joined with, for which the paper has no definition: it
has those versions of rows that no record has met, at the time from which they are valid. So the changelog of the table
is in the result as the other stream is in definition 67.

With L and R as held before a batch, and dL and dR as the changes of the batch, the changes of an inner join are
dL x (R + dR) + L x dR, or (L + dL) x dR + dL x R. Results without a partner are computed for the rows that the batch
can affect, before and after it, and the difference is emitted. Results are therefore right for input in any order: a
result without a partner is emitted at once, and replaced when a partner comes (definition 70), and a late update of a
table corrects the results of earlier records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import (
    BEGINNING,
    FOREVER,
    WEIGHT,
    changes_of,
    net,
    periods,
    values_of,
    with_changes,
)
from millrace_jobs.queries.tables.operators.closing import CLOSINGS, closing_times
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult
from millrace_jobs.queries.tables.operators.join_side import JoinInput, JoinSide
from millrace_jobs.queries.tables.operators.matching import (
    Integers,
    KeyedPeriods,
    Matches,
    Overlap,
    PairCondition,
    covered,
    key_codes,
    uncovered,
)
from millrace_jobs.queries.tables.operators.splitting import NOT_SPLIT, HotKeys, Split, SplitSide


class Kept(Enum):
    """What the result of a join has."""

    PAIRS = auto()
    """Pairs of rows that match, and the rows of a preserved input that have no partner."""
    WITH_PARTNER = auto()
    """Left rows that have a partner, each once: a semi join."""
    WITHOUT_PARTNER = auto()
    """Left rows that have no partner: an anti join."""


@dataclass(frozen=True)
class TemporalJoin:
    """The join of two inputs by key and period; an operator on changes.

    ``versions``: tables are joined version by version; otherwise the join of two tables has only the latest version.
    ``final``: a result is emitted once it cannot change any more. Results of two records are final at once; those
    without a partner, and those with a row of a table, once the watermark has passed. It is not for two tables.
    ``condition``: rows with the same key and periods with a common instant match only if it holds, too.
    ``kept``: what the result has; all but pairs is for a left input that is preserved.
    ``split``: which keys are hot, and who matches their rows; results do not depend on it. ``closes``: results have the
    columns of ``closing.CLOSINGS``, which are made of those of the inputs if these have them.
    """

    left: JoinInput
    right: JoinInput
    versions: bool
    final: bool = False
    condition: PairCondition | None = None
    kept: Kept = Kept.PAIRS
    split: Split = NOT_SPLIT
    closes: bool = False

    def __post_init__(self) -> None:
        """Check that the inputs can be joined."""
        if self.kept is not Kept.PAIRS and (not self.left.preserved or self.right.preserved):
            raise ValueError("a semi or an anti join is of the left input, which has to be preserved")
        if self.final and self.left.is_table and self.right.is_table:
            raise ValueError("results of a join of two tables have no end at which they are final")
        if self.closes and not self.has_stream:
            raise ValueError("results of a join of two tables have no time until which they can change")

    @property
    def has_stream(self) -> bool:
        """Whether an input is a stream."""
        return not (self.left.is_table and self.right.is_table)

    @property
    def has_table(self) -> bool:
        """Whether an input is a table."""
        return self.left.is_table or self.right.is_table

    @property
    def keeps_versions(self) -> bool:
        """Whether the result has the versions of a table's rows that no record of a stream has met."""
        return self.has_stream and any(each.is_table and each.preserved for each in (self.left, self.right))

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schemas of the two inputs."""
        return changes_of(self.left.values), changes_of(self.right.values)

    @property
    def output(self) -> pa.Schema:
        """The values of the left and then the right input, without hidden ones; of the left one alone without pairs."""
        right = self.right.results if self.kept is Kept.PAIRS else ()
        closings = CLOSINGS if self.closes else ()
        return changes_of(pa.schema([*self.left.results, *right, *closings]))

    @property
    def lag(self) -> int | None:
        """The lag of the inputs or, if longer, how long a result without a partner waits or can be replaced."""
        if not (self.versions or self.has_stream) or self.keeps_versions:
            return None
        lags = [self.left.lag, self.right.lag]
        for side, other in ((self.left, self.right), (self.right, self.left)):
            if side.preserved:
                lags.append(None if side.span is None else other.reach + side.span)
        return None if None in lags else max(lag for lag in lags if lag is not None)

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Apply the changes of a batch to a bucket, and then the watermark; see ``TableOperator``."""
        sides = (self._side(self.left, store, "left"), self._side(self.right, store, "right"))
        return _Batch(self, sides, watermark).run(changes)

    def matched(self, left: pa.Table, right: pa.Table) -> Iterator[pa.Table]:
        """Yield the results of all rows of a ``MatchUnit`` that match."""
        sides = ((self.left, left), (self.right, right))
        codes = key_codes([left, right], [side.keys for side, _ in sides])
        keyed = (
            KeyedPeriods(keys, *side.matching_periods(rows, versions=self._has_versions))
            for keys, (side, rows) in zip(codes, sides, strict=True)
        )
        yield from self.results(left, right, Overlap(*keyed))

    def results(self, left: pa.Table, right: pa.Table, overlap: Overlap) -> Iterator[pa.Table]:
        """Yield the results of the pairs of the rows of two tables."""
        for rows, partners in Matches(overlap, left, right, self.condition).pieces():
            yield self._results(left.take(pa.array(rows)), right.take(pa.array(partners)))

    def _results(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Return the results of matching rows, which are in the same places of both tables."""
        (left_from, left_to), (right_from, right_to) = periods(left), periods(right)
        if self.left.is_table and self.right.is_table:
            starts, ends = np.maximum(left_from, right_from), np.minimum(left_to, right_to)
        elif self.right.is_table:
            starts, ends = left_from, left_to
        elif self.left.is_table:
            starts, ends = right_from, right_to
        else:
            starts = np.maximum(left_from, right_from)
            ends = starts + 1
        weights = left.column(WEIGHT).to_numpy() * right.column(WEIGHT).to_numpy()
        values = [*_values(self.left, left), *_values(self.right, right)]
        if self.closes:
            closing, lonely = map(np.maximum, closing_times(left), closing_times(right))
            for side, rows, other in ((self.left, left, self.right), (self.right, right, self.left)):
                if other.is_table:
                    closing = np.maximum(closing, self.closing(side, rows))
            values += [pa.array(closing), pa.array(lonely)]
        return with_changes(pa.Table.from_arrays(values, schema=values_of(self.output)), starts, ends, weights)

    def closing(self, side: JoinInput, rows: pa.Table) -> Integers:
        """Return the watermark by which the other side has all partners of a side's records, shape ``(rows,)``."""
        other = self.right if side is self.left else self.left
        ends = side.matching_periods(rows, versions=True)[1]
        return np.where(ends > FOREVER - other.reach, FOREVER, ends + other.reach)

    def _side(self, side: JoinInput, store: BucketStore, name: str) -> JoinSide:
        later = self.final and (side.preserved or (self.has_table and not side.is_table))
        keeps_last = self.keeps_versions and not side.is_table
        return JoinSide(side, store, name, versions=self._has_versions, emits_later=later, keeps_last=keeps_last)

    @property
    def _has_versions(self) -> bool:
        return self.versions or self.has_stream


@dataclass
class _Rows:
    """Rows of one side with what matching needs."""

    side: JoinSide
    table: pa.Table
    keyed: KeyedPeriods

    def filter(self, mask: NDArray[np.bool_]) -> _Rows:
        """Return the rows where the mask is true."""
        keyed = KeyedPeriods(self.keyed.keys[mask], self.keyed.starts[mask], self.keyed.ends[mask])
        return _Rows(self.side, self.table.filter(pa.array(mask)), keyed)

    def as_input(self) -> SplitSide:
        """Return the rows with the columns of the join's input."""
        side = self.side.side
        return SplitSide(self.table.select(changes_of(side.values).names), self.keyed, side.keys)

    def __add__(self, other: _Rows) -> _Rows:
        """Return the rows of both."""
        pairs = ((getattr(self.keyed, name), getattr(other.keyed, name)) for name in ("keys", "starts", "ends"))
        keyed = KeyedPeriods(*(np.concatenate(pair) for pair in pairs))
        return _Rows(self.side, pa.concat_tables([self.table, other.table]), keyed)


class _Batch:
    """One batch of a join in one bucket."""

    def __init__(self, join: TemporalJoin, sides: tuple[JoinSide, JoinSide], watermark: int) -> None:
        self._join = join
        self._left, self._right = sides
        self._watermark = watermark
        self._is_deferred = join.final and join.has_table
        self._outcome = OperatorResult()

    def run(self, changes: Sequence[pa.Table]) -> OperatorResult:
        """Process the batch."""
        outcome, left, right = self._outcome, self._left, self._right
        outcome.late = left.take(changes[0], self._watermark) + right.take(changes[1], self._watermark)
        made: list[Iterable[pa.Table]] = []
        if not self._is_deferred and (left.new.num_rows or right.new.num_rows):
            made += self._updates()
        if self._join.final:
            made += self._finals(left, right)
            made += self._finals(right, left)
        outcome.changes = (each for each in chain.from_iterable(made) if each.num_rows)
        limits = (self._limit(left, right), self._limit(right, left))
        for side, other, limit in zip((left, right), (right, left), limits, strict=True):
            side.apply(limit, other, self._join.condition)
        wakes = [self._next_wake(side, other) for side, other in ((left, right), (right, left))]
        outcome.wake = min((wake for wake in wakes if wake is not None), default=None)
        outcome.kept = left.rows + right.rows
        for side in (left, right):
            side.save()
        return outcome

    def _updates(self) -> Iterator[Iterable[pa.Table]]:
        """Yield the changes of the result that follow from the changes of the inputs."""
        left, right, eager = self._left, self._right, not self._join.final
        keeps_left, keeps_right = eager and self._join.left.preserved, eager and self._join.right.preserved
        left_near, right_near = left.relevant((right, right.new)), right.relevant((left, left.new))
        # whether a row held is alone depends on all rows near it, not only on the changes
        left_held = left.relevant((right, right.new), (right, right_near)) if keeps_right else left_near
        right_held = right.relevant((left, left.new), (left, left_near)) if keeps_left else right_near
        left_after, right_after = _after(left_held, left.new), _after(right_held, right.new)
        removes_left, removes_right = _removes(left.new), _removes(right.new)
        from_right = removes_left and not removes_right
        needs_after = keeps_right or from_right
        rows = self._keyed(
            (left, left.new), (left, left_held), (left, left_after if needs_after else left_after.slice(0, 0)),
            (right, right.new), (right, right_held), (right, right_after),
            (left, left.last_met((right, right.new), (right, right_near))),
            (right, right.last_met((left, left.new), (left, left_near))),
        )  # fmt: skip
        if self._join.kept is Kept.PAIRS:
            # of rows that are only added and match what the other side has become, no result is taken back by another
            # pair
            added, others = (
                ((rows[2], rows[3]), (rows[0], rows[4])) if from_right else ((rows[0], rows[5]), (rows[1], rows[3]))
            )
            pairs = chain(
                self._pairs(*added, splits=not (removes_left and removes_right)),
                self._pairs(*others, splits=not (removes_left or removes_right)),
            )
            yield _netted(pairs) if removes_left or removes_right else pairs
        if keeps_left:
            yield [self._lonely_changes(rows[0], rows[1], (rows[3], rows[4] + rows[7], rows[5] + rows[7]))]
        if keeps_right:
            yield [self._lonely_changes(rows[3], rows[4], (rows[0], rows[1] + rows[6], rows[2] + rows[6]))]

    def _keyed(self, *tables: tuple[JoinSide, pa.Table]) -> tuple[_Rows, ...]:
        codes = key_codes([table for _, table in tables], [side.side.keys for side, _ in tables])
        return tuple(
            _Rows(side, table, KeyedPeriods(keys, *side.periods(table)))
            for (side, table), keys in zip(tables, codes, strict=True)
        )

    def _pairs(self, left: _Rows, right: _Rows, *, splits: bool = True) -> Iterable[pa.Table]:
        """Return the results of the rows that match, without those that are left to workers, if it ``splits``."""
        overlap, split = Overlap(left.keyed, right.keyed), self._join.split
        self._outcome.pairs += overlap.pairs
        if splits and overlap.pairs > split.pairs:
            hot = HotKeys((left.as_input(), right.as_input()), overlap, split.pairs)
            self._outcome.hot += hot.pairs
            if hot.pairs and split.place is not None:
                self._outcome.units = chain(self._outcome.units, hot.units(split.place))
                overlap = overlap.only(~hot.left, ~hot.right)
        return self._join.results(left.table, right.table, overlap)

    def _lonely_changes(self, new: _Rows, held: _Rows, others: tuple[_Rows, ...]) -> pa.Table:
        """Return the changes of one side's results without a partner; others: new, held before, held after."""
        other_new, before, after = others
        affected = held.filter(Overlap(held.keyed, other_new.keyed).left_counts > 0)
        changes = [self._lonely(affected, before, sign=-1), self._lonely(affected + new, after, sign=1)]
        found = net(pa.concat_tables(changes))
        return _one_by_one(found) if self._join.kept is Kept.WITH_PARTNER and not self._join.has_table else found

    def _lonely(self, rows: _Rows, others: _Rows, *, sign: int) -> pa.Table:
        """Return the results of rows without a partner among the others, as changes with the given sign.

        Those of a semi join are the results of rows with one.
        """
        starts, ends = periods(rows.table)
        rows = rows.filter(ends > starts)  # deletes of a table have no result
        matches = Matches(Overlap(rows.keyed, others.keyed), rows.table, others.table, self._join.condition)
        with_partner = self._join.kept is Kept.WITH_PARTNER
        if not self._join.has_stream and self._join.versions:
            indices, starts, ends = (covered if with_partner else uncovered)(rows.keyed, others.keyed, matches)
            found = rows.table.take(pa.array(indices))
        else:
            found = rows.table.filter(pa.array((matches.left_counts > 0) == with_partner))
            starts, ends = periods(found)
            ends = starts + 1 if self._join.has_stream else ends
        values: list[pa.Array | pa.ChunkedArray] = []
        for side in (self._left, self._right) if self._join.kept is Kept.PAIRS else (self._left,):
            nulls = (pa.nulls(found.num_rows, field.type) for field in side.side.results)
            values += _values(side.side, found) if side is rows.side else nulls
        if self._join.closes:
            own, (closing, lonely) = self._join.closing(rows.side.side, found), closing_times(found)
            lonely = lonely if with_partner else np.maximum(lonely, own)
            values += [pa.array(np.maximum(closing, own)), pa.array(lonely)]
        table = pa.Table.from_arrays(values, schema=values_of(self._join.output))
        return with_changes(table, starts, ends, sign * found.column(WEIGHT).to_numpy())

    def _finals(self, side: JoinSide, other: JoinSide) -> Iterator[Iterable[pa.Table]]:
        """Yield the results of a side's records, or of the versions of its rows, that can no longer change."""
        if not side.emits_later:
            return
        until = self._reached(other)
        due = pa.concat_tables([side.held.ended(side.settled, until), side.new_ended(until)])
        side.settled = max(side.settled, until)
        if not due.num_rows:
            return
        due = net(due) if side.side.is_table else due
        near = _after(other.relevant((side, due)), other.new)
        rows, partners, met = self._keyed((side, due), (other, near), (other, other.last_met((side, due))))
        if self._is_deferred and not side.side.is_table and self._join.kept is Kept.PAIRS:
            yield self._pairs(rows, partners) if side is self._left else self._pairs(partners, rows)
        if side.side.preserved:
            yield [self._lonely(rows, partners + met, sign=1)]

    def _reached(self, other: JoinSide) -> int:
        """Return the time before which no further row of the other side can match."""
        return BEGINNING if self._watermark == BEGINNING else self._watermark - other.side.reach

    def _limit(self, side: JoinSide, other: JoinSide) -> int:
        """Return the time by which a side's rows must end to be removed.

        No row to come matches them, and no row of the other side needs them: neither for a result that is still to be
        emitted, nor because a row to come makes it look again whether it is alone.
        """
        reached = self._reached(other)
        if side.keeps_last:  # what a row of the table still needs is kept apart; it is never taken back
            return min(reached, self._reached(side))
        if other.emits_later:
            return min(reached, other.first_start(after=other.settled))
        if other.side.preserved and not other.side.is_table and not self._join.final:
            return min(reached, other.first_start(after=self._reached(side)))
        return reached

    def _next_wake(self, side: JoinSide, other: JoinSide) -> int | None:
        """Return the watermark at which records of a side are due or no longer needed; None if it has none."""
        if side.side.is_table and not side.emits_later:
            return None  # slots are cleared of old versions whenever they are written
        due = side.held.first_end(after=side.settled) if side.emits_later else side.held.next_removal
        return None if due == FOREVER else max(due + other.side.reach, self._watermark + 1)


def _after(held: pa.Table, new: pa.Table) -> pa.Table:
    """Return the rows held once the changes are applied."""
    after = pa.concat_tables([held, new])
    return net(after) if _removes(new) else after


def _netted(changes: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the changes summed up: most results of a row that is cut stay as they are."""
    tables = list(changes)
    if tables:
        yield net(pa.concat_tables(tables))


def _one_by_one(changes: pa.Table) -> pa.Table:
    """Return the changes with a row for each that is added: equal records of a stream are records of their own."""
    weights = changes.column(WEIGHT).to_numpy()
    if not (weights > 1).any():
        return changes
    rows = changes.take(pa.array(np.repeat(np.arange(len(weights)), np.maximum(weights, 1))))
    ones = pa.array(np.minimum(rows.column(WEIGHT).to_numpy(), 1))
    return rows.set_column(rows.schema.get_field_index(WEIGHT), WEIGHT, ones)


def _removes(changes: pa.Table) -> bool:
    return bool((changes.column(WEIGHT).to_numpy() < 0).any())


def _values(side: JoinInput, rows: pa.Table) -> list[pa.ChunkedArray]:
    return [rows.column(field.name) for field in side.results]
