"""Early batch release (paper 004, section 4.2 and Figure 7): the batch is cut before the heartbeat that ends it.

The batching cut-off comes before the processing cut-off (the heartbeat) by a slack. The partitioner works during this
slack, so that the blocks are ready at the heartbeat. The paper found 5 % of the batch interval to be enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

MOST_SLACK = 0.05
"""The largest slack, as a fraction of the batch interval."""

_PAST = 8  # partitioning times that are remembered


@dataclass(frozen=True)
class EarlyRelease:
    """The moments to cut batches, learnt from past partitioning times. All times are in one unit, of any clock."""

    interval: float
    """The batch interval."""
    past: tuple[float, ...] = ()
    """Partitioning times of the past few batches, the latest last."""

    def __post_init__(self) -> None:
        """Raise ValueError unless the interval is above 0 and no past time below it."""
        if not (math.isfinite(self.interval) and self.interval > 0):
            raise ValueError(f"the batch interval is {self.interval!r}; write a number above 0")
        for taken in self.past:
            if not (math.isfinite(taken) and taken >= 0):
                raise ValueError(f"partitioning took {taken!r}; write a number of at least 0")

    @property
    def slack(self) -> float:
        """Time before the heartbeat at which to cut: the longest of the past few partitioning times.

        It is at most ``MOST_SLACK`` of the interval, which is also its value while no past time is known.
        """
        most = MOST_SLACK * self.interval
        return min(most, max(self.past, default=most))

    def cut_off(self, heartbeat: float) -> float:
        """Return when to cut the batch that is due at ``heartbeat``. Records from then on belong to the next batch."""
        return heartbeat - self.slack

    def learnt(self, taken: float) -> EarlyRelease:
        """Return what is known after a batch that took ``taken`` to partition. Raises ValueError if it is below 0."""
        return replace(self, past=(*self.past, taken)[-_PAST:])
