"""The tasks of a batch while cores of its plan are missing."""

import math

from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.scaling.shape import Shape
from millrace_support.batch_cost import fitted_tasks

COUNTS = st.integers(1, 60)


@given(COUNTS, COUNTS, st.integers(0, 60))
def test_they_are_the_most_that_need_no_other_wave(tasks, planned, ready):
    fitted = fitted_tasks(tasks, planned, ready)
    if ready == 0 or ready >= planned:
        assert fitted == tasks
        return
    waves = math.ceil(tasks / planned)
    assert 1 <= fitted <= tasks
    assert math.ceil(fitted / ready) <= waves
    assert fitted == tasks or math.ceil((fitted + 1) / ready) > waves


@given(st.integers(1, 8), st.integers(1, 24), st.integers(1, 24), st.integers(1, 4))
def test_a_shape_knows_the_tasks_that_it_runs_with_fewer_executors_and_no_others(executors, n, m, cores):
    """More replicas than fit, up to those of the plan, are needed where much waits to be read."""
    shape = Shape(executors, n, m)
    fitted = [shape.fitted(ready, cores) for ready in range(1, executors + 1)]
    runs = {(one.parallelism, replicas) for one in fitted for replicas in range(one.replicas, m + 1)}
    known = {(i, j) for i in range(1, n + 2) for j in range(1, m + 2) if shape.runs_as(i, j, cores)}
    assert known == runs
