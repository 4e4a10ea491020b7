import math
from dataclasses import replace

import pytest

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.policies.flink import FlinkPolicy
from millrace_research.arena.policies.flink_autoscaler import EvaluatedVertex
from millrace_research.arena.simulation.run import simulate
from unit.research.simulation.scenes import rates, scene

BOUNDS = Bounds(Range(1, 8), Range(1, 64), Range(1, 64))
SMALL = Shape(2, 4, 4)
FIRST = 1260.0  # the first answer at 60, settled at 360, and a window of 900 from then on


class Job:
    """A job that takes 1000 records per second, while ``arriving`` come, and is busy with them that share of time.

    ``routing`` are the processor seconds per second of its partitioner pods.
    """

    def __init__(self, busy, arriving=1000.0, plan=SMALL, bounds=BOUNDS, routing=0.0):
        self.busy, self.arriving, self.plan, self.routing, self.epoch = busy, arriving, plan, routing, 0
        self.policy = FlinkPolicy(bounds, 8, lambda time: self.arriving * time)

    def answer(self, time, **changes):
        usual = Answer(
            time,
            batches_total=time / 2,
            rows_total=1000 * time,
            processing_seconds_total=self.busy * time,
            partials_total=100 * time,
            dedicated_busy_seconds_total=self.routing * time,
            epoch=self.epoch,
        )
        return replace(usual, **changes)

    def step(self, time, answer=None, ready=None):
        situation = Situation(time, self.plan, self.epoch, self.plan.executors if ready is None else ready)
        return self.policy.step(answer or self.answer(time), situation)

    def first(self, until, since=60):
        """The first plan that is asked for, and when."""
        for time in range(since, int(until) + 1, 60):
            plan = self.step(float(time))
            if plan is not None:
                return time, plan
        return None


def test_a_job_that_falls_behind_is_scaled_up_as_soon_as_its_window_is_full():
    # It needs 1200 / 0.7, and 1200 * 5 of 30 minutes for the restart, and 200 * 1260 / 1800 for the lag: 2.05 times
    # what it does with 4 slots. The merge has 8 key groups.
    assert Job(busy=1.0, arriving=1200.0).first(5000) == (FIRST, Shape(5, 9, 9))


def test_a_job_within_its_bounds_is_left_alone():
    assert Job(busy=0.99).first(10_000) is None
    assert Job(busy=0.45).first(10_000) is None


def test_a_job_is_scaled_down_after_an_hour_and_by_no_more_than_60_percent():
    # 16 slots, of which route and combine keep 6.4; the merge has 8, of which it keeps 3.2, and 4 divide its groups.
    assert Job(busy=0.1, plan=Shape(8, 32, 16)).first(10_000) == (FIRST + 3600, Shape(4, 7, 7))


def test_numbers_of_tasks_beyond_the_slots_stay_where_their_vertex_does():
    job = Job(busy=0.1, plan=Shape(1, 32, 1), bounds=replace(BOUNDS, executor_cores=1))
    assert job.first(10_000) is None  # one slot is the least
    job = Job(busy=1.0, arriving=1200.0, plan=Shape(8, 64, 3))
    assert job.first(2000) == (FIRST, Shape(8, 64, 7))  # 16 slots are all there are


def test_executors_follow_the_widest_vertex():
    assert Job(busy=1.0, arriving=1200.0, plan=Shape(3, 2, 5)).first(2000) == (FIRST, Shape(6, 5, 11))


def test_a_rescaled_job_needs_a_new_window():
    job = Job(busy=1.0, arriving=1200.0)
    time, job.plan = job.first(5000)
    job.epoch = 1
    again, _ = job.first(5000, since=time + 60)
    assert again == time + 60 + 1200


@pytest.mark.parametrize("restart", [{"ready": 1}, {"answer": {"batches_total": 0.0, "rows_total": 0.0}}])
def test_executors_that_go_and_counters_that_restart_are_a_restart(restart):
    job = Job(busy=1.0, arriving=1200.0)
    assert job.first(900) is None
    assert job.step(960.0, job.answer(960.0, **restart.get("answer", {})), restart.get("ready")) is None
    time, _ = job.first(5000, since=1020)
    assert time >= 960 + 1200


def test_a_driver_that_restarts_has_the_backlog_of_the_one_before():
    job = Job(busy=0.9, arriving=1000.0)
    assert job.first(3000) is None
    for time in range(3060, 10_000, 60):
        since = job.answer(time - 3000.0)
        assert job.step(float(time), replace(since, time=float(time))) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 7},
        {"epoch": None},
        {"rows_total": None},
        {"rows_total": math.nan},
        {"rows_total": -1e6},
        {"batches_total": 450.0},
        {"partials_total": None},
        {"processing_seconds_total": math.inf},
    ],
)
def test_an_answer_that_says_nothing_of_the_job_is_passed_over(changes):
    job = Job(busy=1.0, arriving=1200.0)
    assert job.first(900) is None
    assert job.step(960.0, job.answer(960.0, **changes)) is None
    assert job.first(5000, since=1020) == (FIRST, Shape(5, 9, 9))


def test_without_an_answer_or_executors_nothing_is_asked_for():
    job = Job(busy=1.0, arriving=1200.0)
    assert job.first(FIRST - 60) is None
    assert job.policy.step(None, Situation(FIRST, job.plan, 0, 2)) is None
    assert job.step(FIRST, ready=0) is None


def test_partitioner_pods_are_scaled_by_their_own_time_and_need_no_executors():
    dedicated = replace(BOUNDS, replica_cores=1.0)
    # Batches could do 2000 records per second, four pods no more than the 1000 they do.
    slow = Job(busy=0.5, arriving=1200.0, bounds=dedicated, routing=4.0)
    assert slow.first(5000) == (FIRST, Shape(4, 5, 9))
    # Pods that are busy a fifth of the time do not hold it up; that there are too many is set right on the way.
    held_up = Job(busy=1.0, arriving=1200.0, bounds=dedicated, routing=0.8)
    assert held_up.first(5000) == (FIRST, Shape(5, 9, 2))


def test_rates_on_their_bounds_are_within():
    seen = EvaluatedVertex(1000.0, 0.0, 1000.0, 1.0, slow_below=1000.0, idle_above=2667.0)
    assert not seen.out_of_bounds
    assert not replace(seen, true_rate=2667.0).out_of_bounds
    assert replace(seen, true_rate=999.9).out_of_bounds
    assert replace(seen, true_rate=2667.1).out_of_bounds


def test_flink_gets_a_simulated_job_over_its_overload():
    load = scene(rates((0, 1200), (7200, 1200)))  # one executor does about 1000 records per second
    run = simulate(load, FlinkPolicy(load.bounds, load.job.state_partitions, load.trace.arrived), seed=0)
    assert 1 <= len(run.rescales) <= 2
    assert FIRST <= run.rescales[0].time <= FIRST + 300  # it sees a batch when that ends
    assert run.largest_backlog > 100_000
    assert (run.seconds[-100:] < run.interval).all()
    assert run.backlog[-1] < 5000
