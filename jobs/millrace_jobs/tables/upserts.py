"""Changes of a table from upserts: records that set the row of a key from a time on, or delete it (definition 55)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from millrace_jobs.tables.changes import FOREVER, FROM, TO, WEIGHT, changed_periods, changes_of, negated, net, periods
from millrace_jobs.tables.matching import Integers, key_codes
from millrace_jobs.tables.operator import BucketStore, OperatorResult
from millrace_jobs.tables.state import Slots, slots_of

TOMBSTONE: Final = -2
"""Weight of an upsert that deletes its key, from its time on, but not from before a row of the key that came before it.

The time of such an upsert is only an estimate, and it deletes what its table has, whatever the estimate.
"""


def changes_from_upserts(upserts: pa.Table, held: pa.Table, keys: Sequence[str], *, versions: bool) -> pa.Table:
    """Return the changes that upserts make to the rows that are held of a table.

    An upsert at time t replaces the version of its key that was valid at t, until the key's next version. Of several
    upserts of one key at one time, the last one to arrive counts. An upsert that arrives late thus corrects the table
    from its own time to that of the next version. So that this is right after a delete too, the delete is held as a row
    with an empty period.

    Args:
        upserts: ``FROM`` is the time of each, and ``TO`` its position in the order of arrival, or equal for all if they
            are in this order. ``WEIGHT`` is 1 for a row, and -1 or ``TOMBSTONE`` for a delete.
        held: all rows held with the keys of the upserts, and possibly others.
        keys: the columns of the table's primary key.
        versions: whether all versions are held. Otherwise only the latest one is, from its own time on.

    Returns:
        Changes of the rows held, with the schema of ``held``.
    """
    upserts = upserts.take(pa.array(np.argsort(upserts.column(TO).to_numpy(), kind="stable")))
    codes, held_codes = key_codes([upserts, held], [keys, keys])
    touched = np.isin(held_codes, codes)
    before = held.filter(pa.array(touched))
    rows = pa.concat_tables([before, upserts.select(before.schema.names).cast(before.schema)])
    after = _held_after(rows, np.concatenate([held_codes[touched], codes]), before.num_rows, versions=versions)
    return net(pa.concat_tables([negated(before), after]))


def _held_after(rows: pa.Table, codes: Integers, held: int, *, versions: bool) -> pa.Table:
    """Return what is held after upserts, which follow the first ``held`` rows."""
    starts, ends, weights = (rows.column(name).to_numpy() for name in (FROM, TO, WEIGHT))
    deletes = np.where(np.arange(len(codes)) < held, ends == starts, weights < 0)
    starts = np.where(weights == TOMBSTONE, _latest_so_far(starts, codes), starts)
    order = np.lexsort((np.arange(len(codes)), starts, codes))
    codes, starts = codes[order], starts[order]
    same_key = codes[1:] == codes[:-1]
    counts = np.ones(len(codes), dtype=bool)
    counts[:-1] = ~(same_key & (starts[1:] == starts[:-1])) if versions else ~same_key
    order, codes, starts = order[counts], codes[counts], starts[counts]
    stops = np.full(len(codes), FOREVER)
    stops[:-1] = np.where(codes[1:] == codes[:-1], starts[1:], FOREVER)
    stops = np.where(deletes[order], starts, stops)
    return changed_periods(rows.take(pa.array(order)), starts, stops, np.ones(len(codes), dtype=np.int64))


def _latest_so_far(starts: Integers, codes: Integers) -> Integers:
    """Return, for each row, the latest start of the rows of its key so far, itself included."""
    times, ranks = np.unique(starts, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    groups = np.unique(codes[order], return_inverse=True)[1] * len(times)
    latest = np.empty(len(codes), dtype=np.int64)
    latest[order] = times[np.maximum.accumulate(groups + ranks[order]) - groups]
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

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Apply the upserts of a batch to a bucket; see ``TableOperator``."""
        (upserts,) = changes
        held = Slots(store, "rows", self.output, periods)
        if not upserts.num_rows:
            return OperatorResult(kept=held.rows)
        near = held.of_keys(np.unique(slots_of(upserts, self.keys)).tolist())
        made = changes_from_upserts(upserts, near, self.keys, versions=self.versions)
        held.apply(made, slots_of(made, self.keys), watermark)
        held.save()
        starts, ends = periods(made)
        return OperatorResult([made.filter(pa.array(ends > starts))], kept=held.rows)
