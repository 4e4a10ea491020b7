"""The choice of b_out while a replica runs: Algorithm 3 of paper 002 on costs that the replica measures itself.

A replica is one operator with one task. Its time for an interval is ``c_cpu * records + c_emit * packs``: a pack is an
output batch, and c_cpu includes the paper's c_fetch, because Kafka's client makes the input batches. Equation 4.27
gives the least b_out at which the replica keeps up. A record waits in no pack longer than its interval, because buffers
are flushed when it ends.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from millrace_jobs.selection.costs import fit_costs
from millrace_support.batch_sizes import least_output_batch

FETCH_SECONDS = 10e-6
"""Seconds that the job takes to fetch and decode a pack, apart from its records: c_fetch of the consumer.

A replica cannot measure it. With packs of 250 records or fewer, Arrow took 3 µs, and Kafka's client 4 to 6 µs.
"""

OVERHEAD, NEGLIGIBLE = 0.1, 0.01
"""Shares of c_cpu. Packs are so large that emitting and fetching them takes at most the first of a record's time, even
where the replica would keep up with smaller ones. They are never larger than the second asks for: from there on, a
larger pack saves less than the costs' own error."""

UTILIZATION = 0.8
"""Share of its time in which a replica should be done with its records; the rest is for rates that rise."""

LEAST_RECORDS, MOST_RECORDS = 256, 1 << 16
"""Records of a full pack, at least and at most.

Algorithm 3 goes down to 1. Below the first, packs leave no sooner than the interval does, and a few intervals that were
slow for other reasons would be mistaken for records that cost as much as a pack.
"""

_PRIOR = np.array([0.5e-6, 30e-6])
"""Seconds of a record and of a pack before they are measured; only their ratio counts once an interval has run."""

_INTERVALS = 32
"""The last intervals that costs are fitted to."""

_TELLING = 0.5
"""Standard deviation of packs per record, relative to their mean, from which a fit separates the two costs well.

Where the load is steady, that is one interval in 28 with packs of a quarter of the size.
"""


class PackSize:
    """The records of a replica's packs, b_out, set again after each interval.

    Args:
        interval: length of an interval, in seconds.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._seen: deque[tuple[int, int, float]] = deque(maxlen=_INTERVALS)
        self._odd = False
        self.record_seconds, self.pack_seconds = map(float, _PRIOR)
        """Seconds that a record takes apart from its pack, c_cpu, and that a pack takes whatever is in it, c_emit."""

    @property
    def records(self) -> int:
        """Records of a pack for the next interval, b_out.

        While intervals are too much alike to separate the two costs, every second one has packs of a quarter of that.
        """
        best = self._best()
        return max(LEAST_RECORDS // 4, best // 4) if self._odd and not self._separate() else best

    def observe(self, records: int, packs: int, seconds: float) -> None:
        """Learn from an interval: the records that were placed, the packs they made, and the seconds it took."""
        if records and packs and seconds > 0:
            self._seen.append((records, packs, seconds))
            seen = np.array(self._seen)
            self.record_seconds, self.pack_seconds = map(float, fit_costs(seen[:, :2], seen[:, 2], _PRIOR))
        self._odd = not self._odd

    def _best(self) -> int:
        """Return b_out for the highest rate of the last intervals: equation 4.27, within the two shares of c_cpu."""
        cost = max(self.record_seconds, 1e-3 * float(_PRIOR[0]))  # a fit may leave records nothing
        pack = self.pack_seconds + FETCH_SECONDS
        least, most = pack / (OVERHEAD * cost), pack / (NEGLIGIBLE * cost)
        rate = max((records for records, _, _ in self._seen), default=0) / self._interval / UTILIZATION
        keeping_up = least_output_batch(self.pack_seconds, cost, rate) if rate * cost < 1 else math.inf
        return max(LEAST_RECORDS, math.ceil(min(max(least, keeping_up), most, MOST_RECORDS)))

    def _separate(self) -> bool:
        """Return whether the intervals differ enough in packs per record."""
        shares = np.array([packs / records for records, packs, _ in self._seen])
        return len(shares) > 1 and float(shares.std()) > _TELLING * float(shares.mean())
