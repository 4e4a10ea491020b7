"""What can be reached on the recorded loads with few changes of executors, by whoever knows the load or batch times.

    python -m bench.arena.reach [--hours H] [--tuned] [--faults] [--write]

For each load there is the least cost with the whole load known and at most 0.6 % of the batches late, 24 changes of
executors and four reversals a day, and what a controller that knows all batch times, and none or little of the load
ahead, makes of it. With ``--faults`` executors are lost, which neither of them foresees.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from bench.arena.cases import recordings
from bench.arena.fronts import PAGE, with_faults
from millrace_research.arena.comparison import run_policy
from millrace_research.arena.figures import figures
from millrace_research.arena.known_job import known_job
from millrace_research.arena.policies.known_times import KnownTimesPolicy, KnownTimesSetting
from millrace_research.arena.policies.limited import ChangeLimits, limited
from millrace_research.arena.policies.oracle import Batches, bound
from millrace_research.arena.scenarios import ScenarioSetting, recorded
from millrace_research.arena.simulation.run import Scenario
from millrace_research.arena.simulation.trace_files import read_trace
from millrace_research.arena.simulation.traces import DAY
from millrace_research.docs_pages import replace_between

BEGIN, END = "<!-- reach: written by python -m bench.arena.reach --write -->", "<!-- end of reach -->"
MOST_LATE, MOST_CHANGES, MOST_REVERSALS, MOST_COST = 0.006, 24.0, 4.0, 1.2
"""The largest share of late batches, changes and reversals a day, and cost over the bound."""

SETTINGS = {
    "180 s": KnownTimesSetting(hold=180.0, doubling=False),
    "600 s, doubled by reversals": KnownTimesSetting(hold=600.0, doubling=True),
    "180 s, next 20 minutes known": KnownTimesSetting(hold=180.0, doubling=False, ahead=1200.0),
}
"""Settings of the controller by name."""


@dataclass(frozen=True)
class Reached:
    """Late batches as a share, core-hours over the bound, and changes of executors and reversals a day."""

    late: float
    cost: float
    changes: float
    reversals: float

    @property
    def met(self) -> bool:
        """Whether all four are within their limits, of which changes are whole numbers."""
        few = self.changes <= MOST_CHANGES and self.reversals <= MOST_REVERSALS
        return few and self.late <= MOST_LATE and self.cost <= MOST_COST


@dataclass(frozen=True)
class LoadReach:
    """What is reached on a load: with the load known, and by the controller at each of ``SETTINGS``.

    ``least`` is the cost over the bound that any run with so few late batches and changes has at least.
    """

    load: str
    hours: float
    known: Reached
    least: float
    online: tuple[Reached, ...]


def reach(scenario: Scenario, load: str, seed: int = 0, faults: bool = False) -> LoadReach:
    """Return what is reached in a scenario."""
    scenario = with_faults(scenario) if faults else scenario
    job, days = known_job(scenario.job, scenario.bounds), scenario.trace.duration / DAY
    free = bound(scenario, job, seed)
    limits = ChangeLimits(MOST_LATE * len(free.batches), MOST_CHANGES * days, MOST_REVERSALS * days)
    best, least = limited(Batches(scenario, job, seed), limits)
    late, changes, reversals = best.counts
    known = Reached(late / len(free.batches), best.core_seconds / free.core_seconds, changes / days, reversals / days)
    online = tuple(_online(scenario, setting, free.core_hours, seed) for setting in SETTINGS.values())
    return LoadReach(load, 24 * days, known, least / free.core_seconds, online)


def _online(scenario: Scenario, setting: KnownTimesSetting, least: float, seed: int) -> Reached:
    run = run_policy(scenario, KnownTimesPolicy(scenario, setting), seed)
    found = figures(run, scenario.trace, scenario.bounds, least)
    days = scenario.trace.duration / DAY
    changes = sum(change.before.executors != change.after.executors for change in run.rescales)
    return Reached(found.violations, found.over_oracle or 0.0, changes / days, found.reversals / days)


def text(found: Sequence[LoadReach], command: str) -> str:
    """Return the table of the page."""
    online = "".join(f" controller, {name} | changes, reversals a day |" for name in SETTINGS)
    lines = [
        f"| load | hours | load known | changes, reversals a day | at least |{online}",
        "|---|" + "---:|" * (4 + 2 * len(SETTINGS)),
    ]
    for one in sorted(found, key=lambda one: one.load.lower()):
        cells = " | ".join(map(_cells, one.online))
        lines.append(f"| {one.load} | {one.hours:.1f} | {_cells(one.known)} | {one.least:.2f} | {cells} |")
    met = [f"load known: {sum(one.known.met for one in found)}"]
    for number, name in enumerate(SETTINGS):
        met.append(f"controller, {name}: {sum(one.online[number].met for one in found)}")
    return "\n".join(
        (
            *lines,
            "",
            f"Loads of {len(found)} within all limits ({command}): {'; '.join(met)}.",
        )
    )


def _cells(found: Reached) -> str:
    return f"{found.late:.2%}, {found.cost:.2f} | {found.changes:.0f}, {found.reversals:.0f}"


def main() -> None:
    """Run the loads one after another, and print the table or write it into the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.arena.reach", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="longest run: the busiest hours of a recording")
    parser.add_argument("--tuned", action="store_true", help="the loads that rules were tuned on, not the others")
    parser.add_argument("--faults", action="store_true", help="executors are lost, and start slowly")
    parser.add_argument("--write", action="store_true", help="write the table into docs/autoscaling.md")
    chosen = parser.parse_args()
    found = []
    for file in recordings(tuned=chosen.tuned):
        scenario = recorded(read_trace(file), ScenarioSetting(longest=3600 * chosen.hours))
        found.append(reach(scenario, file.stem, faults=chosen.faults))
        print(found[-1], flush=True)
    given = "".join(f" --{name}" for name in ("tuned", "faults") if getattr(chosen, name))
    table = text(found, f"`python -m bench.arena.reach --hours {chosen.hours:g}{given}`")
    print(table)
    if chosen.write:
        replace_between(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
