"""Early batch release, and time-based blocks (paper 004, Figure 7 and section 2.2.1)."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.prompt.partitioner import EarlyRelease
from millrace_research.papers.prompt_004 import time_blocks

times = st.floats(0, 1e6)


def test_the_slack_follows_the_longest_of_the_past_eight_partitioning_times():
    release = EarlyRelease(interval=2.0)
    assert release.slack == 0.1  # 5 %, as long as nothing is known
    release = release.after(0.06).after(0.02)
    assert release.slack == 0.06
    assert release.cut_off(heartbeat=10.0) == 10.0 - 0.06
    for _ in range(7):
        release = release.after(0.02)
    assert release.slack == 0.02


@given(st.floats(0.001, 1e6), st.lists(times, max_size=20))
def test_the_slack_is_at_most_5_percent_and_enough_if_that_is(interval, taken):
    release = EarlyRelease(interval)
    for seconds in taken:
        release = release.after(seconds)
        assert 0 <= release.slack <= 0.05 * interval
        assert release.slack >= min(seconds, 0.05 * interval)
        assert release.cut_off(100.0) <= 100.0


@pytest.mark.parametrize("bad", [0, -1.0, math.inf, math.nan])
def test_a_bad_interval_is_refused(bad):
    with pytest.raises(ValueError, match=r"the batch interval is .*; write a number above 0"):
        EarlyRelease(bad)


@pytest.mark.parametrize("bad", [-0.1, math.inf, math.nan])
def test_a_bad_partitioning_time_is_refused(bad):
    with pytest.raises(ValueError, match=r"partitioning took .*; write a number of at least 0"):
        EarlyRelease(1.0).after(bad)


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**10), st.integers(1, 300), st.data())
def test_a_record_goes_to_the_block_interval_that_its_time_is_in(start, interval, blocks, data):
    offsets = data.draw(st.lists(st.integers(0, interval - 1), max_size=30))
    ids = time_blocks(np.array(offsets, np.int64) + start, start, interval, blocks)
    assert ids.dtype == np.int32
    assert ids.tolist() == [int(Fraction(offset, 1) / Fraction(interval, blocks)) for offset in offsets]


def test_a_changing_rate_makes_unequal_blocks():
    arrivals = np.concatenate([np.arange(0, 500, 1), np.arange(500, 1000, 4)])
    assert np.bincount(time_blocks(arrivals, 0, 1000, 4)).tolist() == [250, 250, 63, 62]


def test_a_time_outside_the_batch_is_refused():
    with pytest.raises(ValueError, match="times go from 5 to 20, beyond the batch; give times from 10 to 19"):
        time_blocks(np.array([5, 20]), 10, 10, 4)
    with pytest.raises(ValueError, match="interval is 0"):
        time_blocks(np.array([5]), 5, 0, 4)
    with pytest.raises(ValueError, match="blocks is 0"):
        time_blocks(np.array([5]), 5, 1, 0)
