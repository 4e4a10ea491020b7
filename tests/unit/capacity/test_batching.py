"""Output buffers, single, distinct and shared: paper 002, section 3.4."""

import math

import numpy as np
import pytest

from millrace_operator.capacity.batching import Buffering, added_seconds, buffers
from millrace_operator.capacity.flow import Flow, FlowOperator

from .flows import BROADCAST, HASH, RANDOM, limited, sizes

DISTINCT, SHARED = Buffering.DISTINCT, Buffering.SHARED


def producer(*connections):
    consumers = [FlowOperator(f"c{index}", {"p": connection}) for index, connection in enumerate(connections)]
    return Flow([limited("p", None, record_bytes=10), *consumers])


def of(flow, buffering, sent=60.0, **given):
    return buffers(flow, sizes(flow, **given), "p", sent, buffering)


def test_figures_3_8_and_3_10_have_5_distinct_and_6_shared_buffers():
    flow, given = producer(HASH, HASH), {"p": (1, 6), "c0": (2, 1), "c1": (3, 1)}
    distinct, shared = of(flow, DISTINCT, **given), of(flow, SHARED, **given)
    assert (distinct.count, distinct.records, distinct.bytes, distinct.fill_records) == (5, 30, 300, 2.5 * 6)
    assert (shared.count, shared.records, shared.bytes, shared.fill_records) == (6, 36, 360, 6 * 6)


@pytest.mark.parametrize("connections", [(RANDOM,), (BROADCAST,), (RANDOM, BROADCAST)])
@pytest.mark.parametrize("buffering", Buffering)
def test_consumers_without_keys_are_served_from_one_buffer(connections, buffering):
    found = of(producer(*connections), buffering, p=(1, 6), c0=(4, 1))
    assert (found.count, found.records, found.fill_records) == (1, 6, 6)


def test_shared_buffers_count_keyed_consumers_only():
    flow, given = producer(HASH, RANDOM, BROADCAST, HASH), {"p": (1, 6), "c0": (2, 1), "c1": (5, 1), "c3": (4, 1)}
    assert of(flow, DISTINCT, **given).count == 2 + 4 + 1
    assert of(flow, DISTINCT, **given).fill_records == 6 * (2 + 1 + 1 + 4) / 4
    assert of(flow, SHARED, **given).count == 2 * 4


def test_distinct_and_shared_buffers_are_the_same_for_one_consumer():
    flow, given = producer(HASH), {"p": (1, 6), "c0": (4, 1)}
    assert of(flow, DISTINCT, **given) == of(flow, SHARED, **given)


def test_single_records_wait_for_nobody_and_sinks_have_no_buffers():
    flow = producer(HASH)
    assert of(flow, DISTINCT, c0=(4, 1)).wait_seconds == 0
    assert of(flow, DISTINCT, sent=0.0, c0=(4, 1)).wait_seconds == 0
    assert of(flow, DISTINCT, sent=0.0, p=(1, 2)).wait_seconds == math.inf
    assert buffers(flow, sizes(flow), "c0", 5.0, SHARED).count == 0


def test_batches_of_10000_at_1000_records_a_second_fill_in_10_seconds():
    # section 4.3.1: a batch every 10 s, and 95 % of the records wait for less than 9.5 s
    found = of(producer(RANDOM), DISTINCT, sent=1000.0, p=(1, 10_000))
    assert found.fill_records / 1000 == 10
    assert found.wait_seconds == pytest.approx(5, rel=1e-3)


def test_tasks_share_the_rate():
    flow = producer(HASH)
    assert of(flow, DISTINCT, p=(3, 6)).wait_seconds == pytest.approx(3 * of(flow, DISTINCT, p=(1, 6)).wait_seconds)


@pytest.mark.parametrize("buffering", Buffering)
def test_waits_and_fills_are_those_of_records_put_into_buffers(buffering):
    tasks, batch, records = (2, 3), 6, 60_000
    rng = np.random.default_rng(1)
    keys = [rng.integers(n, size=records) for n in tasks]
    pools = keys if buffering is DISTINCT else [keys[0] * tasks[1] + keys[1]] * 2
    waits, fills = [], []
    for pool in pools:
        for buffer in np.unique(pool):
            at = np.flatnonzero(pool == buffer)
            at = at[: len(at) // batch * batch].reshape(-1, batch)
            waits.append((at[:, -1:] - at).mean(axis=1))
            fills.append(np.diff(at[:, -1]))
    found = of(producer(HASH, HASH), buffering, sent=1.0, p=(1, batch), c0=(tasks[0], 1), c1=(tasks[1], 1))
    assert found.wait_seconds == pytest.approx(np.concatenate(waits).mean(), rel=0.02)
    assert found.fill_records == pytest.approx(np.concatenate(fills).mean(), rel=0.02)


def test_waits_add_up_on_the_slowest_way():
    flow = Flow(
        [
            limited("s", None),
            FlowOperator("fast", {"s": HASH}),
            FlowOperator("slow", {"s": HASH}),
            FlowOperator("end", {"fast": HASH, "slow": HASH}),
        ]
    )
    configuration = sizes(flow, s=(1, 11), fast=(2, 1), slow=(3, 5))
    sent = {"s": 10.0, "fast": 10.0, "slow": 10.0, "end": 10.0}
    assert added_seconds(flow, configuration, sent, DISTINCT) == pytest.approx(3 * 10 / 2 / 10 + 4 / 2 / (10 / 3))
    assert added_seconds(flow, configuration, sent, SHARED) == pytest.approx(6 * 10 / 2 / 10 + 4 / 2 / (10 / 3))
    assert added_seconds(flow, configuration, sent | {"slow": 0.0}, DISTINCT) == pytest.approx(3 * 10 / 2 / 10)
