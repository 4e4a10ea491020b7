import json
import math
from dataclasses import replace

import numpy as np
import pytest

from millrace_operator.scaling.batch_time.calibration import Calibration
from millrace_operator.scaling.decision.demand import Demand
from millrace_operator.scaling.decision.keeping_up import FALLING_BEHIND, PERSISTENT, KeepingUp
from millrace_operator.scaling.observation import Observation, Stage
from millrace_operator.scaling.shape import Shape
from unit.scaling.deciding import BOUNDS

PLAN = Shape(2, 4, 4)


def seen(rate=2e4, rows=None, lag=0.0, noise=1.0, **more):
    rows = 2 * rate if rows is None else rows
    tasks = 1.4e-4 * rows
    stages = {"route": Stage(4, 0.3 * tasks), "combine": Stage(4, 0.6 * tasks), "merge_seconds": 0.1 * tasks}
    return Observation(
        0.0, 6.0, 0, PLAN, 3, 2.0, (0.2 + tasks / 4) * noise, rows, rate, lag, keys=1e3, partials=2e3, updates=1e3,
        imbalance=0.0, **stages, **more,
    )  # fmt: skip


class Job:
    """What is learned of a job whose W is 0.8 at 20,000 records/s."""

    def __init__(self):
        self.calibration, self.demand = Calibration(BOUNDS, 8), Demand(180.0)
        self.keeping_up = KeepingUp(drain_seconds=120.0)
        for noise in (1.0, 0.99, 1.01, 1.0):
            self.add(seen(noise=noise))

    def add(self, observation):
        self.calibration.add(observation)
        self.demand.add(observation)
        self.keeping_up.add(observation, PLAN, self.demand, self.calibration)
        return self.keeping_up


def test_w_is_the_typical_one_of_the_last_batches():
    job = Job()
    assert job.add(seen(noise=3.0)).utilization == pytest.approx(0.8, rel=0.02)


def test_what_is_caught_up_does_not_count_at_the_rate_of_arrival():
    job = Job()
    for _ in range(3):
        keeping_up = job.add(seen(rows=8e4))
    assert keeping_up.utilization == pytest.approx(1.5)
    assert keeping_up.at_arrival == pytest.approx(0.8, rel=0.15)
    assert not keeping_up.behind
    assert not keeping_up.falling_behind


def test_a_plan_that_cannot_keep_up_is_told_after_a_few_observations():
    job = Job()
    verdicts = [job.add(seen(rate=6e4)).falling_behind for _ in range(FALLING_BEHIND + 1)]
    assert verdicts == [False] * (FALLING_BEHIND - 1) + [True, True]
    assert job.keeping_up.behind


def test_a_lag_that_is_not_drained_in_time_is_behind():
    job = Job()
    assert not job.add(seen(lag=1e5)).behind
    assert job.add(seen(lag=5e6)).behind


def test_partitioner_pods_that_are_busy_count_as_w():
    job = Job()
    for _ in range(3):
        keeping_up = job.add(seen(dedicated_busy=0.97))
    assert keeping_up.at_arrival == 0.97
    assert keeping_up.utilization < 0.85


def test_partitioner_pods_that_catch_up_are_no_reason_for_more():
    job = Job()
    for _ in range(3):
        keeping_up = job.add(seen(rows=8e4, dedicated_busy=1.0))
    assert keeping_up.at_arrival < 0.9


def test_partitioner_pods_that_pass_on_less_than_arrives_are_too_few():
    job = Job()
    for _ in range(3):
        keeping_up = job.add(seen(rows=2e4, lag=6e4, dedicated_busy=1.0))
    assert keeping_up.batches_at_arrival < 1 < keeping_up.at_arrival


def test_what_lasts_takes_longer_to_tell():
    job = Job()
    told = [job.add(seen(rate=2.15e4)).persistently_above(0.82) for _ in range(PERSISTENT)]
    assert told[0] is False
    assert told[-1] is True


def test_growth_that_would_be_too_much_has_to_be_seen_several_times():
    keeping_up = Job().keeping_up
    verdicts = []
    for growth in (1.2, 1.2, 1.0, 1.2, 1.2, 1.2):
        keeping_up.expect(growth, 0.9)
        verdicts.append(keeping_up.outgrown)
    assert verdicts == [False] * 5 + [True]
    keeping_up.expect(1.1, 0.9)
    assert not keeping_up.outgrown


@pytest.mark.parametrize("scatter", [0.02, 0.05, 0.1])
def test_the_safe_w_is_what_noise_allows(scatter):
    job, rng = Job(), np.random.default_rng(1)
    for _ in range(300):
        noise = float(np.exp(rng.normal(0, scatter, 3)).mean())
        job.add(seen(rate=1.5e4, noise=noise))
    assert job.keeping_up.safe == pytest.approx(math.exp(-2.054 * scatter), abs=0.05)


def test_what_was_seen_of_keeping_up_survives_a_restart():
    job = Job()
    job.add(seen(rate=6e4))
    saved = json.loads(json.dumps(job.keeping_up.save()))
    other = KeepingUp(120.0)
    other.restore(saved)
    assert other.save() == job.keeping_up.save()
    again = replace(seen(rate=6e4), since=6.0, until=12.0)
    other.add(again, PLAN, job.demand, job.calibration)
    job.keeping_up.add(again, PLAN, job.demand, job.calibration)
    assert (other.at_arrival, other.behind) == (job.keeping_up.at_arrival, job.keeping_up.behind)
