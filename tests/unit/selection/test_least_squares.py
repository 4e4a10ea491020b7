import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_jobs.selection.costs import fit_costs

PRIOR = np.array([0.01, 0.6e-6, 15e-6])
COSTS = [[0.01, 1e-6, 5e-6], [0.01, 20e-6, 5e-6], [0.02, 1e-6, 100e-6], [0.0, 0.1e-6, 0.1e-6]]


def measured(costs, tasks=200, scatter=0.0, seed=1):
    rng = np.random.default_rng(seed)
    work = np.column_stack([np.ones(tasks), rng.integers(10_000, 30_000, tasks), rng.integers(500, 1_500, tasks)])
    return work, work @ np.array(costs) * np.exp(rng.normal(0, scatter, tasks))


@pytest.mark.parametrize("costs", COSTS)
def test_exact_measurements_give_the_costs(costs):
    work, seconds = measured(costs)
    assert work @ fit_costs(work, seconds, PRIOR) == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize("costs", COSTS)
def test_scatter_and_outliers_do_little(costs):
    work, seconds = measured(costs, scatter=0.05)
    expected = work @ np.array(costs)
    seconds[:20] *= 5
    assert work @ fit_costs(work, seconds, PRIOR) == pytest.approx(expected, rel=0.06)


def test_records_that_cost_far_more_than_the_prior_has_are_not_taken_for_a_fixed_time():
    """Tasks that all have about as much to do tell what one has that gets a hot key."""
    rng = np.random.default_rng(1)
    work = np.column_stack([np.ones(150), rng.normal(150, 15, 150), rng.normal(15, 2, 150)])
    costs = np.array([0.3, 0.04, 0.03])
    found = fit_costs(work, work @ costs * np.exp(rng.normal(0, 0.03, 150)), PRIOR)
    hot = np.array([1.0, 360.0, 15.0])
    assert hot @ found == pytest.approx(hot @ costs, rel=0.1)


def test_what_measurements_leave_open_the_prior_decides():
    """Rows and groups grow together: only their sum is measured, and the prior has their ratio."""
    work = np.array([[1.0, 1000.0 * i, 100.0 * i] for i in range(1, 9)])
    found = fit_costs(work, work @ (3 * PRIOR), PRIOR)
    assert found == pytest.approx(3 * PRIOR, rel=1e-6)


def test_without_work_the_prior_stays():
    assert fit_costs(np.zeros((2, 3)), np.array([1.0, 2.0]), PRIOR).tolist() == PRIOR.tolist()


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**6), st.floats(0, 1e3)), min_size=1, max_size=20),
)
def test_costs_are_never_negative(tasks):
    work = np.array([[1.0, rows, groups] for rows, groups, _ in tasks])
    found = fit_costs(work, np.array([seconds for *_, seconds in tasks]), PRIOR)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
