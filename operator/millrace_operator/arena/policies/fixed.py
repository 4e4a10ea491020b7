"""``fixed-mean`` and ``fixed-peak``: no scaling at all, for the mean load of the trace, or for its peak.

What a user does who has measured the job and knows the load, once and for all. The one for the peak is always within
the interval while keys stay as they are; the one for the mean costs least of those that can ever catch up.
"""

from __future__ import annotations

from ...scaling.observation import Answer
from ...scaling.plans import Shape
from ...simulation.run import ClusterView


class Fixed:
    """One plan throughout."""

    period = 60.0

    def __init__(self, name: str, plan: Shape) -> None:
        self.name = name
        self._plan = plan

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
        """The same as ever; only a job that began otherwise is changed, once."""
        return self._plan
