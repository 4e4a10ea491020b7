import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_time import starts_of_windows_with
from millrace_jobs.windows import Window, pane_starts

TIMES = st.integers(-500, 500) | st.integers(-(2**52), 2**52)


@st.composite
def windows(draw):
    size = draw(st.integers(1, 60))
    slide = draw(st.integers(1, size))
    return Window("at", size, slide, draw(st.integers(-slide + 1, slide - 1)))


def panes_of(times, window):
    return pane_starts(pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC")), window)


@given(windows(), st.lists(TIMES, min_size=1, max_size=20))
def test_a_pane_is_where_no_window_starts_or_ends(window, times):
    for time, pane in zip(times, panes_of(times, window).tolist(), strict=True):
        assert pane <= time < pane + window.pane
        for inside in (pane, time, pane + window.pane - 1):
            assert starts_of_windows_with(inside, window) == starts_of_windows_with(time, window)


@given(windows())
def test_no_longer_pane_would_do(window):
    instants = range(window.offset, window.offset + 2 * window.slide + 1)
    changes = [at for at in instants if starts_of_windows_with(at - 1, window) != starts_of_windows_with(at, window)]
    assert math.gcd(*(at - window.offset for at in changes)) == window.pane


@given(windows(), st.lists(TIMES, min_size=1, max_size=20))
def test_the_last_end_is_that_of_the_latest_window(window, times):
    expected = [max(starts_of_windows_with(time, window)) + window.size for time in times]
    assert window.last_end(panes_of(times, window)).tolist() == expected


@given(windows(), st.lists(TIMES, max_size=20))
def test_a_pane_is_in_the_windows_that_hold_it(window, times):
    found = [[] for _ in times]
    for index, start in zip(*window.starts(panes_of(times, window)), strict=True):
        found[index].append(int(start))
    assert [sorted(starts) for starts in found] == [starts_of_windows_with(time, window) for time in times]


@given(windows(), TIMES)
def test_a_record_is_in_at_most_per_record_windows(window, time):
    assert 1 <= len(starts_of_windows_with(time, window)) <= window.per_record


def test_chunks_are_one_column():
    times = pa.chunked_array([[-1, 0], [], [9, 10]], pa.timestamp("us", tz="UTC"))
    assert pane_starts(times, Window("at", 10, 5)).tolist() == [-5, 0, 5, 10]


@pytest.mark.parametrize(("size", "slide", "pane"), [(10, 10, 10), (10, 5, 5), (10, 4, 2), (7, 3, 1)])
def test_the_pane_is_the_common_divisor(size, slide, pane):
    assert Window("at", size, slide).pane == pane
