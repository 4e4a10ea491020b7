"""How well batches of new plans are predicted after few plans, if the costs of another job are expected at first.

    python -m bench.scaling.donors                  errors and intervals, in a minute or two
    python -m bench.scaling.donors --decisions      late batches and core-hours in six minutes or more

Recorded jobs: the donor has the points of a job in ``HELD_OUT``, and the job itself those of one to three of the plans
in ``SEEN``; predicted are its points of the other plans, so that no point is used twice. Simulated jobs: the job has
three, eight or sixteen observations of one of five plans, and predicted are the others, at the same rate and at twice
as much.

Donors: the same job (simulated: with other noise, at other rates); the same job with records twice as dear, and half as
dear; and all jobs that do something else. Where there are jobs that do the same with another partitioner, these are a
kind of their own.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.scaling.points import HELD_OUT, RATES, RECORDED, Measured, PointSetting, read_points, settings
from bench.scaling.prediction import TUNED, among_seen, calibrated
from millrace_operator.scaling.batch_time.batch_model import BatchLoad
from millrace_operator.scaling.batch_time.calibration import Calibration
from millrace_operator.scaling.batch_time.cost_prior import CostPrior, KnownCosts
from millrace_operator.scaling.batch_time.costs import NAMES
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.scaling.observation import Observation, Stage
from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.comparison import MillracePolicy, run_policy
from millrace_research.arena.figures import figures
from millrace_research.arena.known_job import known_job
from millrace_research.arena.scenarios import ScenarioSetting, synthetic
from millrace_research.arena.simulation.job import JobProfile, SimulatedJob, StageCost
from millrace_research.arena.simulation.keys import Keys
from millrace_research.arena.simulation.run import Scenario
from millrace_support.batch_cost import makespan

NO_DONOR, SAME, DEARER, CHEAPER, ALIKE, OTHER = (
    "none",
    "the same job",
    "records twice as dear",
    "records half as dear",
    "another partitioner",
    "another job",
)

OF_RECORDS = ("read", "route_record", "combine_record")
"""Costs that are twice as much, or half, for a job whose records are dearer or cheaper."""

BOUNDS = Bounds(Range(1, 16), Range(1, 64), Range(1, 32), executor_cores=2)
KEYS = Keys(20_000, exponent=0.6)
PLANS = (Shape(1, 4, 2), Shape(2, 8, 4), Shape(4, 8, 8), Shape(6, 24, 12), Shape(12, 24, 24))
_PLAIN = JobProfile()
JOBS: Mapping[str, JobProfile] = {
    "plain": _PLAIN,
    "dear records": replace(_PLAIN, combine=replace(_PLAIN.combine, row=3e-5)),
    "dear routing": replace(_PLAIN, route=replace(_PLAIN.route, row=1.5e-5)),
    "dear results": replace(_PLAIN, merge=StageCost(task=0.02, partial=1e-4)),
    "long tasks": replace(_PLAIN, fixed=0.6, combine=replace(_PLAIN.combine, task=0.08), contention=0.03),
    "slow sink": replace(_PLAIN, fixed=3.0, schedule=0.01),
}
"""Simulated jobs, which differ far more than similar queries do."""

LOADS = {
    "step": (3000.0, 4500.0),
    "spike": (3000.0, 4500.0),
    "ramp": (3600.0, 5400.0),
    "steps": (0.0, 2400.0),
    "diurnal": (20_000.0, 23_000.0),
    "step-down": (3000.0, 4500.0),
}
"""Parts of the simulator's loads that a new query begins with, in seconds of the load."""

RATE = 100_000.0
"""Records of a batch; less for jobs with dear records, whose batches would be too long otherwise."""


@dataclass(frozen=True)
class DonorPrediction:
    """A prediction: the job, the kind of its donor, predicted over true seconds, and the ends of its interval."""

    job: str
    plans: int
    donor: str
    ratio: float
    low: float
    high: float

    @property
    def covered(self) -> bool:
        """Whether the 90 % interval has the true seconds."""
        return self.low <= 1.0 <= self.high


def made_dearer(costs: KnownCosts, factor: float) -> KnownCosts:
    """Return the costs of a job of which each record takes ``factor`` times as long."""
    logs = [log + math.log(factor) * (name in OF_RECORDS) for name, log in zip(NAMES, costs.logs, strict=True)]
    return replace(costs, logs=tuple(logs))


