import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.selection.costs import TaskLoads
from millrace_support.batch_cost import makespan

SECONDS = st.lists(st.floats(0, 100), max_size=30)


@pytest.mark.parametrize(
    ("seconds", "cores", "expected"),
    [([], 2, 0), ([3], 2, 3), ([1, 2, 3], 1, 6), ([1, 2, 3], 3, 3), ([1, 1, 1, 5], 2, 6), ([5, 1, 1, 1], 2, 5)],
)
def test_tasks_go_to_the_core_that_is_free_first(seconds, cores, expected):
    assert makespan(seconds, cores) == expected


@given(SECONDS, st.integers(1, 8))
def test_the_makespan_is_within_the_bounds_of_list_scheduling(seconds, cores):
    """Graham 1966: at most (2 - 1/cores) times the best, which is at least the mean and the longest."""
    least = max([sum(seconds) / cores, *seconds], default=0.0)
    assert least - 1e-9 <= makespan(seconds, cores) <= (2 - 1 / cores) * least + 1e-9


def test_loads_grow_with_the_batch():
    loads = TaskLoads(np.array([30.0, 10.0]), np.array([3.0, 1.0]), 50).scaled(100)
    assert (loads.rows.tolist(), loads.groups.tolist(), loads.read) == ([60, 20], [6, 2], 100)
    assert loads.imbalance == 0.5
    assert TaskLoads(np.zeros(2), np.zeros(2), 50).imbalance == 0
