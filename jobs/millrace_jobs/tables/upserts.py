"""Changes of a table from upserts: records that set the row of a key from a time on, or delete it (definition 55)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millrace_jobs.tables.changes import FOREVER, FROM, TO, WEIGHT, changed_periods, negated, net
from millrace_jobs.tables.matching import Integers, key_codes


def changes_from_upserts(upserts: pa.Table, held: pa.Table, keys: Sequence[str], *, versions: bool) -> pa.Table:
    """Return the changes that upserts make to the rows that are held of a table.

    An upsert at time t replaces the version of its key that was valid at t, until the key's next version. Of several
    upserts of one key at one time, the last one to arrive counts. An upsert that arrives late thus corrects the table
    from its own time to that of the next version. So that this is right after a delete too, the delete is held as a row
    with an empty period.

    Args:
        upserts: in the order of arrival; ``FROM`` is the time of each, and ``WEIGHT`` is -1 for a delete.
        held: all rows held with the keys of the upserts, and possibly others.
        keys: the columns of the table's primary key.
        versions: whether all versions are held. Otherwise only the latest one is, from its own time on.

    Returns:
        Changes of the rows held, with the schema of ``held``.
    """
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
