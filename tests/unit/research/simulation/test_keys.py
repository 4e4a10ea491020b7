import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.arena.simulation.keys import Keys, KeySchedule, always, frequencies, growth

some_keys = st.builds(Keys, st.integers(1, 3000), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.sampled_from([0.0, 0.4]))


@given(some_keys)
def test_frequencies_are_shares_in_falling_order(keys):
    shares = frequencies(keys)
    assert shares.sum() == pytest.approx(1)
    assert (np.diff(shares) <= 1e-15).all()


def test_frequencies_follow_zipf_and_a_hot_key():
    assert frequencies(Keys(3, exponent=1)) == pytest.approx(np.array([6, 3, 2]) / 11)
    assert frequencies(Keys(2, hot=0.5)) == pytest.approx([0.75, 0.25])


@given(some_keys, st.floats(1, 1e7))
def test_distinct_keys_of_a_batch_are_those_expected_of_independent_draws(keys, rows):
    exact = (1 - (1 - frequencies(keys)) ** rows).sum()
    assert keys.appearing(rows) == pytest.approx(exact, rel=0.03)


def test_distinct_keys_end_at_all_of_them():
    assert Keys(1000).appearing(0) == 0
    assert Keys(1000).appearing(1) == pytest.approx(1)
    assert Keys(1000).appearing(1e12) == pytest.approx(1000)


def test_keys_change_at_their_time():
    first, second = Keys(10), Keys(10, salt=1)
    shift = KeySchedule([(0, first), (60, second)])
    assert shift.at(0) == shift.at(59.9) == first
    assert shift.at(60) == shift.at(1e9) == second
    assert always(first).at(1e9) == first


def test_keys_grow_by_the_same_factor():
    schedule = growth(Keys(100, exponent=1.1, hot=0.1, salt=3), 1600, since=10, until=40, parts=4)
    assert [schedule.at(time).distinct for time in (9, 10, 20, 30, 40)] == [100, 200, 400, 800, 1600]
    assert schedule.at(40) == Keys(1600, exponent=1.1, hot=0.1, salt=3)


@pytest.mark.parametrize("parts", [[], [(1, Keys(1))], [(0, Keys(1)), (5, Keys(2)), (4, Keys(3))]])
def test_a_schedule_begins_at_0_and_goes_on(parts):
    with pytest.raises(ValueError, match="start at second 0"):
        KeySchedule(parts)


@pytest.mark.parametrize("odd", [{"distinct": 0}, {"distinct": 1, "exponent": -1}, {"distinct": 1, "hot": 1}])
def test_keys_out_of_range_are_refused(odd):
    with pytest.raises(ValueError, match="keys out of range"):
        Keys(**odd)
