"""The cases of scaling_policy_test.rs in strymon-system/ds2, with one instance of each operator."""

import pytest

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.observation import Answer
from millrace_research.arena.policies.ds2 import Ds2Operator, Ds2Policy, instances

from .states import BOUNDS, plan


def operator(true_input_rate, true_output_rate):
    return Ds2Operator(records_in=true_input_rate, records_out=true_output_rate, useful_seconds=1.0)


@pytest.mark.parametrize(
    ("source", "first", "second", "expected"),
    [
        (100.0, (50.0, 400.0), (100.0, 200.0), [2, 8]),
        (200.0, (40.0, 700.0), (99.0, 200.0), [5, 35.35]),
        (200.0, (10.0, 700.0), (201.0, 200.0), [20, 69.65]),
        (400.0, (40.0, 700.0), (99.0, 200.0), [10, 70.71]),
    ],
)
def test_instances_are_computed_in_topological_order(source, first, second, expected):
    assert instances([operator(*first), operator(*second)], source) == pytest.approx(expected, rel=1e-3)


def answer(time):
    """Each second: 1000 records, 500 partial results; cores are at work 0.9 s, most of it for combine."""
    return Answer(
        time,
        rows_total=1000.0 * time,
        partials_total=500.0 * time,
        updates_total=100.0 * time,
        route_seconds_total=2.0 * time,
        combine_seconds_total=4.0 * time,
        merge_seconds_total=1.0 * time,
        processing_seconds_total=0.9 * time,
    )


def decided(rate, steps=4, epoch=0):
    policy = Ds2Policy(BOUNDS, arrived=lambda time: rate * time)
    return [
        policy.step(answer(10.0 * step), Situation(10.0 * step, plan(3), epoch if step > 2 else 0, 3))
        for step in range(1, steps + 1)
    ]


def test_all_operators_share_the_executors():
    assert decided(1000.0)[-1] == plan(3)  # 0.9 of 6 cores
    assert decided(1500.0)[-1] == plan(5)  # 8.1 cores
    assert decided(100_000.0)[-1] == plan(10)


def test_two_intervals_are_ignored_after_a_change():
    assert decided(1500.0) == [None, None, plan(5), plan(5)]
    assert decided(1500.0, steps=5, epoch=1) == [None, None, None, None, plan(5)]


def test_nothing_follows_from_missing_metrics():
    policy = Ds2Policy(BOUNDS, arrived=lambda time: 1000.0 * time)
    for step in range(1, 5):
        assert policy.step(Answer(10.0 * step), Situation(10.0 * step, plan(3), 0, 3)) is None
    assert policy.step(None, Situation(50.0, plan(3), 0, 3)) is None
