"""Ours in a job that limits its batches as the product's job does; rivals have no part in that."""

from __future__ import annotations

from dataclasses import replace

from millrace_jobs.agent.admission import Admission
from millrace_operator.arena.figures import Figures
from millrace_operator.arena.registry import OURS
from millrace_operator.arena.run import compare
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.simulation.run import Scenario

DEPLOYED = f"{OURS}, deployed"
"""Its name among the policies."""

_STREAM = "stream"


class AsDeployed:
    """Admission control by the job's own code, with the operator's default target."""

    def __init__(self, interval: float) -> None:
        """``interval`` seconds are those of a batch."""
        self._admission = Admission(Settings().target * interval, interval)

    def limit(self, waiting: int) -> int:
        """The most records of the next batch."""
        return self._admission.shares({_STREAM: waiting})[_STREAM]

    def finished(self, rows: int, seconds: float, plan: object) -> None:
        """Take in a batch."""
        self._admission.finished(rows, seconds, plan)


def deployed(scenario: Scenario, seed: int, oracle_core_hours: float) -> Figures:
    """The figures of ours in such a job."""
    scenario = replace(scenario, job=replace(scenario.job, admission=AsDeployed))
    (found,) = compare(scenario, [OURS], seed).figures
    return replace(found, policy=DEPLOYED, over_oracle=found.core_hours / oracle_core_hours)
