"""A load that repeats on the cluster: before its third peak, executors are there for it."""

from __future__ import annotations

import time

import pytest

from lab.counting_query import Counting

from .paced_counts import FIRST, paced_counts

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=40), pytest.mark.timeout(3600)]

PERIOD, LENGTH, PEAKS = 600.0, 120.0, 3
"""Seconds from one peak to the next and of a peak, and how many there are."""

LEARNED = 300.0
"""Seconds before the first peak, in which the scaler learns what batches cost."""

LOW, HIGH = 0.8, 3.0
"""Multiples of the usual load outside of peaks and within."""

INTERVAL = 5
"""Seconds between batches."""


def follow(counting: Counting, until: float, factor: float) -> list[int]:
    """Let the load stay until a time, print each change of executors, and return their numbers."""
    counting.multiply(factor)
    numbers = [counting.query.plan["executors"]]
    while time.monotonic() < until:
        status = counting.query.status
        if status["plan"]["executors"] != numbers[-1]:
            numbers.append(status["plan"]["executors"])
            message = (status.get("lastScaling") or {}).get("message", "")
            print(f"{until - time.monotonic():.0f} s before the end: {numbers[-1]} executors: {message}", flush=True)
        time.sleep(1.0)
    return numbers


def test_executors_are_there_before_the_third_peak(counting: Counting) -> None:
    query = counting.query
    counting.multiply(0.0)  # so that no backlog is there to begin with
    counting.start(**paced_counts(INTERVAL))
    counting.wait_for_executors(FIRST)
    first = time.monotonic() + LEARNED
    ready, within = [], []
    for number in range(PEAKS):
        begins = first + number * PERIOD
        between = follow(counting, begins, LOW)
        ready.append(query.applied["executorsReady"])
        print(f"peak {number + 1} begins with {ready[-1]} executors that are ready, after {between}", flush=True)
        within.append(follow(counting, begins + LENGTH, HIGH))
        print(f"peak {number + 1} is over: {within[-1]}", flush=True)
    assert within[0][0] < within[0][-1], "the first is a surprise"
    assert ready[2] > FIRST
    assert max(within[2]) <= ready[2] + 1, "the third needs hardly more than what is there"
    counting.multiply(0.0)
    counting.check()
    assert query.runs == 1
