"""The cases of ExecutorAllocationManagerSuite, and those that it leaves out."""

import pytest

from millrace_operator.scaling.decision.decision import Situation
from millrace_research.arena.policies.spark_ratio import SparkRatioPolicy

from .states import BOUNDS, INTERVAL, batches, plan


def after_a_minute(load, asked=4, running=4):
    policy = SparkRatioPolicy(BOUNDS, INTERVAL)
    policy.step(batches(0.0, 0, 0.0), Situation(60.0, plan(asked), 0, running))
    return policy.step(batches(60.0, 30, load * INTERVAL), Situation(120.0, plan(asked), 0, running))


@pytest.mark.parametrize(
    ("load", "expected"),
    [(0.31, 4), (0.89, 4), (0.9, 5), (1.0, 5), (1.49, 5), (1.5, 6), (2.5, 7), (40.0, 10), (0.3, 3), (0.1, 3)],
)
def test_executors_follow_the_ratio_with_spark_s_thresholds(load, expected):
    assert after_a_minute(load) == plan(expected)


def test_more_executors_are_asked_for_on_top_of_those_that_run():
    assert after_a_minute(1.0, asked=8, running=4) == plan(5)


def test_one_executor_less_is_one_less_than_asked_for():
    assert after_a_minute(0.1, asked=8, running=4) == plan(7)


def test_the_last_executor_is_never_released():
    assert after_a_minute(0.1, asked=1, running=1) == plan(1)


def test_nothing_follows_from_no_batch():
    policy = SparkRatioPolicy(BOUNDS, INTERVAL)
    assert policy.step(None, Situation(60.0, plan(4), 0, 4)) is None
    assert policy.step(batches(60.0, 30, 9.0), Situation(120.0, plan(4), 0, 4)) is None
    assert policy.step(batches(120.0, 30, 9.0), Situation(180.0, plan(4), 0, 4)) is None
