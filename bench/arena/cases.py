"""The cases of the arena, each a trace and a seed, and the results of running them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bench.arena.deployed import deployed
from bench.arena.faults import Faulted, faulted
from millrace_arena.comparison import POLICIES, compare
from millrace_arena.figures import RunFigures
from millrace_arena.plot import write_plot
from millrace_arena.scenarios import SYNTHETIC, ScenarioSetting, recorded, synthetic
from millrace_arena.simulation.run import Scenario
from millrace_arena.simulation.trace_files import read_trace

DATA = Path(os.environ.get("MILLRACE_DATA") or Path(__file__).parents[3] / "shared" / "data")
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
class Case:
    """A trace and a seed for everything random. A synthetic trace has a name and no file."""

    name: str
    file: Path | None
    seed: int


@dataclass(frozen=True)
class Result:
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


def cases(quick: bool) -> list[Case]:
    """Return all cases, or some short ones if ``quick``. Recorded traces come first, because they are the longest.

    Raises:
        FileNotFoundError: there are no recorded traces.
    """
    files = [file for folder in _RECORDED for file in sorted((DATA / folder).glob("*.csv"))]
    if not files:
        raise FileNotFoundError(
            f"{DATA} has no traces; set MILLRACE_DATA to the folder that has {', '.join(_RECORDED)}"
        )
    found = [Case(file.stem, file, 0) for file in files]
    for name in SYNTHETIC:
        seeds = _SEEDS.get(name, 1)
        found += [Case(f"{name}-{seed}" if seed else name, None, seed) for seed in range(seeds)]
    return [case for case in found if case.name in _QUICK] if quick else found


def run(job: tuple[Case, Path]) -> Result:
    """Run all policies in a case, and plot it into the given folder if ``PLOTTED`` names it."""
    case, pictures = job
    began = time.perf_counter()
    scenario = _scenario(case)
    comparison = compare(scenario, list(POLICIES), case.seed)
    drawn = PLOTTED.get(case.name, ())
    if drawn:
        runs = tuple(found for found in comparison.runs if found.policy in drawn)
        write_plot(replace(comparison, runs=runs), pictures / f"arena-{case.name}.svg")
    hours = comparison.scenario.trace.duration / 3600
    faults = tuple(faulted(case.name, scenario, case.seed))
    oracle = next(found.core_hours for found in comparison.figures if found.policy == "oracle")
    figures = (*comparison.figures, deployed(scenario, case.seed, oracle))
    return Result(case.name, hours, figures, faults, time.perf_counter() - began)


def _scenario(case: Case) -> Scenario:
    setting = ScenarioSetting(longest=_LONGEST, seed=case.seed)
    if case.file is not None:
        return recorded(read_trace(case.file), setting)
    return synthetic(case.name.removesuffix(f"-{case.seed}"), setting)
