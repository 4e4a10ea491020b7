import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.arena.simulation.job import makespans
from millrace_support.batch_cost import makespan

tasks_and_cores = st.tuples(st.lists(st.floats(0, 100), max_size=30), st.integers(1, 12))


gaps = st.sampled_from([0.0, 0.5, 20.0])


def by_looking_for_the_free_core(tasks, cores, gap):
    free = [0.0] * cores
    for number, task in enumerate(tasks, 1):
        core = free.index(min(free))
        free[core] = max(free[core], number * gap) + task
    return max(free)


def test_tasks_are_taken_in_order_by_the_core_that_is_free_first():
    assert makespan([3, 1, 1, 1, 2], 2) == 5
    assert makespan([3, 1, 2], 3) == 3
    assert makespan([3, 1, 2], 1) == 6
    assert makespan([], 4) == 0


def test_tasks_begin_when_they_are_handed_out():
    assert makespan([3, 1], 2, gap=0.5) == 3.5
    assert makespan([1, 1, 1], 2, gap=2) == 7
    assert makespan([3, 3, 3], 2, gap=0.5) == 6.5


@given(tasks_and_cores, gaps)
def test_the_makespan_is_that_of_looking_for_the_free_core(drawn, gap):
    tasks, cores = drawn
    wanted = by_looking_for_the_free_core(tasks, cores, gap) if tasks else 0
    assert makespan(tasks, cores, gap) == pytest.approx(wanted)


@given(tasks_and_cores)
def test_the_makespan_is_within_grahams_bound(drawn):
    tasks, cores = drawn
    least = max(sum(tasks) / cores, max(tasks, default=0))
    assert least - 1e-9 <= makespan(tasks, cores) <= least * (2 - 1 / cores) + 1e-9


@given(st.integers(0, 20), st.integers(1, 9), gaps, st.integers(0, 2**32))
def test_many_stages_are_computed_at_once(count, cores, gap, seed):
    tasks = np.random.default_rng(seed).random((3, 2, count))
    one_by_one = [[makespan(list(stage), cores, gap) for stage in row] for row in tasks]
    assert makespans(tasks, cores, gap) == pytest.approx(np.array(one_by_one))
