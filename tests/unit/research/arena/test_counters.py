import math

import pytest

from millrace_operator.scaling.observation import Answer
from millrace_research.arena.simulation.metrics import increase, ratio


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(3.0, 5.0, 2.0), (5.0, 5.0, 0.0), (5.0, 3.0, None), (None, 3.0, None), (3.0, None, None), (math.nan, 3.0, None)],
)
def test_an_increase_needs_two_numbers_and_no_reset(before, after, expected):
    assert increase(Answer(0, rows_total=before), Answer(1, rows_total=after), "rows_total") == expected


def test_there_is_no_increase_without_two_answers():
    assert increase(None, Answer(0, rows_total=1.0), "rows_total") is None
    assert increase(Answer(0, rows_total=1.0), None, "rows_total") is None


@pytest.mark.parametrize(("above", "below", "expected"), [(6, 3, 2), (None, 3, None), (6, None, None), (6, 0, None)])
def test_a_ratio_needs_something_to_divide_by(above, below, expected):
    assert ratio(above, below) == expected
