"""Run a policy against a simulated job on a simulated cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Shape
from millrace_research.arena.simulation.cluster import ClusterProfile, Fleet
from millrace_research.arena.simulation.job import BatchNoise, JobProfile, SimulatedJob, StageWork
from millrace_research.arena.simulation.keys import KeySchedule
from millrace_research.arena.simulation.metrics import MetricsPath, MetricsProfile, SimulatedCounters
from millrace_research.arena.simulation.record import Rescale, SimulatedBatch, SimulatedRun
from millrace_research.arena.simulation.source import SimulatedSource
from millrace_research.arena.simulation.traces import Trace
from millrace_support.batch_cost import makespan


class PlacedShape(NamedTuple):
    """A plan that also says whether replicas run in pods of their own."""

    shape: Shape
    dedicated: bool


class ScalingPolicy(Protocol):
    """A policy that chooses the plan of a job, called every ``period`` seconds, first after one period."""

    name: str
    period: float

    def step(self, answer: Answer | None, situation: Situation) -> Shape | PlacedShape | None:
        """Return the plan to use from now on; None or the current plan changes nothing.

        A plan that is a shape alone leaves replicas where they are.

        Args:
            answer: newest answer that has arrived, however old; None if none has.
            situation: what a policy can see of the job and the cluster, exact and current. The first plan has epoch 0,
                and each change adds 1.
        """


@dataclass(frozen=True, eq=False)
class Scenario:
    """Everything that happens to a job in a run, except the actions of the policy.

    Attributes:
        name: name shown in figures.
        trace: load of the source; the run lasts as long as the trace.
        keys: keys of the stream over time.
        bounds: limits of plans, and the size of an executor.
        initial: first plan; all its pods are ready at the start.
        job: costs of its batches.
        cluster: start, drain and failure behavior of pods.
        metrics: scrapes, delays and faults of metrics.
        elsewhere: limits of plans while replicas run elsewhere than at first; None if they cannot.
    """

    name: str
    trace: Trace
    keys: KeySchedule
    bounds: Bounds
    initial: Shape
    job: JobProfile = field(default=JobProfile())
    cluster: ClusterProfile = field(default=ClusterProfile())
    metrics: MetricsProfile = field(default=MetricsProfile())
    elsewhere: Bounds | None = None

    def bounds_of(self, dedicated: bool) -> Bounds | None:
        """Return the limits of plans whose replicas run in pods of their own, or in tasks; None if there are none."""
        return self.bounds if self.bounds.dedicated is dedicated else self.elsewhere


def simulate(scenario: Scenario, policy: ScalingPolicy, seed: int) -> SimulatedRun:
    """Run ``policy`` through ``scenario``; the same arguments give the same run if the policy is deterministic.

    Raises:
        ValueError: if the initial plan, or a plan that the policy requests, is out of bounds.
    """
    return _Simulation(scenario, policy, seed).run()


def streams(seed: int) -> tuple[np.random.Generator, ...]:
    """Return the random numbers of a run: for the noise of batches, for executors, for replicas, and for metrics."""
    return tuple(np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4))


def batch_noise(scenario: Scenario, rng: np.random.Generator) -> BatchNoise:
    """Return the noise of the batches of a scenario, which is the same for all policies."""
    return BatchNoise(scenario.job.noise, math.ceil(scenario.trace.duration / scenario.job.interval) + 1, rng)


class _Simulation:
    """A run in progress: batches are simulated one by one, and all other events catch up after each stage."""

    def __init__(self, scenario: Scenario, policy: ScalingPolicy, seed: int) -> None:
        self._scenario = scenario
        self._policy = policy
        self._duration = scenario.trace.duration
        noise, cluster, replicas, metrics = streams(seed)
        profile, bounds = scenario.job, scenario.bounds
        self._job = SimulatedJob(profile, bounds)
        self._noise = batch_noise(scenario, noise)
        self._pod_row = profile.route.row if profile.pod_row is None else profile.pod_row
        self._source = SimulatedSource(scenario.trace, self._pod_row if bounds.dedicated else None)
        self._executors = Fleet(scenario.cluster, scenario.initial.executors, cluster)
        self._replicas = Fleet(scenario.cluster, scenario.initial.replicas if bounds.dedicated else 0, replicas)
        self._metrics = MetricsPath(scenario.metrics, metrics)
        self._admission = profile.admission(profile.interval)
        self._counters = SimulatedCounters(profile.interval, bounds.dedicated)
        self._plan, self._epoch = self._checked(PlacedShape(scenario.initial, bounds.dedicated)).shape, 0
        self._next_scrape = scenario.metrics.first_scrape
        self._next_step = policy.period
        self._warm = self._waiting = 0
        self._done = self._work = 0.0
        self._batches: list[SimulatedBatch] = []
        self._rescales: list[Rescale] = []

    def run(self) -> SimulatedRun:
        """Trigger like Spark's ``ProcessingTimeExecutor``: at multiples of the interval, at once after a late batch."""
        now = 0.0
        while now < self._duration:
            end = self._batch(now)
            now = max(end, (self._trigger(now) + 1) * self._scenario.job.interval)
        self._catch_up(self._duration)
        return self._record()

    def _trigger(self, now: float) -> int:
        """Return the number of the last trigger until ``now``; multiples of the interval may be rounded down."""
        return math.floor(now / self._scenario.job.interval + 1e-9)

    def _batch(self, planned: float) -> float:
        """Run the batch planned at ``planned`` and return its end time; infinity if it never ends.

        Without records there is no batch, as in Spark.
        """
        self._catch_up(planned)
        scenario, whole, epoch, executors = self._scenario, self._plan, self._epoch, self._executors.ready
        plan = whole if self._job.dedicated else whole.fitted(executors, self._job.executor_cores)
        rows = self._source.take(planned, self._limit)
        self._waiting = waiting = self._source.waiting(planned)
        newest = self._source.newest(planned)
        if not rows:
            self._counters.idle(planned, waiting, epoch, plan)
            self._done = newest
            return planned
        keys = scenario.keys.at(planned)
        work = self._job.work(plan.parallelism, plan.replicas, keys)
        distinct = max(round(keys.appearing(rows)), 1)
        results = max(round(self._job.results(keys, rows)), distinct)
        partials = max(round(self._job.partials(plan.parallelism, keys, rows)), results)
        end = self._process(planned, work.stages, rows, partials)
        self._catch_up(end)
        if math.isfinite(end):
            seconds, backlog = end - planned, self._source.waiting(end)
            batch = SimulatedBatch(
                planned, seconds, rows, self._done, newest, backlog, distinct, epoch, plan, executors
            )
            self._admission.finished(rows, seconds, self._work, (whole.parallelism, whole.replicas))
            self._counters.finished(batch, waiting, partials, results, work.imbalance)
            self._batches.append(batch)
            self._done = newest
        return end

    @property
    def _limit(self) -> int | None:
        """Most records of the next batch; None for no limit."""
        limits = (self._admission.limit(self._waiting), self._scenario.job.max_rows)
        return min((limit for limit in limits if limit is not None), default=None)

    def _process(self, now: float, stages: Sequence[StageWork], rows: int, partials: int) -> float:
        """Process a batch, with a failed attempt first if it fails, and return its end time."""
        self._work = 0.0
        self._noise.next_batch(self._trigger(now))
        failing = self._noise.failing(len(stages))
        if failing:
            now = self._attempt(now, stages[:failing], rows, partials) + self._scenario.job.noise.retry_seconds
        return self._attempt(now, stages, rows, partials)

    def _attempt(self, now: float, stages: Sequence[StageWork], rows: int, partials: int) -> float:
        now += self._scenario.job.fixed * self._noise.batch + self._noise.delay
        began = now
        for stage in stages:
            now = self._stage(now, stage.name, stage.tasks(rows, partials))
        self._work += now - began
        return now

    def _stage(self, now: float, name: str, tasks: list[float]) -> float:
        """Run the tasks of a stage on the executors that are ready at its start, and return its end time.

        The remaining executors repeat the work of an executor that is lost during the stage.
        """
        now = self._with_executors(now)
        if now == math.inf:
            return now
        fleet, cluster = self._executors, self._scenario.cluster
        cores = fleet.ready * self._job.executor_cores
        factor = self._noise.batch * self._job.slowdown(len(tasks), cores)
        if fleet.draining:
            factor *= 1 + cluster.drain_slowdown
        seconds = self._noise.scatter(tasks, factor)
        took = makespan(seconds, cores, self._scenario.job.schedule)
        if fleet.started > self._warm:
            self._warm = fleet.started
            took += cluster.warm_up_seconds
        ready, lost = fleet.ready, fleet.lost
        self._catch_up(now + took)
        self._counters.ran(name, seconds)
        return now + took * (1 + min(1.0, (fleet.lost - lost) / ready))

    def _with_executors(self, now: float) -> float:
        """Return the first time from ``now`` on with a ready executor; infinity if none becomes ready in the run."""
        self._catch_up(now)
        if not self._plan.executors:
            self._wake(now)
        while not self._executors.ready:
            now = min(self._executors.next_event, self._next_scrape, self._next_step)
            if now >= self._duration:
                return math.inf
            self._catch_up(now)
        return now

    def _wake(self, now: float) -> None:
        """End the rest of the job as driver and operator do when tasks wait: with the executors that it had before."""
        shape = replace(self._plan, executors=self._rescales[-1].before.executors)
        self._rescales.append(Rescale(now, self._plan, shape, self._job.dedicated))
        self._plan, self._epoch = shape, self._epoch + 1
        self._executors.resize(shape.executors, now)

    def _catch_up(self, now: float) -> None:
        """Process all events other than batches until ``now``, or until the end of the run."""
        now = min(now, self._duration)
        while (due := min(self._next_scrape, self._next_step)) <= now:
            self._advance(due)
            if due == self._next_scrape:
                busy, waiting = self._source.routed_seconds, self._source.unrouted
                self._metrics.scrape(self._counters.answer(due, self._executors.ready, busy, waiting))
                self._next_scrape += self._scenario.metrics.scrape_seconds
            else:
                self._step(due)
                self._next_step += self._policy.period
        self._advance(now)

    def _advance(self, now: float) -> None:
        self._executors.advance(now)
        while self._replicas.next_event <= now:
            due = self._replicas.next_event
            self._source.advance(due, self._replicas.ready)
            self._replicas.advance(due)
        self._source.advance(now, self._replicas.ready)

    def _step(self, now: float) -> None:
        """Call the policy and apply the plan that it returns."""
        fleet, answer = self._executors, self._metrics.read(now)
        quota, dedicated = self._scenario.cluster.quota, self._job.dedicated
        situation = Situation(
            now,
            self._plan,
            self._epoch,
            fleet.ready,
            fleet.pending_since,
            quota,
            dedicated=dedicated,
            replicas_ready=self._replicas.ready if dedicated else None,
            applied_epoch=self._epoch,
            can_rest=True,
        )
        wanted = self._policy.step(answer, situation)
        if wanted is None:
            return
        placed = wanted if isinstance(wanted, PlacedShape) else PlacedShape(wanted, dedicated)
        if placed == (self._plan, dedicated):
            return
        self._rescales.append(Rescale(now, self._plan, *self._checked(placed)))
        self._plan, self._epoch = placed.shape, self._epoch + 1
        fleet.resize(placed.shape.executors, now)
        if placed.dedicated is not dedicated:
            self._job.dedicated = self._counters.dedicated = placed.dedicated
            self._source.place(now, self._pod_row if placed.dedicated else None)
        self._replicas.resize(placed.shape.replicas if placed.dedicated else 0, now)

    def _checked(self, placed: PlacedShape) -> PlacedShape:
        bounds = self._scenario.bounds_of(placed.dedicated)
        if bounds is None or placed.shape not in bounds:
            raise ValueError(f"plan {placed.shape} is out of bounds: {bounds}")
        return placed

    def _record(self) -> SimulatedRun:
        bounds, dedicated = self._scenario.bounds, self._scenario.bounds_of(True)
        executors, replicas = self._executors.seconds(self._duration), self._replicas.seconds(self._duration)
        pods = 0.0 if dedicated is None else replicas * dedicated.replica_cores
        arrived = int(self._scenario.trace.arrived(self._duration))
        return SimulatedRun(
            policy=self._policy.name,
            duration=self._duration,
            interval=self._scenario.job.interval,
            batches=tuple(self._batches),
            rescales=tuple(self._rescales),
            core_seconds=executors * bounds.executor_cores + pods,
            arrived=arrived,
            unfinished=arrived - sum(batch.rows for batch in self._batches),
            unfinished_since=self._done,
        )
