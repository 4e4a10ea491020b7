from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_jobs.dedicated.batching.pack_size import (
    FETCH_SECONDS,
    LEAST_RECORDS,
    MOST_RECORDS,
    NEGLIGIBLE,
    OVERHEAD,
    UTILIZATION,
    PackSize,
)

INTERVAL = 1.0

costs = st.tuples(st.floats(1e-7, 2e-6), st.floats(1e-6, 1e-3))


def run(size, rate, cost, emit, intervals=12, workers=8):
    """A replica whose time is exactly what the model says; packs are one worker's records, the last one not full."""
    used = []
    for _ in range(intervals):
        records = size.records
        packs = workers * math.ceil(rate / workers / records)
        used.append((records, packs))
        size.observe(rate, packs, rate * cost + packs * emit)
    return used


@settings(max_examples=25)
@given(costs, st.integers(200_000, 400_000))
def test_costs_are_found_and_packs_are_the_least_that_do(costs, rate):
    cost, emit = costs
    size = PackSize(INTERVAL)
    used = run(size, rate, cost, emit)
    if len({packs for _, packs in used}) > 1 and 10 < emit / cost < 1000:  # b_out is within its bounds, and matters
        assert size.record_seconds == pytest.approx(cost, rel=0.1)
        assert size.pack_seconds == pytest.approx(emit, rel=0.3)
    found, ratio = size.records, (size.pack_seconds + FETCH_SECONDS) / size.record_seconds
    assert LEAST_RECORDS // 4 <= found <= max(LEAST_RECORDS, min(MOST_RECORDS, math.ceil(ratio / NEGLIGIBLE)))

    def enough(records, slack):
        time = size.record_seconds + size.pack_seconds / records  # the consumer's time is not the replica's
        return records >= ratio / OVERHEAD and rate * time <= UTILIZATION * (1 + slack)

    if LEAST_RECORDS < found < min(MOST_RECORDS, math.floor(ratio / NEGLIGIBLE)):
        assert enough(found, 1e-8) or enough(4 * found + 3, 1e-8)  # a quarter of it, while intervals are alike
        assert not enough(found - 1, -1e-8)


def test_packs_grow_with_the_rate_and_shrink_with_it():
    """A record takes 1 µs, a pack 50 µs and 10 µs of the job: a tenth of overhead are 600 records, a hundredth 6000."""
    size = PackSize(INTERVAL)
    assert run(size, 50_000, 1e-6, 50e-6)[-1][0] in range(540, 670)
    run(size, 760_000, 1e-6, 50e-6, intervals=40)
    assert size.records in range(850, 1150)  # 0.8 s for 760,000 records: 0.053 µs are left for each to emit
    run(size, 900_000, 1e-6, 50e-6, intervals=40)
    assert size.records in range(4800, 8400)  # no pack is large enough: as large as still saves something
    run(size, 50_000, 1e-6, 50e-6, intervals=40)
    assert size.records in range(540, 670)


def test_equal_intervals_are_varied_until_they_tell_the_costs_apart():
    size = PackSize(INTERVAL)
    used = [records for records, _ in run(size, 200_000, 1e-6, 200e-6, intervals=6)]
    assert len(set(used[:2])) == 2
    assert size.pack_seconds == pytest.approx(200e-6, rel=0.1)


def test_slow_intervals_do_not_make_packs_tiny():
    """Every second interval takes ten times as long as it should, whatever its packs are."""
    size = PackSize(INTERVAL)
    for number in range(40):
        records = size.records
        assert records >= LEAST_RECORDS // 4
        packs = 8 * math.ceil(50_000 / 8 / records)
        size.observe(50_000, packs, (50_000 * 1e-6 + packs * 10e-6) * (10 if number % 2 else 1))


def test_intervals_without_records_teach_nothing():
    size = PackSize(INTERVAL)
    before = (size.record_seconds, size.pack_seconds)
    for _ in range(5):
        size.observe(0, 0, 0.2)
    assert (size.record_seconds, size.pack_seconds) == before
