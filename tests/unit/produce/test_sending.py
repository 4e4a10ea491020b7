"""The loop on a clock of its own: pace, limits, and when it ends."""

from threading import Event

import numpy as np
import pyarrow as pa
import pytest

from millrace_jobs.produce.delivery import SendLimits, send_all
from millrace_jobs.sources.pacing import RatePace


class Outlet:
    """Keeps what it gets; time passes when it waits, and ``cost`` seconds with each message."""

    def __init__(self, cost=0.0):
        self.now = 100.0
        self.got = []
        self.times = []
        self._cost = cost

    def clock(self):
        return self.now

    def send(self, values, keys, stopped):
        self.now += self._cost * len(values)
        self.got += values if keys is None else zip(values, keys, strict=True)
        self.times += [self.now - 100.0] * len(values)

    def poll(self, seconds):
        self.now += seconds


def batches(*sizes):
    first = 0
    for size in sizes:
        yield pa.RecordBatch.from_pydict({"n": range(first, first + size)})
        first += size


def send(records, outlet, pace=None, *, count=None, duration=None, stop=None, keyed=False):
    advanced = []

    def encode(batch):
        values = batch.column(0).to_pylist()
        return values, [-value for value in values] if keyed else None

    send_all(
        records,
        encode,
        outlet,
        pace=pace,
        limits=SendLimits(count, duration),
        stop=stop or Event(),
        advanced=advanced.append,
        clock=outlet.clock,
    )
    assert sum(advanced) == len(outlet.got)
    return outlet.got


def test_everything_is_sent_in_order_as_fast_as_it_goes():
    outlet = Outlet()
    assert send(batches(25_000, 0, 1, 3), outlet) == list(range(25_004))
    assert outlet.now == 100.0


@pytest.mark.parametrize("count", [1, 9_999, 10_000, 10_001, 25_000, 30_000])
def test_no_more_is_sent_than_the_count(count):
    assert send(batches(25_000, 3), Outlet(), count=count) == list(range(min(count, 25_003)))


def test_keys_stay_with_their_values():
    got = send(batches(12_000), Outlet(), RatePace.constant(1_000), keyed=True)
    assert got == [(n, -n) for n in range(12_000)]


def test_a_rate_is_kept_to_the_message():
    outlet = Outlet()
    send(batches(50), outlet, RatePace.constant(10))
    due = [(n + 1) / 10 for n in range(50)]
    assert all(0 <= at - wanted <= 0.011 for at, wanted in zip(outlet.times, due, strict=True))


def test_what_was_missed_is_made_up_for():
    """Messages take 20 ms each for a rate of 40 in a second: none waits for another; then the rate is lower."""
    outlet = Outlet(cost=0.02)
    trace = RatePace(np.array([0.0, 1.0]), np.array([100.0, 1.0]))
    send(batches(102), outlet, trace)
    assert outlet.times[99] == pytest.approx(2.0, abs=0.1)
    assert outlet.times[101] == pytest.approx(3.0, abs=0.1)


def test_nothing_is_sent_after_the_duration():
    outlet = Outlet()
    got = send(batches(10**6), outlet, RatePace.constant(1000), duration=2.5)
    assert len(got) == pytest.approx(2500, abs=12)
    assert outlet.now == pytest.approx(102.5, abs=0.02)


def test_sending_ends_when_it_is_asked_to():
    stop = Event()

    class Stopping(Outlet):
        def send(self, values, keys, stopped):
            super().send(values, keys, stopped)
            assert not stopped()
            if len(self.got) >= 20_000:
                stop.set()
                assert stopped()

    assert len(send(batches(10**6), Stopping(), stop=stop)) == 20_000
