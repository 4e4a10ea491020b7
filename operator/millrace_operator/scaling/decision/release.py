"""Whether a release of executors pays: for how long they will be spared, and what it costs to have them back.

A smaller plan is enough until the load rises above what it can take. For how long follows from the last hours: the
times for which it would have been enough, and how often they ended. A release that ends costs two rescales, and late
batches until executors are there again. If it spares E executors for T seconds on average, and an end
costs C, then E - C / T executors are saved in the long run, by the renewal-reward theorem; the best plan saves most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..seasons import in_words
from ..shape import Vector
from .settings import Costs

_UNSEEN_SECONDS, _UNSEEN_ENDS = 2400.0, 1
"""What is assumed beside what was seen: a release that lasts 40 minutes. The figures were chosen on the arena's tuning
loads."""


@dataclass(frozen=True)
class Spared:
    """For how many ``seconds`` in all a plan would have been enough, and how often that ended."""

    seconds: float
    ends: int

    def at_least(self, seconds: float) -> Spared:
        """Return the same, but so long if it never ended, as where the load was low before the rates that are kept."""
        return self if self.ends else Spared(max(self.seconds, seconds), 0)

    @property
    def expected(self) -> float:
        """Seconds for which it is expected to be enough: the mean, with one time that was not seen."""
        return (self.seconds + _UNSEEN_SECONDS) / (self.ends + _UNSEEN_ENDS)


@dataclass(frozen=True)
class Release:
    """A release of so many ``executors`` for the plan of a ``candidate``, and what its end costs.

    ``cost`` is in seconds of an executor.
    """

    candidate: int
    executors: float
    spared: Spared
    cost: float

    @property
    def gain(self) -> float:
        """Executors that it saves in the long run, what it costs to have them back included; negative if it loses."""
        return self.executors - self.cost / self.spared.expected

    def __str__(self) -> str:
        expected, least = in_words(self.spared.expected), in_words(self.cost / self.executors)
        return (
            f"what could be released is expected to be needed again after {expected}, and has to be spared for more "
            f"than {least} to pay for its return"
        )


def spared(rates: Vector, width: float, capacity: float, delay: float) -> Spared:
    """Return for how long a plan that takes ``capacity`` records per second would have been enough.

    Times count from ``delay`` seconds after their beginning on, since nothing is released before that.

    Args:
        rates: mean records per second in slots of ``width`` seconds, oldest first; shape ``(slots,)``, NaN where
            unknown, which is left out.
        width: seconds of a slot.
        capacity: records per second.
        delay: seconds.
    """
    enough = np.concatenate([[False], rates[~np.isnan(rates)] <= capacity, [False]])
    edges = np.flatnonzero(enough[1:] != enough[:-1])
    begins, ends = edges[::2], edges[1::2]
    seconds = (ends - begins) * width - delay
    lasted = seconds > 0
    return Spared(float(seconds[lasted].sum()), int((lasted & (ends < len(enough) - 2)).sum()))


def cost_of_return(costs: Costs, late: float) -> float:
    """Return what the end of a release costs, in seconds of an executor, if batches are late for ``late`` seconds."""
    return 3600 * (2 * costs.rescale + late / 60 * costs.late_minute)
