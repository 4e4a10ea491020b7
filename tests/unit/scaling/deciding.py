"""Jobs to decide about: a scaler in the simulator, and a job whose answers are made by hand."""

from dataclasses import dataclass, field, replace

from millrace_operator.scaling.decision.decision import Decision, Situation
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.simulation.keys import Keys, always
from millrace_research.arena.simulation.run import Scenario, simulate

SETTINGS = Settings()
PLAN = Shape(2, 4, 4)
BOUNDS = Bounds(Range(1, 8), Range(2, 48), Range(1, 32), executor_cores=2)


class Recorder:
    """A policy that keeps the decisions of a scaler. With ``restarting``, each step is by a new, restored scaler."""

    name = "millrace"
    period = 5.0

    def __init__(self, scenario, settings=SETTINGS, restarting=False, **situation):
        self._make = lambda: Scaler(settings, scenario.bounds, scenario.job.state_partitions)
        self.scaler, self._restarting, self._situation = self._make(), restarting, situation
        self.decisions = []

    def step(self, answer, situation):
        if self._restarting:
            saved = self.scaler.save()
            self.scaler = self._make()
            self.scaler.restore(saved)
        self.decisions.append(self.scaler.step(answer, replace(situation, **self._situation)))
        return self.decisions[-1].plan

    @property
    def reasons(self):
        return [decision.reason for decision in self.decisions]

    @property
    def changes(self):
        return [decision for decision in self.decisions if decision.changed]


def scenario(trace, initial=PLAN, bounds=BOUNDS, **more):
    return Scenario(trace.name, trace, always(Keys(2000, 0.8)), bounds, initial, **more)


def run(scene, seed=1, settings=SETTINGS, **more):
    """Simulate a job, and return the run and the policy with its decisions."""
    policy = Recorder(scene, settings, **more)
    return simulate(scene, policy, seed), policy


@dataclass
class HandMade:
    """A noise-free job whose batches take ``fixed + per_row * rows * (executors0 / executors)`` seconds.

    ``serial`` seconds per record do not decrease with more executors.
    """

    rate: float = 40_000.0
    plan: Shape = PLAN
    interval: float = 2.0
    fixed: float = 0.2
    core_seconds: float = 1.4e-4
    serial: float = 0.0
    lag: float = 0.0
    epoch: int = 0
    now: float = 0.0
    ready: int | None = None
    totals: dict = field(default_factory=dict)

    def step(self, scaler, **situation) -> Decision:
        """Run five batches, apply the decision that follows their observation, and return it."""
        self.now += 5 * self.interval
        self._work(5)
        ready = self.plan.executors if self.ready is None else self.ready
        decision = scaler.step(self.answer(ready), Situation(self.now, self.plan, self.epoch, ready, **situation))
        if decision.changed:
            self.plan, self.epoch = decision.plan, self.epoch + 1
        return decision

    def steps(self, scaler, count, **situation):
        return [self.step(scaler, **situation) for _ in range(count)]

    def until(self, scaler, count=60, **situation):
        """Return the first decision that changes something, or the last of ``count``."""
        for _ in range(count):
            decision = self.step(scaler, **situation)
            if decision.changed:
                break
        return decision

    def _work(self, batches):
        executors = self.plan.executors if self.ready is None else self.ready
        rows = self.rate * self.interval
        tasks = self.core_seconds * rows
        seconds = self.fixed + self.serial * rows + tasks / (2 * executors)
        grown = {
            "batches_total": 1,
            "rows_total": rows,
            "processing_seconds_total": seconds,
            "route_tasks_total": self.plan.replicas,
            "route_seconds_total": 0.3 * tasks,
            "combine_tasks_total": self.plan.parallelism,
            "combine_seconds_total": 0.6 * tasks,
            "merge_seconds_total": 0.1 * tasks,
            "partials_total": 2000,
            "updates_total": 1000,
            "busy_core_seconds_total": tasks,
        }
        for name, value in grown.items():
            self.totals[name] = self.totals.get(name, 0.0) + batches * value

    def answer(self, ready):
        return Answer(
            time=self.now,
            **self.totals,
            interval_seconds=self.interval,
            lag_rows=self.lag,
            keys=1000,
            imbalance=0.0,
            epoch=self.epoch,
            parallelism=self.plan.parallelism,
            replicas=self.plan.replicas,
            executors=ready,
        )
