import time

import pytest

from millrace_jobs.run.wall_clock import WallClock


class Clocks:
    """Both clocks of a machine."""

    def __init__(self, patch):
        self.day = self.running = 1000.0
        patch.setattr(time, "time", lambda: self.day)
        patch.setattr(time, "monotonic", lambda: self.running)

    def go_on(self, seconds, step=0.0):
        self.running += seconds
        self.day += seconds + step


def test_only_a_clock_that_is_set_back_is_noticed(monkeypatch):
    clocks = Clocks(monkeypatch)
    clock = WallClock()
    clocks.go_on(3600)
    assert clock.set_back() == 0
    clocks.go_on(1, step=50)
    assert clock.set_back() == 0
    clocks.go_on(1, step=-60)
    assert clock.set_back() == pytest.approx(60)
    clocks.go_on(1, step=20)
    assert clock.set_back() == pytest.approx(40)
    assert WallClock().set_back() == 0