def donors(job: str, known: Mapping[str, KnownCosts]) -> Iterator[tuple[str, KnownCosts | None]]:
    """Yield all donors of a job with their kinds."""
    yield NO_DONOR, None
    yield SAME, known[job]
    yield DEARER, made_dearer(known[job], 2.0)
    yield CHEAPER, made_dearer(known[job], 0.5)
    for other, costs in known.items():
        if other != job:
            yield (ALIKE if other.partition("-")[0] == job.partition("-")[0] else OTHER), costs


def recorded(plans: Iterable[int] = (1, 2, 3)) -> Iterator[DonorPrediction]:
    """Yield predictions of recorded points."""
    measured: dict[PointSetting, list[Measured]] = defaultdict(list)
    for point in read_points(RECORDED):
        measured[point.setting].append(point.measured)
    known = {job: _known(calibrated(settings(job, HELD_OUT), measured, 0.0)) for job in RATES}
    for number in plans:
        for job in RATES:
            for donor, costs in donors(job, known):
                prior = None if costs is None else costs.for_another()
                for one in among_seen(job, measured, number, prior):
                    ends = one.low / one.observed, one.high / one.observed
                    yield DonorPrediction(job, number, donor, one.seconds / one.observed, *ends)


def simulated(observations: int = 8) -> Iterator[DonorPrediction]:
    """Yield predictions of simulated batches, by calibrations with so many observations of one plan."""
    known = {}
    for number, job in enumerate(JOBS):
        rng, calibration = np.random.default_rng([1, number]), Calibration(BOUNDS, _PLAIN.state_partitions)
        for shape in PLANS[:4] * 4:
            calibration.add(observation(job, shape, rate_of(job) * rng.uniform(0.3, 0.8), rng))
        known[job] = _known(calibration)
    for number, job in enumerate(JOBS):
        for donor, costs in donors(job, known):
            for seen in PLANS:
                rng = np.random.default_rng([2, number])
                prior = None if costs is None else costs.for_another()
                calibration = Calibration(BOUNDS, _PLAIN.state_partitions, prior)
                for _ in range(observations):
                    calibration.add(observation(job, seen, rate_of(job) * rng.uniform(0.9, 1.1), rng))
                for rows in (rate_of(job), 2 * rate_of(job)):
                    load = BatchLoad(rows, _PLAIN.interval)
                    shapes = [shape for shape in PLANS if shape != seen]
                    found = calibration.model().predict(shapes, load)
                    for index, shape in enumerate(shapes):
                        true = float(known_job(JOBS[job], BOUNDS).seconds(shape, rows, KEYS))
                        ratios = (float(each[index]) / true for each in (found.seconds, found.low, found.high))
                        yield DonorPrediction(job, 1, donor, *ratios)


def rate_of(job: str) -> float:
    """Return the usual records of a batch of a simulated job."""
    return RATE / 5 if job.startswith("dear r") else RATE


def observation(job: str, shape: Shape, rows: float, rng: np.random.Generator) -> Observation:
    """Return what the metrics would show of a few batches of a simulated job."""
    profile = JOBS[job]
    simulated_job = SimulatedJob(profile, BOUNDS)
    cores, n = shape.executors * BOUNDS.executor_cores, shape.parallelism
    partials, work = simulated_job.partials(n, KEYS, rows), simulated_job.work(n, shape.replicas, KEYS)
    seconds, clocks = profile.fixed, {}
    for stage in work.stages:
        mean = np.array(stage.tasks(rows, partials)) * simulated_job.slowdown(len(stage.constant), cores)
        tasks = mean * np.exp(profile.noise.task * rng.standard_normal(len(mean)))
        seconds += makespan(tasks.tolist(), cores, profile.schedule)
        clocks[stage.name] = Stage(len(tasks), float(tasks.sum()))
    return Observation(
        since=0.0,
        until=1.0,
        epoch=0,
        plan=shape,
        batches=2,
        interval=profile.interval,
        seconds=seconds * math.exp(profile.noise.batch * rng.standard_normal()),
        rows=rows,
        arrival=rows / profile.interval,
        lag=0.0,
        keys=simulated_job.results(KEYS, rows),
        partials=partials,
        imbalance=work.imbalance,
        route=clocks["route"],
        combine=clocks["combine"],
        merge_seconds=clocks["merge"].seconds,
    )


