"""Runs that show whether faulty metrics cause rescales: the busiest minutes of each trace, once with each fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from millrace_arena.comparison import OURS, POLICIES
from millrace_arena.scenarios import busiest
from millrace_arena.simulation.metrics import Fault, FaultyTime
from millrace_arena.simulation.record import SimulatedRun
from millrace_arena.simulation.run import Scenario, simulate

_SECONDS = 900.0
"""Length of the busiest part of a trace, in seconds. The fault begins halfway through it and lasts a third of it."""
_SINCE, _UNTIL = _SECONDS / 2, _SECONDS * 5 / 6
_ARRIVAL = 6.0
"""Seconds until metrics scraped before a fault have arrived. A decision based on them is not due to the fault."""
_RESET = 15.0
"""Seconds in which a decision may mix counters from before and after a reset. Later, all metrics are correct again."""


@dataclass(frozen=True)
class Faulted:
    """A case with one fault, and the number of rescales while the metrics were wrong."""

    case: str
    fault: str
    rescales: int


def faulted(name: str, scenario: Scenario, seed: int) -> Iterable[Faulted]:
    """Run Millrace's policy through the busiest part of a scenario, once with each fault that can occur there."""
    scenario = replace(scenario, trace=busiest(scenario.trace, _SECONDS))
    for fault in Fault:
        wrong = replace(scenario.metrics, faults=(FaultyTime(fault, _SINCE, _UNTIL),))
        rescales = _run(replace(scenario, metrics=wrong), seed).rescales
        if fault is Fault.FORMER_PLAN and not any(rescale.time < _SINCE for rescale in rescales):
            continue  # there is no former plan to report
        until = _SINCE + _RESET if fault is Fault.COUNTER_RESET else _UNTIL
        yield Faulted(name, fault, sum(_SINCE + _ARRIVAL <= rescale.time < until for rescale in rescales))


def _run(scenario: Scenario, seed: int) -> SimulatedRun:
    return simulate(scenario, POLICIES[OURS](scenario), seed)
