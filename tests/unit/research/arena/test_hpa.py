"""The autoscaler's arithmetic; cases of pods that are not ready are those of replica_calculator_test.go."""

import pytest

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_operator.scaling.shape import Range
from millrace_research.arena.policies.hpa import Behavior, CpuPolicy, LagPolicy, recommended_by_cpu, recommended_by_lag

from .states import BOUNDS, plan


@pytest.mark.parametrize(
    ("current", "wanted", "expected"),
    [(1, 5, 5), (1, 9, 5), (3, 20, 7), (5, 20, 10), (10, 20, 20), (10, 90, 20), (10, 200, 20), (5, 5, 5)],
)
def test_scale_out_is_limited_to_double_or_four_more(current, wanted, expected):
    assert Behavior(Range(1, 100)).apply(wanted, current, 0.0) == expected


def test_the_limit_counts_what_was_added_within_15_seconds():
    behavior = Behavior(Range(1, 100))
    assert behavior.apply(100, 10, 0.0) == 20
    assert behavior.apply(100, 20, 14.0) == 20
    assert behavior.apply(100, 20, 15.0) == 40


def test_scale_in_goes_to_the_highest_recommendation_of_300_seconds():
    behavior = Behavior(Range(1, 100))
    assert behavior.apply(8, 8, 0.0) == 8
    assert behavior.apply(5, 8, 15.0) == 8
    assert behavior.apply(2, 8, 299.0) == 8
    assert behavior.apply(2, 8, 300.0) == 5
    assert behavior.apply(2, 5, 315.0) == 2


def test_scale_out_waits_for_nothing():
    behavior = Behavior(Range(1, 100))
    behavior.apply(2, 2, 0.0)
    assert behavior.apply(4, 2, 15.0) == 4


def test_pods_stay_within_bounds():
    behavior = Behavior(Range(2, 6))
    assert behavior.apply(9, 5, 0.0) == 6
    assert Behavior(Range(2, 6)).apply(1, 5, 0.0) == 2


@pytest.mark.parametrize(
    ("usage", "ready_pods", "current", "expected"),
    [
        (1.05, 4, 4, 4),  # within the tolerance of 10 %
        (0.95, 4, 4, 4),
        (1.2, 4, 4, 5),
        (0.5, 4, 4, 2),
        (1.5, 2, 4, 4),  # with two idle pods it would be 0.75: no scale-out while they come, nor a scale-in
        (4.0, 2, 4, 8),  # 2.0 even with two idle pods
        (2.1, 2, 4, 4),  # 1.05, within the tolerance
    ],
)
def test_cpu_counts_pods_that_are_not_ready_as_idle(usage, ready_pods, current, expected):
    assert recommended_by_cpu(usage, ready_pods, current) == expected


def test_cpu_aims_at_70_percent_of_the_requested_cores():
    policy = CpuPolicy(BOUNDS)
    assert policy.step(Answer(0.0, busy_core_seconds_total=0.0), Situation(0.0, plan(4), 0, 4)) is None
    busy = 0.95 * 4 * 2 * 15.0
    assert policy.step(Answer(15.0, busy_core_seconds_total=busy), Situation(15.0, plan(4), 0, 4)) == plan(6)


def test_cpu_does_nothing_without_metrics():
    policy = CpuPolicy(BOUNDS)
    policy.step(Answer(0.0, busy_core_seconds_total=9e9), Situation(0.0, plan(4), 0, 4))
    assert policy.step(Answer(15.0, busy_core_seconds_total=0.0), Situation(15.0, plan(4), 0, 4)) is None
    assert policy.step(None, Situation(30.0, plan(4), 0, 4)) is None


@pytest.mark.parametrize(
    ("waiting", "current", "expected"),
    [(4000, 4, 4), (4390, 4, 4), (4410, 4, 5), (3610, 4, 4), (3590, 4, 4), (2500, 4, 3), (0, 4, 0)],
)
def test_lag_is_shared_out_among_executors(waiting, current, expected):
    assert recommended_by_lag(waiting, 1000.0, current) == expected


def test_lag_is_what_arrived_less_what_finished_batches_had():
    policy = LagPolicy(BOUNDS, 1000.0, arrived=lambda time: 500.0 * time)
    answer = Answer(20.0, rows_total=4000.0, lag_rows=0.0)
    assert policy.step(answer, Situation(25.0, plan(3), 0, 3)) == plan(6)


@pytest.mark.parametrize("answer", [None, Answer(15.0), Answer(15.0, rows_total=float("nan"))])
def test_lag_does_nothing_without_metrics(answer):
    assert LagPolicy(BOUNDS, 1000.0, arrived=lambda time: 1e6).step(answer, Situation(15.0, plan(3), 0, 3)) is None
