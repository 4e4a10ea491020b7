"""The plans and the records that a calibration run tries."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.model.deployment import Parallelism, Replicas
from millrace_jobs.calibration.design import (
    DesignedPlan,
    DesignedPoint,
    designed_plans,
    designed_points,
)

ANY = Parallelism(min=1, max=1000), Replicas(min=1, max=1000)


def test_two_cores_have_the_plans_that_the_model_was_measured_with() -> None:
    assert designed_plans(2, *ANY) == [
        DesignedPlan(2, 4, 2),
        DesignedPlan(1, 2, 1),
        DesignedPlan(2, 8, 2),
        DesignedPlan(1, 8, 2),
    ]


def test_many_cores_are_compared_with_a_quarter_of_them() -> None:
    assert {plan.cores for plan in designed_plans(16, *ANY)} == {4, 16}


@given(st.integers(1, 64), st.integers(1, 20), st.integers(0, 40), st.integers(1, 8), st.integers(0, 8))
def test_plans_are_within_the_bounds_of_the_spec(cores: int, n: int, more_n: int, m: int, more_m: int) -> None:
    plans = designed_plans(cores, Parallelism(min=n, max=n + more_n), Replicas(min=m, max=m + more_m))
    assert len(set(plans)) == len(plans)
    for plan in plans:
        assert 1 <= plan.cores <= cores
        assert n <= plan.parallelism <= n + more_n
        assert m <= plan.replicas <= m + more_m


def plans_of(points: Sequence[DesignedPoint]) -> list[DesignedPlan]:
    return list(dict.fromkeys(point.plan for point in points))


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_a_round_tries_every_plan_first_and_every_size_in_the_end(cores: int) -> None:
    plans = designed_plans(cores, *ANY)
    points = designed_points(plans, 90_000)
    assert plans_of(points[: len(plans) + 1]) == plans
    assert {point.rows for point in points if point.plan == plans[0]} == {90_000, 30_000, 10_000}
    assert all({30_000, 10_000} <= {point.rows for point in points if point.plan == plan} for plan in plans)


def test_small_batches_are_not_empty() -> None:
    assert min(point.rows for point in designed_points(designed_plans(2, *ANY), 20)) == 50
