"""``millrace``: the operator's own policy, run by the same code (``scaling.decision``) with its defaults."""

from __future__ import annotations

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Shape


class MillracePolicy:
    """A policy that sets executors, parallelism and replicas by a model of the job, calibrated while the job runs."""

    name = "millrace"
    period = 5.0

    def __init__(self, bounds: Bounds, state_partitions: int) -> None:
        self._scaler = Scaler(Settings(), bounds, state_partitions)

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the plan that the scaler chooses."""
        return self._scaler.step(answer, situation).plan
