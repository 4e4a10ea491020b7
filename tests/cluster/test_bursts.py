"""A flash crowd on the cluster: the load grows to 3.4 times within 90 s, and executors are asked for while it grows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

from lab.counting_query import RATE, Counting
from lab.waiting import wait_until

from .paced_counts import FIRST, paced_counts

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=16), pytest.mark.timeout(2400)]

GROWTH, SECONDS = 3.4, 90.0
"""The load at the end of the burst over that before, and how long it grows."""

INTERVAL, TARGET = 10, 0.9
"""Seconds between batches, and the usual target of W."""

LEARNED, WAVE = 20, 6
"""Batches before the burst, from which the scaler learns what batches cost, and those of a wave of their load."""

LONGEST = 1200.0
"""Seconds within which executors have to be enough, on however slow a machine."""


class Step(NamedTuple):
    """A change of the number of executors, in seconds since the burst began, and its reason."""

    seconds: float
    executors: int
    message: str


def learn(counting: Counting) -> None:
    """Let the load rise and fall by a quarter, as loads do, until enough batches have run."""

    def ran() -> bool:
        batches = counting.query.log.count(" W=")
        counting.multiply(0.75 + 0.25 * math.sin(2 * math.pi * batches / WAVE))
        return batches >= LEARNED

    wait_until(ran, f"{LEARNED} batches have run")
    counting.multiply(1.0)


def burst(counting: Counting) -> Iterator[Step]:
    """Let the load grow, and yield each change of executors until they are enough: W is low, and no backlog is left."""
    query, began = counting.query, time.monotonic()
    before = query.plan["executors"]
    while (seconds := time.monotonic() - began) < LONGEST:
        counting.multiply(1 + (GROWTH - 1) * min(seconds / SECONDS, 1.0))
        status = query.status
        now = status["plan"]["executors"]
        if now != before:
            yield Step(seconds, now, (status.get("lastScaling") or {}).get("message", ""))
        before, load = now, status.get("load", {})
        calm = load.get("utilization", 1.0) < TARGET and load.get("lag", RATE) <= 2 * INTERVAL * GROWTH * RATE
        if seconds > SECONDS and calm and query.applied["executorsReady"] == now:
            print(f"enough executors after {seconds:.0f} s: {now}, W {load['utilization']:.2f}, lag {load['lag']}")
            return
        time.sleep(0.5)
    raise AssertionError(f"executors are not enough after {LONGEST:.0f} s: {query.status}")


def test_a_load_that_grows_to_3_4_times_gets_several_executors_at_once(
    counting: Counting,
) -> None:
    query = counting.query
    counting.multiply(0.0)  # so that no backlog is there to begin with
    counting.start(**paced_counts(INTERVAL))
    counting.wait_for_executors(FIRST)
    learn(counting)
    driver, first = query.driver_uid, query.plan["executors"]
    print(f"before: {first} executors, W {query.status['load']['utilization']}", flush=True)

    steps = []
    for step in burst(counting):
        print(f"{step.seconds:.0f} s: {step.executors} executors: {step.message}", flush=True)
        steps.append(step)
    numbers = [first, *(step.executors for step in steps)]
    assert numbers == sorted(set(numbers)), "none is taken back"
    assert max(after - before for before, after in pairwise(numbers)) > 1, "several at once"
    counting.multiply(0.0)
    counting.check()
    assert (query.driver_uid, query.runs) == (driver, 1)
    assert not query.status.get("attempts")
