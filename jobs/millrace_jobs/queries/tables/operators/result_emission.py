"""When results of joins are emitted, apart from the join that makes them (section 5.3.2).

The strategies differ in which results wait, and until when:

- *every update*: none; a result without a partner is replaced when one comes;
- *lazy outer results*: those without a partner, until event time has passed the last possible one; no others;
- *final*: all that can change, until the watermark says that they cannot.

What is taken back before it was emitted, no output sees. One operator serves several outputs, as for groups
(``operators.emission``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.changes import FOREVER, OUTPUT, changes_of, net, values_of
from millrace_jobs.queries.tables.operators.closing import CLOSINGS
from millrace_jobs.queries.tables.operators.emission import emitted_to
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult
from millrace_jobs.queries.tables.operators.state import SLOTS, GroupSlots

_TIMES_IN_SLOT = 22
"""Results that wait until about the same time (4 s) are in one slot, so that a batch reads and writes few of them."""


@dataclass(frozen=True)
class Hold:
    """What an output holds back: results until the time in a column of ``CLOSINGS``, less ``ahead`` microseconds."""

    until: str
    ahead: int = 0


@dataclass(frozen=True)
class ResultEmission:
    """The emission of results of joins; an operator on changes.

    Attributes:
        results: schema of the changes of the results, with the columns of ``CLOSINGS``.
        holds: what each output holds back; None is nothing.
        slots: number of tables that the held rows of an output are cut into; it stays while the state exists.
    """

    results: pa.Schema
    holds: tuple[Hold | None, ...]
    slots: int = SLOTS

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the changes of the results."""
        return (self.results,)

    @property
    def output(self) -> pa.Schema:
        """The values of the results, with the output that each change is for."""
        values = [field for field in values_of(self.results) if field.name not in CLOSINGS.names]
        return changes_of(pa.schema([*values, (OUTPUT, pa.int32())]))

    @property
    def lag(self) -> int | None:
        """None: no operator reads what is emitted."""
        return None

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Take the changes of a batch, and emit what is due by the watermark; see ``TableOperator``."""

        def due(held: GroupSlots, hold: Hold) -> pa.Table:
            return self._due(held, changes[0], watermark, hold)

        return emitted_to(self.holds, changes[0], due, store, self.results, self.slots, self.output)

    def _due(self, held: GroupSlots, changes: pa.Table, watermark: int, hold: Hold) -> pa.Table:
        """Return the changes of one output that are due, and hold back all others."""
        waits = changes.filter(pa.array(_times(changes, hold) > watermark))
        touched = np.union1d(self._slots_of(waits, hold), held.due(watermark))
        before, _ = held.read(touched)
        rows = net(pa.concat_tables([before, changes])) if before.num_rows or waits.num_rows else changes
        times = _times(rows, hold)
        kept = rows.filter(pa.array(times > watermark))
        slots, deadlines = self._slots_of(kept, hold), np.full(len(touched), FOREVER)
        np.minimum.at(deadlines, np.searchsorted(touched, slots), times[times > watermark])
        if len(touched):
            held.write(touched, kept, slots, deadlines)
        return rows.filter(pa.array(times <= watermark))

    def _slots_of(self, rows: pa.Table, hold: Hold) -> NDArray[np.int64]:
        return ((_times(rows, hold) >> _TIMES_IN_SLOT) % self.slots).astype(np.int64)


def _times(rows: pa.Table, hold: Hold) -> NDArray[np.int64]:
    """Return the watermark at which each row is emitted first; FOREVER if it waits forever."""
    times: NDArray[np.int64] = rows.column(hold.until).to_numpy()
    return np.where((times == FOREVER) | (times < np.iinfo(np.int64).min + hold.ahead), times, times - hold.ahead)
