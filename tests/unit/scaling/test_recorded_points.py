import statistics

import pytest

from bench.scaling.points import RATES, RECORDED, read_points
from bench.scaling.prediction import TUNED, after_few_plans, predictions


@pytest.fixture(scope="module")
def predicted():
    return predictions(read_points(RECORDED))


def test_there_are_points_of_every_kind(predicted):
    kinds = {kind for one in predicted for kind in one.unseen.split(" and ")}
    assert len(predicted) >= 75
    assert {"plan", "rate", "combination"} <= kinds


def test_the_mean_absolute_error_of_points_held_out_is_what_the_docs_say(predicted):
    assert statistics.mean(abs(one.error) for one in predicted) <= 0.09


def test_intervals_hold_real_batches(predicted):
    assert statistics.mean(one.covered for one in predicted) >= 0.90


@pytest.mark.parametrize("plans", [1, 2, 3])
def test_intervals_hold_points_of_jobs_held_back_after_few_plans(plans):
    """Without the factors for few plans, they hold 46 % after one plan, 68 % after two, and 83 % after three."""
    points = read_points(RECORDED)
    held_back = [one for job in RATES if job not in TUNED for one in after_few_plans(job, points, plans)]
    assert len(held_back) >= 100
    assert statistics.mean(one.covered for one in held_back) >= 0.90
