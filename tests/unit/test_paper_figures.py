"""Figures of the papers' rerun as text."""

import pytest
from bench.papers.figures import short


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0123, "0.012"), (7, "7"), (99.4, "99"), (99.7, "100"), (-99.7, "-100"), (100.4, "100"), (1234, "1,234")],
)
def test_a_number_has_two_digits_or_is_whole(number, text):
    assert short(number) == text
