"""Paces as functions, and rate traces as files."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_jobs.sources.pacing import NO_TIME, EventTimePace, Pacer, RatePace, read_rate_trace

TRACE = RatePace(np.array([0.0, 10.0, 20.0, 30.0]), np.array([0.0, 5.0, 0.0, 1.0]))
"""Nothing for 10 s, 5 per second for 10 s, nothing for 10 s, then 1 per second forever."""


@pytest.mark.parametrize(
    ("seconds", "rows"),
    [(0, 0), (9.9, 0), (10, 0), (11, 5), (20, 50), (29, 50), (30, 50), (31.5, 51), (1030, 1050)],
)
def test_a_trace_is_a_step_function_and_its_last_rate_holds(seconds, rows):
    assert TRACE.rows(seconds) == rows


@pytest.mark.parametrize(("row", "seconds"), [(0, 0), (1, 10.2), (50, 20), (51, 31), (1050, 1030)])
def test_the_time_of_a_row_is_the_earliest(row, seconds):
    assert TRACE.seconds(row) == pytest.approx(seconds)


@given(
    steps=st.lists(st.tuples(st.floats(0.01, 1000), st.floats(0, 1e6)), min_size=1, max_size=6),
    row=st.integers(0, 10**6),
)
def test_rows_and_seconds_are_inverse(steps, row):
    gaps, rates = zip(*steps, strict=True)
    pace = RatePace(np.concatenate(([0.0], np.cumsum(gaps)))[:-1], np.array(rates))
    if pace.rows(1e12) < row:
        return  # the rate ends at 0 before that row
    seconds = pace.seconds(row)
    assert pace.rows(math.nextafter(seconds * (1 + 1e-9) + 1e-6, math.inf)) >= row
    assert pace.rows(max(seconds * (1 - 1e-9) - 1e-6, 0)) <= row


def test_event_times_go_at_their_own_speed_and_never_backwards():
    clock = np.maximum.accumulate(np.array([100, 90, 130, 120, 200]) * 1_000_000)
    pace = EventTimePace(clock, 10)
    assert [pace.rows(s) for s in (0, 2.9, 3.0, 9.9, 10, 1000)] == [2, 2, 4, 4, 5, 5]
    assert [pace.seconds(row) for row in range(6)] == [0, 0, 0, 3, 3, 10]


def test_records_before_the_first_event_time_are_due_at_once():
    pace = EventTimePace(np.array([NO_TIME, NO_TIME, 5_000_000, 7_000_000]), 1)
    assert [pace.rows(s) for s in (0, 1, 2)] == [3, 3, 4]
    assert pace.seconds(1) == 0
    assert EventTimePace(np.array([NO_TIME, NO_TIME]), 1).rows(0) == 2
    assert EventTimePace(np.empty(0, np.int64), 1).rows(5) == 0


def test_a_pacer_goes_on_from_the_row_it_is_asked_for_first():
    now = [1000.0]
    pacer = Pacer(RatePace.constant(10), lambda: now[0])
    assert pacer.due(70) == 70
    now[0] += 2
    assert pacer.due(70) == 90
    assert pacer.due(95) == 95


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("time,rate\n5,10\n7,20\n", 1),
        ("time|rate\n1661724000|10\n1661724002|20\n", 1),
        ("date,rate\n2020-02-01 00:00:00,10\n2020-02-01 00:00:02,20\n", 1),
        ("date,rate\n2020-02-01T00:00:00Z,10\n2020-02-01T01:00:02+01:00,20\n", 1),
        ("time;rate;x\n0;1;?\n2;2;?\n", 10),
    ],
)
def test_traces_are_read_in_several_forms(tmp_path, text, scale):
    (tmp_path / "trace.csv").write_text(text)
    pace = read_rate_trace(str(tmp_path / "trace.csv"), scale=scale)
    assert (pace.times.tolist(), pace.rates.tolist()) == ([0, 2], [10, 20])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace.csv:1: the rate trace has no second column; its first line is empty; write a header with a"),
        ("a\n1\n", "trace.csv:1: the rate trace has no second column; it has a; write a header with a"),
        ("t,rate\n", "trace.csv: the rate trace has no rate above 0"),
        ("t,rate\n1,0\n", "trace.csv: the rate trace has no rate above 0"),
        ("t,rate\n1,2\nx,3\n", "trace.csv:3: 'x' is not a time"),
        ("t,rate\n1,2\n2,-1\n", "trace.csv:3: '-1' is not a rate"),
        ("t,rate\n1,2\n2,nan\n", "trace.csv:3: 'nan' is not a rate"),
        ("t,rate\n1,2\n2\n", "trace.csv:3: '' is not a rate"),
        ("t,rate\n1,2\n1,3\n", "trace.csv:3: the time does not advance"),
        ("t,rate\n1,2\n\n1,3\n", "trace.csv:4: the time does not advance"),
        ("t,rate\n1,2\n\n2,-1\n", "trace.csv:4: '-1' is not a rate"),
        ("t,rate\n1,2\nnan,3\n", "trace.csv:3: 'nan' is not a time"),
        ("t,rate\n1,2\ninf,3\n", "trace.csv:3: 'inf' is not a time"),
    ],
)
def test_a_trace_that_is_none_says_where(tmp_path, text, message):
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(MillraceError) as error:
        read_rate_trace(str(file))
    assert str(error.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_a_missing_trace_is_one_sentence(tmp_path):
    with pytest.raises(MillraceError, match="cannot be read as a rate trace"):
        read_rate_trace(str(tmp_path / "none.csv"))


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "scale", "steps", "last"),
    [
        ("demeter_dsp_rates/ADS_3D_1S_4_sub_30K_max.csv", 1, 64_800, 64_799),
        ("dsp_load_rates/taxi_5min.csv", 1 / 300, None, None),
        ("nab_rates/Twitter_volume_AAPL.csv", 1 / 300, None, None),
    ],
)
def test_real_traces_are_read_whole(data, name, scale, steps, last):
    pace = read_rate_trace(str(data(name)), scale=scale)
    assert steps in (None, len(pace.rates))
    assert last in (None, pace.times[-1])
    assert pace.rows(pace.times[-1]) == pytest.approx(np.sum(np.diff(pace.times) * pace.rates[:-1]), abs=1)
