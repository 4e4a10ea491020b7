"""Whether a fault of the metrics scales a job: the busiest minutes of every trace, with each fault for a while."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from millrace_operator.arena.registry import OURS, POLICIES
from millrace_operator.arena.run import busiest
from millrace_operator.simulation.metrics import Fault, FaultyTime
from millrace_operator.simulation.run import Run, Scenario, simulate

_SECONDS = 900.0
"""Of the trace, its busiest; the fault begins after half of them, and lasts for a third."""
_SINCE, _UNTIL = _SECONDS / 2, _SECONDS * 5 / 6
_ARRIVAL = 6.0
"""Seconds until what was scraped before a fault has arrived: a decision by that is none by the fault."""


@dataclass(frozen=True)
class Faulted:
    """A case with a fault.

    Attributes:
        case, fault: their names.
        rescales: changes of the plan while the metrics were wrong.
        ordinary: of these, those to a plan that the job had at some time without the fault as well.
    """

    case: str
    fault: str
    rescales: int
    ordinary: int

    @property
    def unsound(self) -> int:
        """Rescales that follow from the fault; once counters have begun anew, metrics are right again."""
        return self.rescales - (self.ordinary if self.fault == Fault.COUNTER_RESET else 0)


def faulted(name: str, scenario: Scenario, seed: int) -> Iterable[Faulted]:
    """Run ours through the busiest part of a scenario with each fault."""
    scenario = replace(scenario, trace=busiest(scenario.trace, _SECONDS))
    sound = {rescale.after for rescale in _run(scenario, seed).rescales}
    for fault in Fault:
        wrong = replace(scenario.metrics, faults=(FaultyTime(fault, _SINCE, _UNTIL),))
        rescales = _run(replace(scenario, metrics=wrong), seed).rescales
        during = [rescale for rescale in rescales if _SINCE + _ARRIVAL <= rescale.time < _UNTIL]
        yield Faulted(name, fault, len(during), sum(rescale.after in sound for rescale in during))


def _run(scenario: Scenario, seed: int) -> Run:
    return simulate(scenario, POLICIES[OURS](scenario), seed)
