"""A flash crowd: the load grows to 3.4 times within 90 s, while executors that were asked for still start."""

import statistics
from functools import cache

import pytest

from millrace_operator.scaling.decision.decision import Reason
from millrace_operator.scaling.decision.settings import Guard, Settings
from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.simulation.job import JobProfile, Noise, StageCost
from millrace_research.arena.simulation.keys import Keys, always
from millrace_research.arena.simulation.placement import SimulatedPartitioner
from millrace_research.arena.simulation.run import Scenario
from millrace_research.arena.simulation.traces import trace
from unit.scaling.deciding import run, scenario

SINCE, LOW, HIGH = 600.0, 420_000.0, 1_428_000.0
BURST = trace("burst", [(0, LOW), (SINCE, LOW), (SINCE + 90, HIGH), (SINCE + 690, HIGH)])
BOUNDS = Bounds(Range(1, 8), Range(2, 64), Range(1, 64), executor_cores=2)
NEEDED = 7
"""Executors that the load takes in the end."""


@cache
def burst(seed):
    """A run through the burst, and its decisions since it began."""
    found, policy = run(scenario(BURST, initial=Shape(2, 32, 16), bounds=BOUNDS), seed=seed)
    return found, [decision for decision in policy.changes if decision.time > SINCE]


@pytest.fixture(params=[1, 2, 3])
def crowd(request):
    return burst(request.param)


def test_a_burst_has_its_executors_asked_for_before_it_has_grown():
    runs = [burst(seed)[1] for seed in range(1, 6)]
    asked = [next(each.time for each in changes if each.plan.executors >= NEEDED) for changes in runs]
    assert statistics.median(asked) <= SINCE + 90
    assert max(asked) <= SINCE + 120


def test_the_first_step_is_for_the_rate_that_is_coming(crowd):
    _, changes = crowd
    first = changes[0]
    assert first.plan.executors >= 4
    assert first.inputs.demand > 1.3 * first.inputs.arrival


def test_no_more_steps_are_made_than_before_and_none_is_taken_back(crowd):
    found, changes = crowd
    steps = [each for each in changes if each.plan.executors != each.before.executors]
    assert len(steps) <= 3
    assert len(changes) <= len(steps) + 1, "other tasks on all executors that there may be"
    assert all(each.plan.executors >= each.before.executors for each in changes)
    assert found.unfinished < 4 * HIGH


def test_with_the_effect_of_the_last_change_to_be_awaited_the_rest_of_the_load_would_have_to_wait(crowd):
    """The step within the cooldown is there because the load outgrows the plan, and says by how much."""
    _, changes = crowd
    second = changes[1]
    assert second.time - changes[0].time < 60
    assert second.inputs.demand > changes[0].inputs.demand
    assert second.guard in (None, Guard.BOUNDS)


SLOW_SINCE = 200.0
SLOW_BURST = trace("growing", [(0, 100.0), (SLOW_SINCE, 100.0), (SLOW_SINCE + 90, 340.0), (SLOW_SINCE + 690, 340.0)])
SLOW_BOUNDS = Bounds(Range(2, 8), Range(1, 16), Range(1, 4), executor_cores=1)


@pytest.fixture(scope="module", params=[(fixed, seed) for fixed in (0.3, 0.8, 1.5) for seed in (1, 2, 3, 4)], ids=str)
def slow_records(request):
    """The decisions in a burst about a job whose records take 9 ms each, and which has run at one rate only."""
    fixed, seed = request.param
    job = JobProfile(
        interval=5.0,
        fixed=fixed,
        schedule=0.02,
        contention=0.02,
        route=StageCost(task=0.15, row=1e-5),
        combine=StageCost(task=0.1, row=9e-3),
        merge=StageCost(task=0.05, partial=1e-4),
        partitioner=SimulatedPartitioner.SHUFFLE,
        noise=Noise(task=0.1, batch=0.1, slow=0.02),
    )
    scene = Scenario(SLOW_BURST.name, SLOW_BURST, always(Keys(7)), SLOW_BOUNDS, Shape(2, 4, 2), job=job)
    _, policy = run(scene, seed=seed, settings=Settings(window=3, grace=3))
    return [decision for decision in policy.changes if decision.time > SLOW_SINCE]


def test_slow_records_have_executors_asked_for_within_a_minute(slow_records):
    first = next(each for each in slow_records if each.plan.executors > each.before.executors)
    assert first.time <= SLOW_SINCE + 60


def test_slow_records_are_not_answered_with_other_tasks_while_their_load_grows(slow_records):
    growing = [each for each in slow_records if each.time <= SLOW_SINCE + 90]
    assert growing
    assert all(each.plan.executors > each.before.executors for each in growing)


def test_executors_for_slow_records_are_not_taken_back(slow_records):
    """A change is judged by two batches: the longest task of a single one may be odd."""
    assert Reason.UNDONE not in [each.reason for each in slow_records]
    assert all(each.plan.executors >= each.before.executors for each in slow_records if each.time <= SLOW_SINCE + 300)
