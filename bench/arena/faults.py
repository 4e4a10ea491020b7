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
_RESET = 15.0
"""Seconds in which a decision may be by counters of before and after a reset; later all metrics are right again."""


@dataclass(frozen=True)
class Faulted:
    """A case with a fault, and how often the plan was changed while the metrics were wrong."""

    case: str
    fault: str
    rescales: int


def faulted(name: str, scenario: Scenario, seed: int) -> Iterable[Faulted]:
    """Run ours through the busiest part of a scenario with each fault that it can have there."""
    scenario = replace(scenario, trace=busiest(scenario.trace, _SECONDS))
    for fault in Fault:
        wrong = replace(scenario.metrics, faults=(FaultyTime(fault, _SINCE, _UNTIL),))
        rescales = _run(replace(scenario, metrics=wrong), seed).rescales
        if fault is Fault.FORMER_PLAN and not any(rescale.time < _SINCE for rescale in rescales):
            continue  # there was no other plan before
        until = _SINCE + _RESET if fault is Fault.COUNTER_RESET else _UNTIL
        yield Faulted(name, fault, sum(_SINCE + _ARRIVAL <= rescale.time < until for rescale in rescales))


def _run(scenario: Scenario, seed: int) -> Run:
    return simulate(scenario, POLICIES[OURS](scenario), seed)
