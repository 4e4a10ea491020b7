import statistics

import pytest

from bench.scaling.points import RECORDED, read_points
from bench.scaling.prediction import predictions


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
