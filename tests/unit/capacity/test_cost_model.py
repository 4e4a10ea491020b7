"""The cost model by its equations and examples: paper 002, chapter 3."""

import math

import pytest

from millrace_operator.capacity.cost_model import (
    Capacity,
    Inflow,
    capacity,
    exceeds,
    fan_out,
    inflow,
    network_capacity,
    processing_seconds,
    work,
)
from millrace_operator.capacity.flow import Flow, FlowOperator

from .flows import BROADCAST, HASH, RANDOM, limited, sizes


def test_example_4_emitting_is_shared_by_the_records_of_a_batch():
    cost = processing_seconds(
        FlowOperator("v", fetch_seconds=7.0, cpu_seconds=2.0, emit_seconds=8.0, selectivity=0.5), 10, 20
    )
    assert 10 * cost == pytest.approx(7.0 + 10 * 2.0 + 0.25 * 8.0)


def test_single_records_cost_equation_3_6_and_large_batches_the_processing_alone():
    operator = FlowOperator("v", fetch_seconds=7.0, cpu_seconds=2.0, emit_seconds=8.0, selectivity=0.5)
    assert processing_seconds(operator, 1, 1) == 7.0 + 2.0 + 0.5 * 8.0
    assert processing_seconds(operator, 1e12, 1e12) == pytest.approx(2.0)


def two_producers(first, second, connection=RANDOM, bandwidth=None):
    operators = [limited("p1", None, record_bytes=first), limited("p2", None, record_bytes=second)]
    return Flow([*operators, FlowOperator("c", {"p1": RANDOM, "p2": connection}, cpu_seconds=0.1)], bandwidth)


def test_example_5_the_effective_input_batch_weighs_producers_by_their_rates():
    flow = two_producers(1.0, 1.0)
    arriving = inflow(flow, sizes(flow, p1=(1, 5), p2=(1, 10)), flow.operators["c"], {"p1": 1.0, "p2": 1.0}, {})
    assert arriving.batch_records == pytest.approx(20 / 3)


def test_example_6_the_effective_record_size_weighs_producers_by_their_rates():
    flow = two_producers(5.0, 20.0)
    arriving = inflow(flow, sizes(flow), flow.operators["c"], {"p1": 6.0, "p2": 1.0}, {})
    assert arriving.bytes == 50
    assert arriving.record_bytes == pytest.approx(50 / 7)


def test_example_7_the_output_network_limits_input_records():
    operators = [limited("s", None, record_bytes=100), limited("filter", None, ["s"], 0.5, 100)]
    flow = Flow([*operators, *(limited(f"c{i}", None, ["filter"]) for i in range(4))], bandwidth=1000 * 800.0)
    arriving = Inflow(1000.0, 1000.0, 100_000.0)
    assert capacity(flow, sizes(flow), flow.operators["filter"], arriving) == Capacity(1000, math.inf, 500)
    assert capacity(flow, sizes(flow, filter=(3, 1)), flow.operators["filter"], arriving) == Capacity(
        3000, math.inf, 1500
    )


def test_sources_have_no_input_and_sinks_no_output_network():
    flow = Flow([limited("s", 10, record_bytes=100), limited("t", 20, ["s"], record_bytes=100)], bandwidth=4000.0)
    assert capacity(flow, sizes(flow), flow.operators["s"], Inflow(1.0)) == Capacity(math.inf, 10, 5)
    assert capacity(flow, sizes(flow), flow.operators["t"], Inflow(1.0, 1.0, 100.0)) == Capacity(5, 20, math.inf)


def test_an_operator_without_arrivals_has_no_limit_by_network():
    flow = two_producers(5.0, 20.0, bandwidth=1000.0)
    arriving = inflow(flow, sizes(flow, p1=(1, 9)), flow.operators["c"], {"p1": 0.0, "p2": 0.0}, {})
    assert (arriving.batch_records, arriving.record_bytes) == (1, 0)
    assert capacity(flow, sizes(flow), flow.operators["c"], arriving) == Capacity(math.inf, 10, math.inf)


def test_a_broadcast_arrives_at_every_task():
    flow = two_producers(5.0, 20.0, BROADCAST)
    configuration = sizes(flow, p1=(1, 2), p2=(1, 10), c=(4, 1))
    arriving = inflow(flow, configuration, flow.operators["c"], {"p1": 8.0, "p2": 10.0}, {})
    assert arriving == Inflow(8 + 40, 4 + 4, 40 + 800)
    assert fan_out(flow, configuration, "p2") == 4
    assert fan_out(flow, configuration, "p1") == 1


def test_work_is_rate_over_capacity_and_adds_up():
    flow = Flow(
        [
            limited("s", None, record_bytes=50),
            FlowOperator("v", {"s": HASH}, 0.3, 0.1, 0.4, 0.5, 20),
            limited("t", None, ["v"]),
        ],
        bandwidth=5000.0,
    )
    configuration = sizes(flow, s=(1, 3), v=(2, 4))
    arriving = inflow(flow, configuration, flow.operators["v"], {"s": 6.0}, {})
    of, able = (
        work(flow, configuration, flow.operators["v"], arriving),
        capacity(flow, configuration, flow.operators["v"], arriving),
    )
    for tasks, limit in ((of.processing, able.processing), (of.input, able.input), (of.output, able.output)):
        assert tasks / 2 == pytest.approx(6.0 / limit)


def test_a_network_without_bandwidth_has_no_limit():
    assert network_capacity(None, 100) == math.inf
    assert network_capacity(1e9, 125) == 1e6


def test_a_rate_may_be_over_by_rounding():
    assert not exceeds(1.0, 1 / (0.09 + 0.9 + 0.01))
    assert not exceeds(1 + 1e-12, 1.0)
    assert exceeds(1 + 1e-8, 1.0)
