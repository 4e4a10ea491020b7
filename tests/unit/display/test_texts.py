from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import PIN
from millrace_jobs.display.live import duration_text, moment_text, plan_text
from millrace_jobs.display.plain import cell_text
from millrace_support.terminal_texts import count_text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (9999, "9,999"),
        (9999.6, "10.0k"),
        (12_345, "12.3k"),
        (336_776, "337k"),
        (999_499, "999k"),
        (999_600, "1.00M"),
        (4_560_000, "4.56M"),
        (7e9, "7.00G"),
        (8.5e14, "850T"),
        (3e15, "3e+15"),
    ],
)
def test_a_count_has_thousands_separators(number, text):
    assert count_text(number) == text


@given(st.floats(0, 9.99e14))
def test_a_count_is_short_and_near(number):
    text = count_text(number)
    assert len(text) <= 6
    scale = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(text[-1], 1)
    assert float(text.rstrip("kMGT").replace(",", "")) * scale == pytest.approx(number, rel=0.0051, abs=0.5)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (59.94, "59.9 s"), (59.96, "0:01:00"), (72.4, "0:01:12"), (7384, "2:03:04")]
)
def test_a_duration_is_shown_by_its_size(seconds, text):
    assert duration_text(seconds) == text


def test_a_moment_is_shown_in_utc():
    east = timezone(timedelta(hours=2))
    assert moment_text(datetime(2013, 1, 1, 12, 0, 0, 900, tzinfo=UTC)) == "2013-01-01 12:00:00Z"
    assert moment_text(datetime(2013, 1, 1, 1, tzinfo=east)) == "2012-12-31 23:00:00Z"
    assert moment_text(None) == "-"


def test_a_plan_is_shown_by_algorithm_and_sizes():
    assert plan_text(PIN) == "pkg m=2 n=4"
    assert plan_text(None) == "-"


@pytest.mark.parametrize(
    ("cell", "text"),
    [(None, "NULL"), (1.5, "1.5"), ("Zürich 1", "Zürich 1"), ("a\n\x1b[31m\x9b", r"a\n\x1b[31m\x9b"), ("", "")],
)
def test_a_value_of_a_row_is_shown_without_control_characters(cell, text):
    assert cell_text(cell) == text


@given(st.text())
def test_a_value_is_one_line_that_a_terminal_only_prints(text):
    assert cell_text(text).isprintable()
