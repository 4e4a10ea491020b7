"""Predictions of recorded and simulated jobs that begin with the costs of another one (``bench.scaling.donors``)."""

import statistics
from collections import defaultdict

import pytest

from bench.scaling.donors import ALIKE, CHEAPER, DEARER, NO_DONOR, OTHER, SAME, recorded, simulated
from bench.scaling.prediction import TUNED


@pytest.fixture(scope="module")
def one_plan():
    """Predictions of jobs held back from tuning, after one plan."""
    return by_donor(one for one in recorded([1]) if one.job not in TUNED)


@pytest.fixture(scope="module")
def in_simulation():
    return by_donor(simulated(3))


def by_donor(outcomes):
    found = defaultdict(list)
    for one in outcomes:
        found[one.donor].append(one)
    return found


def error(outcomes):
    return statistics.mean(abs(one.ratio - 1) for one in outcomes)


@pytest.mark.parametrize("donor", [SAME, ALIKE, DEARER, CHEAPER])
def test_costs_of_a_similar_job_halve_the_error_after_one_plan(one_plan, in_simulation, donor):
    assert error(one_plan[donor]) < 0.6 * error(one_plan[NO_DONOR])
    if donor != ALIKE:
        assert error(in_simulation[donor]) < 0.6 * error(in_simulation[NO_DONOR])


@pytest.mark.parametrize("donor", [SAME, ALIKE, DEARER, CHEAPER, OTHER])
def test_intervals_hold_whatever_costs_they_begin_with(one_plan, in_simulation, donor):
    assert statistics.mean(one.covered for one in one_plan[donor]) >= 0.88
    assert donor == ALIKE or statistics.mean(one.covered for one in in_simulation[donor]) >= 0.88


def test_costs_of_another_job_make_nothing_worse_after_three_observations(one_plan, in_simulation):
    for found in (one_plan, in_simulation):
        assert error(found[OTHER]) <= error(found[NO_DONOR])


def test_no_simulated_job_loses_its_intervals_to_any_other(in_simulation):
    """Before costs that a job's batches contradict were dropped, one with a slow sink kept 55 % of them."""
    by_job = defaultdict(list)
    for one in in_simulation[OTHER]:
        by_job[one.job].append(one.covered)
    assert min(map(statistics.mean, by_job.values())) >= 0.88
