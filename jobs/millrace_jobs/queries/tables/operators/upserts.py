"""Changes of a table from upserts: records that set the row of a key from a time on, or delete it (definition 55)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import FOREVER, FROM, TO, WEIGHT, changed_periods, changes_of, negated, net, periods
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult
from millrace_jobs.queries.tables.operators.matching import Integers, key_codes, last_of_keys
from millrace_jobs.queries.tables.operators.state import Slots, slots_of

DELETE: Final = -1
"""Weight of an upsert that deletes its key from its time on, until the key's next version."""

ESTIMATED_DELETE: Final = -2
"""Weight of a delete whose time is only an estimate: it deletes what its table has, whatever the estimate.

It counts from its time on, but not from before a row of its key that came before it.
"""

UPSERT_TIME: Final = "millrace_upsert_time"
"""Column of the rows held with the time of the upsert that a row is from, in microseconds since 1970."""


def held_of(values: pa.Schema) -> pa.Schema:
    """Return the schema of the rows that are held of a table with these values."""
    return changes_of(values.append(pa.field(UPSERT_TIME, pa.int64())))


def changes_from_upserts(
    upserts: pa.Table, held: pa.Table, keys: Sequence[str], *, versions: bool, watermark: int
) -> pa.Table:
    """Return the changes that upserts make to the rows that are held of a table.

    An upsert at time t replaces the version of its key that was valid at t, until the key's next version (definition
    58). So an upsert out of order corrects the table from its own time to that of the next version, and a delete out of
    order ends only the version that was valid at its time. So that this is right after a delete too, the delete is held
    as a row with an empty period. Of several upserts of one key at one time, the last one to arrive counts.

    Versions before the watermark do not change any more. An upsert that is older counts from the watermark on, unless
    its key had a later version by then. A delete is forgotten when the watermark has passed it: an upsert that is older
    than that, and comes still later, brings the key back.

    Args:
        upserts: ``FROM`` is the time of each, and ``TO`` its position in the order of arrival, or equal for all if they
            are in this order. ``WEIGHT`` is 1 for a row, and ``DELETE`` or ``ESTIMATED_DELETE`` for a delete.
        held: all rows held with the keys of the upserts, and possibly others; see ``held_of``.
        keys: the columns of the table's primary key.
        versions: whether all versions are held. Otherwise only the latest one is, from its own time on.
        watermark: in microseconds since 1970.

    Returns:
        Changes of the rows held, with the schema of ``held``.
    """
    upserts = upserts.take(pa.array(np.argsort(upserts.column(TO).to_numpy(), kind="stable")))
    upserts = upserts.append_column(UPSERT_TIME, upserts.column(FROM))
    codes, held_codes = key_codes([upserts, held], [keys, keys])
    touched = np.isin(held_codes, codes)
    before = held.filter(pa.array(touched))
    rows = pa.concat_tables([before, upserts.select(before.schema.names).cast(before.schema)])
    is_new = np.arange(rows.num_rows) >= before.num_rows
    after = _held_after(rows, np.concatenate([held_codes[touched], codes]), is_new, watermark if versions else None)
    return net(pa.concat_tables([negated(before), after]))


def _held_after(rows: pa.Table, codes: Integers, is_new: NDArray[np.bool_], watermark: int | None) -> pa.Table:
    """Return what is held after upserts: of each key all versions, or the latest one without a watermark."""
    times, starts, ends, weights = (rows.column(name).to_numpy() for name in (UPSERT_TIME, FROM, TO, WEIGHT))
    deletes = np.where(is_new, weights < 0, ends == starts)
    times = np.where(weights == ESTIMATED_DELETE, _latest_so_far(times, codes), times)
    starts = np.where(is_new, times if watermark is None else np.maximum(times, watermark), starts)
    order = np.lexsort((np.arange(len(codes)), times, codes))
    counts = last_of_keys(codes[order]) if watermark is None else _before_next(codes[order], starts[order])
    order = order[counts]
    codes, starts = codes[order], starts[order]
    stops = np.where(is_new, FOREVER, ends)[order]
    stops[:-1] = np.where(codes[1:] == codes[:-1], np.minimum(stops[:-1], starts[1:]), stops[:-1])
    stops = np.where(deletes[order], starts, stops)
    position = rows.schema.get_field_index(UPSERT_TIME)
    rows = rows.set_column(position, UPSERT_TIME, pa.array(times)).take(pa.array(order))
    return changed_periods(rows, starts, stops, np.ones(len(codes), dtype=np.int64))


def _before_next(codes: Integers, starts: Integers) -> NDArray[np.bool_]:
    """Return which rows begin before the next one of their key; the codes are sorted."""
    return np.append((codes[1:] != codes[:-1]) | (starts[:-1] < starts[1:]), True)[: len(codes)]


def _latest_so_far(times: Integers, codes: Integers) -> Integers:
    """Return, for each row, the latest time of the rows of its key so far, itself included."""
    distinct, ranks = np.unique(times, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    groups = np.unique(codes[order], return_inverse=True)[1] * len(distinct)
    latest = np.empty(len(codes), dtype=np.int64)
    latest[order] = distinct[np.maximum.accumulate(groups + ranks[order]) - groups]
    return latest


@dataclass(frozen=True)
class UpsertedTable:
    """A table made from upserts; an operator on changes, for tables that other operators do not read by primary key.

    ``keys`` is the primary key. ``versions``: the table has all versions that are not older than the watermark.
    """

    values: pa.Schema
    keys: tuple[str, ...]
    versions: bool

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the upserts."""
        return (changes_of(self.values),)

    @property
    def output(self) -> pa.Schema:
        """Schema of the changes."""
        return changes_of(self.values)

    @property
    def lag(self) -> int | None:
        """Changes begin at the watermark at the earliest."""
        return 0 if self.versions else None

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Apply the upserts of a batch to a bucket; see ``TableOperator``."""
        (upserts,) = changes
        held = Slots(store, "rows", held_of(self.values), periods)
        if not upserts.num_rows:
            return OperatorResult(kept=held.rows)
        near = held.of_keys(np.unique(slots_of(upserts, self.keys)).tolist())
        made = changes_from_upserts(upserts, near, self.keys, versions=self.versions, watermark=watermark)
        held.apply(made, slots_of(made, self.keys), watermark)
        held.save()
        starts, ends = periods(made)
        return OperatorResult([made.filter(pa.array(ends > starts)).select(self.output.names)], kept=held.rows)
