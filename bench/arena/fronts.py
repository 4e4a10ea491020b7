"""Millrace against rivals at all their settings, on recorded loads that were held back when it was tuned.

    python -m bench.arena.fronts [--hours H] [--seeds N] [--cores C] [--rivals TEXT] [--faults] [--tuned] [--write]

A rival that knows no model needs its setting tuned to the job, so that each is run at several, and once more with the
best parallelism and replicas for its executors, which it could not know. What counts is how many of its
settings have fewer late batches for fewer core-hours. Costs are over the oracle's, which is a bound.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from bench.arena.cases import recordings
from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.comparison import OURS, POLICIES, lag_policy, run, run_policy
from millrace_research.arena.figures import RunFigures, figures
from millrace_research.arena.known_job import known_job
from millrace_research.arena.policies.hpa import CpuPolicy
from millrace_research.arena.policies.oracle import ORACLE
from millrace_research.arena.scenarios import ScenarioSetting, recorded
from millrace_research.arena.simulation.run import PlacedShape, ScalingPolicy, Scenario
from millrace_research.arena.simulation.trace_files import read_trace
from millrace_research.docs_pages import replace_between

PAGE = Path(__file__).parents[2] / "docs" / "autoscaling.md"
BEGIN, END = "<!-- fronts: written by python -m bench.arena.fronts --write -->", "<!-- end of fronts -->"
_PROCESSES = 2
_CORES = 16
"""Cores of all executors at most."""
_LOST_EVERY, _STARTS, _MISSING = 7200.0, 40.0, 0.1
"""With faults: mean seconds until an executor is lost, of which there are about four; median start; missed scrapes."""

Maker = Callable[[Scenario], ScalingPolicy]


class WithBestTasks:
    """A policy that leaves parallelism and replicas to one that knows the job."""

    def __init__(self, policy: ScalingPolicy, scenario: Scenario) -> None:
        self.name, self.period = policy.name, policy.period
        self._policy, self._keys = policy, scenario.keys
        self._job = known_job(scenario.job, scenario.bounds)

    def step(self, answer: Answer | None, situation: Situation) -> Shape | None:
        """Return the best plan with the executors that the policy asks for."""
        wanted = self._policy.step(answer, situation) or situation.plan
        shape = wanted.shape if isinstance(wanted, PlacedShape) else wanted
        return self._job.shape(shape.executors, self._keys.at(situation.now))


def rivals() -> Mapping[str, Maker]:
    """Return the rivals by name and setting."""
    plain: dict[str, Maker] = {"`spark-ratio`": POLICIES["spark-ratio"]}
    for target in (0.5, 0.6, 0.7, 0.8):
        plain[f"`cpu`, {target:.0%}"] = partial(_cpu, target)
    for share in (0.5, 0.75, 1.0):
        plain[f"`lag`, {share:g} of the capacity"] = partial(lag_policy, share=share)
    return plain | {f"{name}, best tasks": partial(_shaped, maker) for name, maker in plain.items()}


def _cpu(target: float, scenario: Scenario) -> ScalingPolicy:
    return CpuPolicy(scenario.bounds, target)


def _shaped(maker: Maker, scenario: Scenario) -> ScalingPolicy:
    return WithBestTasks(maker(scenario), scenario)


@dataclass(frozen=True)
class LoadRun:
    """A load with a seed: its hours, and the figures of Millrace, of the oracle, and of all settings of rivals."""

    load: str
    hours: float
    figures: Mapping[str, RunFigures]


def run_load(file: Path, setting: ScenarioSetting, faults: bool, only: str = "") -> LoadRun:
    """Run Millrace, the oracle and the rivals whose names contain ``only`` through the busiest hours of a recording."""
    scenario, seed = recorded(read_trace(file), setting), setting.seed
    if faults:
        scenario = with_faults(scenario)
    runs = {name: run(scenario, name, seed) for name in (ORACLE, OURS)}
    chosen = {name: maker for name, maker in rivals().items() if only in name}
    runs |= {name: run_policy(scenario, maker(scenario), seed) for name, maker in chosen.items()}
    least = runs[ORACLE].core_hours
    found = {name: figures(each, scenario.trace, scenario.bounds, least) for name, each in runs.items()}
    return LoadRun(file.stem, scenario.trace.duration / 3600, found)


def with_faults(scenario: Scenario) -> Scenario:
    """Return the scenario with executors that are lost or start slowly, and with missed scrapes."""
    cluster = replace(scenario.cluster, lost_every=_LOST_EVERY, start_seconds=_STARTS)
    return replace(scenario, cluster=cluster, metrics=replace(scenario.metrics, missing=_MISSING))


def medians(runs: Iterable[LoadRun], name: str) -> dict[str, tuple[float, float]]:
    """Return a policy's violations, and core-hours over the oracle's, by load: medians over seeds."""
    by_load: dict[str, list[RunFigures]] = {}
    for each in runs:
        by_load.setdefault(each.load, []).append(each.figures[name])
    return {
        load: (
            statistics.median(one.violations for one in found),
            statistics.median(one.over_oracle or 0.0 for one in found),
        )
        for load, found in by_load.items()
    }


def text(runs: list[LoadRun], command: str) -> str:
    """Return the tables of the page."""
    ours = medians(runs, OURS)
    met = sum(late <= 0.006 and cost <= 1.2 for late, cost in ours.values())
    spread = [
        max(seeds) - min(seeds)
        for load in ours
        if len(seeds := [each.figures[OURS].violations for each in runs if each.load == load]) > 1
    ]
    said = f"; violations differ by {statistics.median(spread):.2%} between seeds (median)" if spread else ""
    return "\n\n".join(
        (
            _rows(runs, ours),
            f"{len(ours)} loads, {len(runs)} runs of each policy, medians over seeds ({command}){said}. "
            f"At most 0.6 % late at 1.20 of the bound: `{OURS}` on {met} loads.",
            _by_load(runs, ours),
        )
    )


def _rows(runs: list[LoadRun], ours: Mapping[str, tuple[float, float]]) -> str:
    lines = [
        f"| policy | violations | core-hours (bound = 1) | rescales a day | reversals a day | loads with both better "
        f"than `{OURS}` |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    hours = sum(each.hours for each in runs)
    for name in runs[0].figures:
        found = medians(runs, name)
        better = sum(late < ours[load][0] and cost < ours[load][1] for load, (late, cost) in found.items())
        rescales, reversals = (
            24 * sum(count) / hours
            for count in zip(
                *((each.figures[name].rescales, each.figures[name].reversals) for each in runs), strict=True
            )
        )
        lines.append(
            f"| {name if name[0] == '`' else f'`{name}`'} | {statistics.fmean(late for late, _ in found.values()):.2%} "
            f"| {statistics.fmean(cost for _, cost in found.values()):.2f} | {rescales:.0f} | {reversals:.1f} "
            f"| {'-' if name in (OURS, ORACLE) else better} |"
        )
    return "\n".join(lines)


def _by_load(runs: list[LoadRun], ours: Mapping[str, tuple[float, float]]) -> str:
    lines = [
        "| load | hours | violations | core-hours (bound = 1) | rescales | reversals |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for load in sorted(ours, key=str.lower):
        found = [each for each in runs if each.load == load]
        late, cost = ours[load]
        rescales, reversals = (
            statistics.median(getattr(each.figures[OURS], name) for each in found) for name in ("rescales", "reversals")
        )
        lines.append(f"| {load} | {found[0].hours:.1f} | {late:.2%} | {cost:.2f} | {rescales:g} | {reversals:g} |")
    return "\n".join(lines)


def main() -> None:
    """Run the loads in two processes, and print the tables or write them into the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.arena.fronts", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="longest run: the busiest hours of a recording")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--cores", type=int, default=2, help=f"cores of an executor, of {_CORES} in all")
    parser.add_argument("--faults", action="store_true", help="lose executors, start them slowly, miss scrapes")
    parser.add_argument(
        "--tuned", action="store_true", help="the loads that rules were tuned on, instead of the others"
    )
    parser.add_argument(
        "--rivals", default="", help="only those whose name contains this, such as lag; none without any"
    )
    parser.add_argument("--write", action="store_true", help="write the tables into docs/autoscaling.md")
    chosen = parser.parse_args()
    files = recordings(tuned=chosen.tuned)
    setting = ScenarioSetting(
        max_executors=_CORES // chosen.cores, longest=3600 * chosen.hours, executor_cores=chosen.cores
    )
    jobs = [
        (file, replace(setting, seed=seed), chosen.faults, chosen.rivals)
        for seed in range(chosen.seeds)
        for file in files
    ]
    with get_context("spawn").Pool(_PROCESSES) as pool:
        runs = pool.starmap(run_load, jobs, chunksize=1)
    given = f"--hours {chosen.hours:g} --seeds {chosen.seeds} --cores {chosen.cores}{' --faults' * chosen.faults}"
    given += f" --rivals {chosen.rivals!r}" if chosen.rivals else ""
    tables = text(runs, f"`python -m bench.arena.fronts {given}`")
    print(tables)
    if chosen.write:
        replace_between(PAGE, BEGIN, END, tables)


if __name__ == "__main__":
    main()
