"""The inputs of a join, and what is held of each in a bucket."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import BEGINNING, FOREVER, FROM, NO_TIME, changes_of, periods
from millrace_jobs.queries.tables.operators.interface import BucketStore
from millrace_jobs.queries.tables.operators.matching import (
    NO_KEY,
    KeyedPeriods,
    Matches,
    Overlap,
    PairCondition,
    key_codes,
    last_of_keys,
)
from millrace_jobs.queries.tables.operators.state import Periods, Segments, Slots, slots_of
from millrace_jobs.queries.tables.operators.upserts import changes_from_upserts, held_of

HIDDEN = "millrace_"
"""Prefix of value columns that a join reads and that are not in its result."""

MATCH_FROM = "millrace_match_from"
"""Value column with the start of the period by which a record matches, in microseconds since 1970."""

MATCH_TO = "millrace_match_to"
"""Value column with the end of the period by which a record matches, in microseconds since 1970."""


class Contents(Enum):
    """What the rows of an input are."""

    RECORDS = auto()
    """Records of a stream, which are only added."""
    RESULTS = auto()
    """Records of a stream of results, which are also removed when a result is replaced."""
    TABLE = auto()
    """Rows of an evolving table."""


@dataclass(frozen=True)
class JoinInput:
    """One input of a join.

    Args:
        values: schema of its values; streams may have MATCH_FROM and MATCH_TO among them.
        keys: the columns that have to equal those of the other input, in the same order.
        contents: what its rows are.
        upserted: whether the input's rows are upserts of a table with ``keys`` as its primary key, not changes.
        preserved: whether rows without a partner are in the result, with NULLs for the other input's columns.
        lag: how far, in microseconds, its changes can be behind the watermark (see ``TableOperator``); None: no limit.
        reach: how far, in microseconds, the matching period of a row to come can begin before the watermark; the
            ``lag`` for rows that match by their own period.
        span: how far, in microseconds, a record's matching period can go beyond its event time; None: no limit.
        checked: whether earlier operators have removed late records.
    """

    values: pa.Schema
    keys: tuple[str, ...]
    contents: Contents
    upserted: bool = False
    preserved: bool = False
    lag: int | None = 0
    reach: int = 0
    span: int | None = 0
    checked: bool = False

    @property
    def is_table(self) -> bool:
        """Whether the rows are those of a table."""
        return self.contents is Contents.TABLE

    @property
    def results(self) -> list[pa.Field]:
        """The columns of this input in the result; in a result without a partner they are NULL."""
        return [field.with_nullable(True) for field in self.values if not field.name.startswith(HIDDEN)]

    def matching_periods(self, rows: pa.Table, *, versions: bool) -> Periods:
        """Return the periods by which rows match, without ``versions`` those of the latest rows of tables."""
        if MATCH_FROM in self.values.names:
            return rows.column(MATCH_FROM).to_numpy(), rows.column(MATCH_TO).to_numpy()
        starts, ends = periods(rows)
        if self.is_table and not versions:
            return np.where(ends > starts, BEGINNING, ends), ends
        return starts, ends


_SETTLED = pa.schema([("settled", pa.int64())])


class JoinSide:
    """One input in one bucket: the rows held before the batch, and the changes of the batch.

    ``emits_later``: final results of its records wait for the watermark. ``settled``: the results of the records whose
    periods end at or before this time have been emitted.

    ``keeps_last``: the other side is a table whose rows are in the result until they meet a record of this one. Of
    records that are removed, the last one that each row of the table has met is kept apart.
    """

    def __init__(
        self, side: JoinInput, store: BucketStore, name: str, *, versions: bool, emits_later: bool, keeps_last: bool
    ) -> None:
        self.side = side
        self.schema = held_of(side.values) if side.upserted else changes_of(side.values)
        self.emits_later = emits_later
        self.keeps_last = keeps_last
        self._versions = versions
        self._store = store
        self._name = name
        self.settled = self._time("settled") if emits_later else BEGINNING
        self.held: Segments | Slots
        if side.contents is Contents.RECORDS:
            self.held = Segments(store, name, self.schema, self.periods)
        else:
            self.held = Slots(store, name, self.schema, self.periods)
        self._last = Slots(store, f"{name}/last", self.schema, self.periods) if keeps_last else None
        self.new = self.schema.empty_table()

    @property
    def rows(self) -> int:
        """Number of rows in the state."""
        return self.held.rows + (0 if self._last is None else self._last.rows)

    def periods(self, rows: pa.Table) -> Periods:
        """Return the periods by which rows match."""
        return self.side.matching_periods(rows, versions=self._versions)

    def take(self, changes: pa.Table, watermark: int) -> int:
        """Take the changes of the batch, without late records, and return the number of these."""
        late = 0
        if not self.side.is_table and not self.side.checked:
            starts = changes.column(FROM).to_numpy()
            in_time = (starts >= watermark) | (starts == NO_TIME)
            late = len(in_time) - int(np.count_nonzero(in_time))
            changes = changes.filter(pa.array(in_time)) if late else changes
        if not self.side.upserted:
            self.new = changes
        elif changes.num_rows:
            near = self.relevant((self, changes))
            self.new = changes_from_upserts(changes, near, self.side.keys, versions=self._versions, watermark=watermark)
        return late

    def relevant(self, *others: tuple[JoinSide, pa.Table]) -> pa.Table:
        """Return at least the rows held that match one of the given rows of the other side."""
        given = [(side, rows) for side, rows in others if rows.num_rows]
        if not given:
            return self.schema.empty_table()
        if isinstance(self.held, Slots):
            slots = [slots_of(rows, side.side.keys) for side, rows in given]
            return self.held.of_keys(np.unique(np.concatenate(slots)).tolist())
        extents = [side.periods(rows) for side, rows in given]
        return self.held.within(min(int(s.min()) for s, _ in extents), max(int(e.max()) for _, e in extents))

    def last_met(self, *others: tuple[JoinSide, pa.Table]) -> pa.Table:
        """Return at least the removed records that are the last ones which some of the other side's rows have met."""
        given = [slots_of(rows, side.side.keys) for side, rows in others if rows.num_rows]
        if self._last is None or not given:
            return self.schema.empty_table()
        return self._last.of_keys(np.unique(np.concatenate(given)).tolist())

    def first_start(self, after: int = BEGINNING) -> int:
        """Return the earliest start of a period that ends after a time, or one before it; ``FOREVER`` without rows."""
        starts, ends = self.periods(self.new)
        return min(self.held.first_start(after), int(starts.min(where=ends > after, initial=FOREVER)))

    def new_ended(self, until: int) -> pa.Table:
        """Return the records of the batch whose periods end at or before ``until``."""
        return self.new.filter(pa.array(self.periods(self.new)[1] <= until))

    def apply(self, limit: int, other: JoinSide, condition: PairCondition | None) -> None:
        """Add the changes of the batch to the rows held, and remove rows whose periods end by ``limit``.

        Where a table's row is in the result without a partner, it is so since its last partner ended. This partner is
        kept, so that the start of the result remains known. ``condition`` is that of the join.
        """
        if self._last is not None:
            self._keep_last(self._last, limit, other, condition)
        if isinstance(self.held, Segments):
            self.held.add(self.new, limit)
        elif self.new.num_rows:
            bounds_results = other.side.preserved and other.side.is_table and self.side.is_table and self._versions
            keep = partial(self._last_partners, other, limit, condition) if bounds_results else None
            self.held.apply(self.new, slots_of(self.new, self.side.keys), limit, keep)
        if not self.side.is_table:
            self.held.remove_ended(limit)
        elif self.emits_later:  # a version that is emitted may not have its bucket processed again
            self.held.remove_ended_rows(limit)

    def _time(self, name: str) -> int:
        """Return a stored time, or the beginning."""
        found = self._store.get(f"{self._name}/{name}", _SETTLED)
        return BEGINNING if found is None else int(found.column(0)[0].as_py())

    def _store_time(self, name: str, time: int) -> None:
        self._store.put(f"{self._name}/{name}", pa.table([pa.array([time])], schema=_SETTLED))

    def _keep_last(self, last: Slots, limit: int, other: JoinSide, condition: PairCondition | None) -> None:
        """Keep, of the records that end by ``limit``, the last one that each row of the other side has met."""
        passed = self._time("passed")
        ended = pa.concat_tables([self.held.ended(passed, limit), self.new_ended(limit)])
        if limit != passed:
            self._store_time("passed", limit)
        keep = partial(self._last_partners, other, limit, condition)
        last.apply(ended, slots_of(ended, self.side.keys), limit, keep)

    def _last_partners(
        self, other: JoinSide, limit: int, condition: PairCondition | None, rows: pa.Table
    ) -> NDArray[np.bool_]:
        """Return which rows of a slot are the last to end by ``limit`` that match a row the other side still has."""
        others = pa.concat_tables([other.relevant((self, rows)), other.new])
        codes, other_codes = key_codes([rows, others], [self.side.keys, other.side.keys])
        starts, ends = self.periods(rows)
        other_starts, other_ends = other.periods(others)
        still = (other_starts < other_ends) & (other_ends > limit)
        ended = np.flatnonzero(
            (starts < ends) & (ends <= limit) & (codes != NO_KEY) & np.isin(codes, other_codes[still])
        )
        owners = codes[ended]
        if condition is not None:  # rows of one key can have different partners
            kept, candidates = others.filter(pa.array(still)), rows.take(pa.array(ended))
            overlap = Overlap(
                KeyedPeriods(other_codes[still], other_starts[still], other_ends[still]),
                KeyedPeriods(codes[ended], starts[ended], ends[ended]),
            )
            owners, places = Matches(overlap, kept, candidates, condition).rows()
            ended = ended[places]
        order = np.lexsort((ends[ended], owners))
        last = np.zeros(len(rows), dtype=bool)
        last[ended[order[last_of_keys(owners[order])]]] = True
        return last

    def save(self) -> None:
        """Store what is not stored yet."""
        self.held.save()
        if self._last is not None:
            self._last.save()
        if self.emits_later:
            self._store_time("settled", self.settled)
