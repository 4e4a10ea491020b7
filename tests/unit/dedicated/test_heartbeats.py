"""The heartbeat at which a replica's next interval ends."""

from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.dedicated.generation import next_heartbeat

LENGTHS = st.floats(0.05, 60.0)
NOWS = st.floats(1.7e9, 1.9e9)


@given(NOWS, st.floats(0.0, 0.05), LENGTHS)
def test_the_cut_off_is_to_come_and_no_heartbeat_is_left_out(now: float, share: float, length: float) -> None:
    slack = share * length
    number = next_heartbeat(now, slack, 0, length)
    assert number * length - slack > now - 1e-6
    assert (number - 1) * length - slack <= now + 1e-6


@given(NOWS, st.floats(0.0, 0.05), st.floats(0.0, 0.05), LENGTHS)
def test_an_interval_that_ended_early_is_not_begun_again(
    now: float, before: float, after: float, length: float
) -> None:
    ended = next_heartbeat(now, before * length, 0, length)
    cut = ended * length - before * length
    assert next_heartbeat(cut, after * length, ended, length) == ended + 1


@given(NOWS, st.floats(0.0, 0.05), LENGTHS, st.integers(1, 10_000))
def test_a_clock_that_is_set_back_makes_no_long_interval(now: float, share: float, length: float, ahead: int) -> None:
    number = next_heartbeat(now, share * length, int(now // length) + ahead, length)
    assert number * length - now <= 2 * length + 1e-6


def test_an_interval_ends_at_the_next_heartbeat() -> None:
    assert next_heartbeat(99.5, 0.05, 99, 1.0) == 100
    assert next_heartbeat(99.96, 0.05, 100, 1.0) == 101  # it was cut at 99.95, and written by 99.96
    assert next_heartbeat(99.96, 0.02, 100, 1.0) == 101
    assert next_heartbeat(99.6, 0.05, 99, 1.0) == 100  # cut because a replica holds no more: the same heartbeat
