"""Millrace's policy in a job with the product's admission control, which the other policies run without."""

from __future__ import annotations

from dataclasses import replace

from millrace_jobs.run.admission import Admission, FinishedBatch
from millrace_jobs.run.steering import FIRST_SECONDS, PYTHON_RATE
from millrace_operator.scaling.decision.settings import Settings
from millrace_research.arena.comparison import OURS, compare
from millrace_research.arena.figures import RunFigures
from millrace_research.arena.simulation.run import Scenario

DEPLOYED = f"{OURS}, deployed"
"""Name of this variant among the policies."""

_STREAM = "stream"
_PLENTY = 1 << 40
"""Number of records that fit into memory: in practice, no limit."""


class AsDeployed:
    """Admission control by the job's own code, with the operator's default target."""

    def __init__(self, interval: float) -> None:
        """Start admission control for batches of ``interval`` seconds."""
        first = int(PYTHON_RATE * FIRST_SECONDS)
        self._admission = Admission(Settings().target * interval, interval, first)
        self._interval = interval
        self._last: FinishedBatch | None = None
        self._waiting = 0
        self._since = interval
        """Seconds between the planning of the last two batches."""

    def limit(self, waiting: int) -> int:
        """Return the most records of the next batch; ``waiting`` records were left when the last batch was planned."""
        if self._last is not None:
            arrived = self._last.rows + waiting - self._waiting
            self._admission.finished(replace(self._last, arrived=int(arrived * self._interval / self._since)))
            self._since = max(self._last.seconds, self._interval)
        self._waiting = waiting
        return self._admission.shares({_STREAM: waiting}, _PLENTY)[_STREAM]

    def finished(self, rows: int, seconds: float, work: float, plan: object) -> None:
        """Record a finished batch."""
        self._last = FinishedBatch(rows, seconds, work, plan)


def deployed(scenario: Scenario, seed: int, oracle_core_hours: float) -> RunFigures:
    """Return the figures of Millrace's policy in a job with admission control."""
    scenario = replace(scenario, job=replace(scenario.job, admission=AsDeployed))
    (found,) = compare(scenario, [OURS], seed).figures
    return replace(found, policy=DEPLOYED, over_oracle=found.core_hours / oracle_core_hours)
