"""The cases of the arena, each a trace and a seed, run under all policies, and under Millrace's with faulty metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.arena.deployed import deployed
from millrace_research.arena.comparison import NAMES, OURS, POLICIES, compare
from millrace_research.arena.figures import RunFigures
from millrace_research.arena.plot import write_plot
from millrace_research.arena.scenarios import SYNTHETIC, ScenarioSetting, busiest, recorded, synthetic
from millrace_research.arena.simulation.metrics import Fault, FaultyTime
from millrace_research.arena.simulation.record import SimulatedRun
from millrace_research.arena.simulation.run import Scenario, simulate
from millrace_research.arena.simulation.trace_files import read_trace

DATA = Path(os.environ.get("MILLRACE_DATA") or Path(__file__).parents[3] / "shared" / "data")
"""Folder of the recorded traces, which are not part of the repository."""
_RECORDED = ("demeter_dsp_rates", "dsp_load_rates", "nab_rates", "azure_llm_2023")
_SEEDS = {"steps": 3, "noise": 3, "constant": 3, "step": 3}
"""Number of seeds for a synthetic load. Loads that are not named run with one seed."""
_LONGEST = 6 * 3600.0
"""Longest trace in seconds. Longer recordings are cut to their busiest six hours."""
_QUICK = ("step", "noise", "spike", "alibaba_5min", "AzureLLMInferenceTrace_code")

PLOTTED = {
    "step": ("oracle", "millrace", "spark-ratio", "cpu", "lag"),
    "spike": ("oracle", "millrace", "spark-ratio", "cpu", "lag"),
    "noise": ("oracle", "millrace", "ds2", "lag"),
    "diurnal": ("oracle", "millrace", "prompt", "flink", "ds2"),
    "key-growth": ("oracle", "millrace", "flink", "cpu"),
    "ADS_3D_1S_4_sub_30K_max": ("oracle", "millrace", "flink", "cpu", "spark-ratio"),
    "elb_request_count_8c0756": ("oracle", "millrace", "flink", "cpu", "spark-ratio"),
}
"""Cases to plot, and the policies that each plot shows."""


@dataclass(frozen=True)
class ArenaCase:
    """A trace and a seed for everything random. A synthetic trace has a name and no file."""

    name: str
    file: Path | None
    seed: int


@dataclass(frozen=True)
class CaseResult:
    """The figures of all policies in one case, including Millrace's policy as deployed.

    ``faults`` counts the rescales under faulty metrics. ``seconds`` is how long the simulation took.
    """

    case: str
    hours: float
    figures: tuple[RunFigures, ...]
    faults: tuple[Faulted, ...]
    seconds: float

    def of(self, policy: str) -> RunFigures:
        """Return the figures of one policy."""
        return next(found for found in self.figures if found.policy == policy)


def recordings(tuned: bool) -> list[Path]:
    """Return the recorded traces whose figures decided on rules and parameters, or the others, which judge them.

    These are every other one in the order of their names. Raises FileNotFoundError if there are no recorded traces.
    """
    return sorted(_files(), key=lambda file: file.stem.lower())[0 if tuned else 1 :: 2]


def _files() -> list[Path]:
    files = [file for folder in _RECORDED for file in sorted((DATA / folder).glob("*.csv"))]
    if not files:
        raise FileNotFoundError(
            f"{DATA} has no traces; set MILLRACE_DATA to the folder that has {', '.join(_RECORDED)}"
        )
    return files


def cases(quick: bool) -> list[ArenaCase]:
    """Return all cases, or some short ones if ``quick``. Recorded traces come first, because they are the longest.

    Raises:
        FileNotFoundError: there are no recorded traces.
    """
    files = _files()
    found = [ArenaCase(file.stem, file, 0) for file in files]
    for name in SYNTHETIC:
        seeds = _SEEDS.get(name, 1)
        found += [ArenaCase(f"{name}-{seed}" if seed else name, None, seed) for seed in range(seeds)]
    return [case for case in found if case.name in _QUICK] if quick else found


def run(job: tuple[ArenaCase, Path]) -> CaseResult:
    """Run all policies in a case, and plot it into the given folder if ``PLOTTED`` names it."""
    case, pictures = job
    began = time.perf_counter()
    scenario = _scenario(case)
    comparison = compare(scenario, list(NAMES), case.seed)
    drawn = PLOTTED.get(case.name, ())
    if drawn:
        runs = tuple(found for found in comparison.runs if found.policy in drawn)
        write_plot(replace(comparison, runs=runs), pictures / f"arena-{case.name}.svg")
    hours = comparison.scenario.trace.duration / 3600
    faults = tuple(faulted(case.name, scenario, case.seed))
    oracle = next(found.core_hours for found in comparison.figures if found.policy == "oracle")
    figures = (*comparison.figures, deployed(scenario, case.seed, oracle))
    return CaseResult(case.name, hours, figures, faults, time.perf_counter() - began)


def _scenario(case: ArenaCase) -> Scenario:
    setting = ScenarioSetting(longest=_LONGEST, seed=case.seed)
    if case.file is not None:
        return recorded(read_trace(case.file), setting)
    return synthetic(case.name.removesuffix(f"-{case.seed}"), setting)


_FAULT_TRACE_SECONDS = 900.0
"""Length of the part of a trace that faults are tried on. A fault begins halfway through and lasts a third of it."""
_FAULT_SINCE, _FAULT_UNTIL = _FAULT_TRACE_SECONDS / 2, _FAULT_TRACE_SECONDS * 5 / 6
_SCRAPE_DELAY = 6.0
"""Seconds until metrics scraped before a fault have arrived. A decision based on them is not due to the fault."""
_RESET_WINDOW = 15.0
"""Seconds in which a decision may mix counters from before and after a reset. Later, all metrics are correct again."""


@dataclass(frozen=True)
class Faulted:
    """A case with one fault, and the number of rescales while the metrics were wrong."""

    case: str
    fault: str
    rescales: int


def faulted(name: str, scenario: Scenario, seed: int) -> Iterable[Faulted]:
    """Run Millrace's policy through the busiest part of a scenario, once with each fault that can occur there."""
    scenario = replace(scenario, trace=busiest(scenario.trace, _FAULT_TRACE_SECONDS))
    for fault in Fault:
        wrong = replace(scenario.metrics, faults=(FaultyTime(fault, _FAULT_SINCE, _FAULT_UNTIL),))
        rescales = _run(replace(scenario, metrics=wrong), seed).rescales
        if fault is Fault.FORMER_PLAN and not any(rescale.time < _FAULT_SINCE for rescale in rescales):
            continue  # there is no former plan to report
        until = _FAULT_SINCE + _RESET_WINDOW if fault is Fault.COUNTER_RESET else _FAULT_UNTIL
        yield Faulted(name, fault, sum(_FAULT_SINCE + _SCRAPE_DELAY <= rescale.time < until for rescale in rescales))


def _run(scenario: Scenario, seed: int) -> SimulatedRun:
    return simulate(scenario, POLICIES[OURS](scenario), seed)
