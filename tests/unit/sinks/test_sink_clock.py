"""The clock of sinks counts their own time, and not the time that results take to come."""

import pytest

from millrace_jobs.sinks import sink_clock
from millrace_jobs.sinks.sink_clock import SinkClock


@pytest.fixture
def time(monkeypatch):
    """A clock that a test moves."""
    now = [100.0]
    monkeypatch.setattr(sink_clock.time, "perf_counter", lambda: now[0])
    return now


def slowly(time, count, seconds):
    for number in range(count):
        time[0] += seconds
        yield number


def test_waiting_for_results_does_not_count(time):
    clock = SinkClock()
    with clock.running():
        for _ in clock.outside(slowly(time, 3, 10.0)):
            time[0] += 1.0
    assert clock.seconds == 3.0


def test_blocks_within_each_other_count_once(time):
    clock = SinkClock()
    with clock.running(), clock.running():
        time[0] += 2.0
    assert clock.seconds == 2.0


def test_outside_of_a_block_nothing_counts(time):
    clock = SinkClock()
    assert list(clock.outside(slowly(time, 3, 10.0))) == [0, 1, 2]
    assert clock.seconds == 0.0


def test_an_error_ends_the_time_of_its_block(time):
    clock = SinkClock()

    def fails():
        with clock.running():
            time[0] += 2.0
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    time[0] += 5.0
    assert clock.seconds == 2.0
    with clock.running():
        time[0] += 1.0
    assert clock.seconds == 3.0


def test_what_tasks_took_is_added():
    clock = SinkClock()
    clock.add(1.5)
    assert clock.seconds == 1.5