def show(title: str, outcomes: list[DonorPrediction], console: Console) -> None:
    """Print error, coverage and width of intervals by plans seen and kind of donor."""
    table = Table(title=title)
    for column in ("plans", "donor", "number", "error", "90 % below", "covered", "width"):
        table.add_column(column, justify="left" if column == "donor" else "right", no_wrap=True)
    groups: dict[tuple[int, str], list[DonorPrediction]] = defaultdict(list)
    for one in outcomes:
        groups[one.plans, one.donor].append(one)
    for (plans, donor), some in groups.items():
        errors = [abs(one.ratio - 1) for one in some]
        covered = statistics.mean(one.covered for one in some)
        width = statistics.median(math.sqrt(one.high / one.low) for one in some)
        worst = float(np.quantile(errors, 0.9))
        figures = f"{statistics.mean(errors):.1%}", f"{worst:.0%}", f"{covered:.0%}", f"{width:.2f}"
        table.add_row(str(plans), donor, str(len(some)), *figures)
    console.print(table)


def _known(calibration: Calibration) -> KnownCosts:
    calibration.model()
    assert calibration.known is not None
    return calibration.known


class _BegunPolicy(MillracePolicy):
    """The operator's policy, begun with a prior."""

    def __init__(self, scenario: Scenario, prior: CostPrior | None) -> None:
        bounds, partitions = scenario.bounds, scenario.job.state_partitions
        self._scaler = Scaler(Settings(), bounds, partitions, Calibration(bounds, partitions, prior))

    @property
    def known(self) -> KnownCosts | None:
        """What it has learned of the job's costs."""
        return self._scaler.calibration.known


def show_decisions(console: Console, seeds: Sequence[int] = range(1, 9)) -> None:
    """Print late batches, core-hours and rescales in the first minutes under a load, by donor; means over seeds."""
    table = Table(title=f"The first 25 to 50 minutes, {len(seeds)} seeds")
    for column in ("load", "donor", "late", "core-hours", "rescales"):
        table.add_column(column, justify="left" if column in {"load", "donor"} else "right", no_wrap=True)
    dear = replace(_PLAIN, combine=replace(_PLAIN.combine, row=6e-6), route=replace(_PLAIN.route, row=3e-6))
    profiles = {SAME: _PLAIN, DEARER: dear, OTHER: replace(JOBS["long tasks"], merge=JOBS["dear results"].merge)}
    priors: dict[str, CostPrior | None] = {NO_DONOR: None}
    for donor, profile in profiles.items():
        taught = synthetic("sawtooth", ScenarioSetting(seed=11))
        taught = replace(taught, trace=taught.trace.between(0.0, 7200.0), job=profile)
        policy = _BegunPolicy(taught, None)
        run_policy(taught, policy, 11)
        assert policy.known is not None
        priors[donor] = policy.known.for_another()
    for load, (since, until) in LOADS.items():
        for donor, prior in priors.items():
            found = []
            for seed in seeds:
                whole = synthetic(load, ScenarioSetting(seed=seed))
                part = replace(whole, trace=whole.trace.between(since, until))
                found.append(figures(run_policy(part, _BegunPolicy(part, prior), seed), part.trace, part.bounds))
            late, hours, rescales = (
                statistics.mean(each)
                for each in zip(*((one.violations, one.core_hours, one.rescales) for one in found), strict=True)
            )
            table.add_row(load, donor, f"{late:.2%}", f"{hours:.2f}", f"{rescales:.1f}")
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    out = Console()
    if "--decisions" in sys.argv:
        show_decisions(out)
        sys.exit()
    of_recorded = list(recorded())
    show("Recorded jobs by which factors were chosen", [one for one in of_recorded if one.job in TUNED], out)
    show("Recorded jobs held back", [one for one in of_recorded if one.job not in TUNED], out)
    for count in (3, 8, 16):
        show(f"Simulated jobs after {count} observations of one plan", list(simulated(count)), out)
