"""``fixed-mean`` and ``fixed-peak``: a fixed plan for the mean load of the trace, or for its peak.

This is the choice of a user who has measured the job and knows the load. The plan for the peak keeps batches within the
interval as long as the keys do not change. The plan for the mean is the cheapest that can ever catch up.
"""

from __future__ import annotations

from millrace_arena.simulation.run import ClusterView
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Shape


class Fixed:
    """A policy that keeps one plan throughout."""

    period = 60.0

    def __init__(self, name: str, plan: Shape) -> None:
        self.name = name
        self._plan = plan

    def step(self, answer: Answer | None, now: float, plan: Shape, epoch: int, cluster: ClusterView) -> Shape | None:
        """Return the fixed plan; it changes a job only once, if the job started with another plan."""
        return self._plan
