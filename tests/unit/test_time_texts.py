"""Single times of any year as text, against NumPy."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace_jobs.shown_values import shown_value
from millrace_jobs.time_texts import date_text, micros_of, time_text

YEAR_1, YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000


@given(st.integers(YEAR_1 * 3, YEAR_10000 * 30) | st.sampled_from([YEAR_1, YEAR_10000]).map(lambda micros: micros - 1))
@example(YEAR_1)
@example(YEAR_10000)
@example(-62_167_219_200_000_001)
def test_a_time_of_any_year_has_a_text_and_is_read_back(micros):
    year, rest = re.fullmatch(r"(-?\d+)(-.*)", str(np.datetime64(micros, "us"))).groups()
    sign = "+" if micros >= YEAR_10000 else "-" if int(year) < 0 else ""
    text = f"{sign}{abs(int(year)):04}{rest}"
    assert time_text(micros) == text + "Z"
    assert time_text(micros, zoned=False) == text
    assert micros_of(text + "Z") == micros_of(text) == micros
    assert date_text(text.partition("T")[0]) == text.partition("T")[0]


def test_a_time_is_read_with_its_offset():
    assert micros_of("+10000-01-01T01:00:00+02:00") == YEAR_10000 - 3_600_000_000
    assert micros_of("+10000-01-01T01:00:00+02:00", zoned=False) == YEAR_10000 + 3_600_000_000


@pytest.mark.parametrize("text", ["", "+10000", "10000-13-01", "+10000-02-30", "-2024", "now"])
def test_a_text_that_is_no_time_is_refused(text):
    with pytest.raises(ValueError):
        micros_of(text)


def test_values_beyond_the_years_of_python_are_shown_as_text():
    times = pa.array([YEAR_10000, None], pa.timestamp("us", "UTC"))
    windows = pa.StructArray.from_arrays([times, times.cast(pa.timestamp("us"))], ["start", "end"])
    later = "+10000-01-01T00:00:00.000000"
    assert [shown_value(value) for value in windows] == [
        {"start": later + "Z", "end": later},
        {"start": None, "end": None},
    ]
    assert shown_value(pa.array([[2_932_897]], pa.list_(pa.date32()))[0]) == ["+10000-01-01"]
    assert shown_value(pa.scalar(1.5)) == 1.5
