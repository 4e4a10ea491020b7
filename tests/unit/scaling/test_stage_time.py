import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.scaling.batch_time.stage_work import finishing
from unit.scaling.true_job import list_schedule

SIZES = [(tasks, cores) for tasks in (1, 2, 3, 4, 7, 12, 16, 31, 64) for cores in (1, 2, 3, 5, 8, 16)]
RATIOS = (1.0, 1.3, 2.0, 4.0, 10.0, 40.0)


def closed_form(tasks, cores, ratio):
    ordinary, hot = finishing(*(np.array([float(value)]) for value in (tasks, cores, ratio)))
    return float((ordinary + hot * ratio)[0])


def scheduled(tasks, cores, ratio):
    """Mean over all places of the hot task among the others."""
    orders = [[1.0] * place + [ratio] + [1.0] * (tasks - 1 - place) for place in range(tasks)]
    return np.mean([list_schedule(order, cores) for order in orders])


@pytest.mark.parametrize(("tasks", "cores"), SIZES)
def test_tasks_that_are_alike_take_whole_waves(tasks, cores):
    assert closed_form(tasks, cores, 1.0) == pytest.approx(-(-tasks // cores))


@pytest.mark.parametrize(("tasks", "cores"), SIZES)
def test_the_place_of_the_hot_task_is_averaged_over_as_by_list_scheduling(tasks, cores):
    errors = [closed_form(tasks, cores, r) / scheduled(tasks, cores, r) - 1 for r in RATIOS if tasks > 1 or r == 1]
    assert np.abs(errors).max() < 0.16
    assert np.abs(errors).mean() < 0.05


def test_the_usual_error_is_a_few_percent():
    errors = [
        closed_form(*size, r) / scheduled(*size, r) - 1 for size in SIZES for r in RATIOS if size[0] > 1 or r == 1
    ]
    assert np.abs(errors).mean() < 0.015
    assert abs(np.mean(errors)) < 0.005


def test_tasks_of_which_each_has_a_core_wait_for_the_hot_one():
    assert closed_form(4, 4, 3.0) == pytest.approx(3.0)


def test_one_core_does_one_after_the_other():
    assert closed_form(5, 1, 3.0) == pytest.approx(7.0)


@given(st.integers(1, 100), st.integers(1, 64), st.floats(1, 100))
def test_more_cores_are_never_slower(tasks, cores, ratio):
    assert closed_form(tasks, cores + 1, ratio) <= closed_form(tasks, cores, ratio) * (1 + 1e-9)


@given(st.integers(1, 100), st.integers(1, 64), st.floats(1, 100))
def test_the_time_of_a_stage_is_between_perfect_sharing_and_the_bound_of_graham(tasks, cores, ratio):
    total, longest = tasks - 1 + ratio, ratio
    found = closed_form(tasks, cores, ratio)
    assert found >= max(total / cores, longest) * (1 - 1e-9)
    assert found <= (total / cores + longest * (1 - 1 / cores)) * (1 + 1e-9)
