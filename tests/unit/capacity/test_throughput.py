"""Throughput with back pressure: paper 002, section 4.1.2, against a network of bounded queues."""

import pytest
from hypothesis import given, settings

from millrace_operator.capacity.bottleneck import loads
from millrace_operator.capacity.flow import Flow
from millrace_operator.capacity.throughput import back_pressure, throughput

from .flows import BROADCAST, HASH, flows, limited, linear_road, sizes
from .queueing import simulate


def one_pass(flow, configuration, rates):
    return back_pressure(flow, loads(flow, configuration, rates))


def test_example_10_a_consumer_divides_itself_among_producers():
    flow = Flow([limited("p1", None), limited("p2", None), limited("c", 20, ["p1", "p2"])])
    rates = {"p1": 10.0, "p2": 30.0}
    assert one_pass(flow, sizes(flow), rates) == pytest.approx({"p1": 5, "p2": 15, "c": 20})
    assert throughput(flow, sizes(flow), rates) == pytest.approx({"p1": 5, "p2": 15, "c": 20})


def test_example_11_the_slowest_consumer_limits_a_producer():
    flow = Flow([limited("p", None), limited("c1", 10, ["p"]), limited("c2", 20, ["p"])])
    assert one_pass(flow, sizes(flow), {"p": 30.0})["p"] == pytest.approx(10)
    assert throughput(flow, sizes(flow), {"p": 30.0}) == pytest.approx({"p": 10, "c1": 10, "c2": 10})


def test_example_3_throughput_is_a_capacity_of_the_flow():
    flow = Flow([limited("s1", 7), limited("s2", 4), limited("o", 5, ["s1", "s2"])])
    for workload in ((3, 2), (1, 4), (5, 0)):
        rates = dict(zip(("s1", "s2"), map(float, workload), strict=True))
        assert {name: throughput(flow, sizes(flow), rates)[name] for name in rates} == pytest.approx(rates)
    for workload in ((9, 2), (1, 7), (6, 0), (4, 3)):
        rates = dict(zip(("s1", "s2"), map(float, workload), strict=True))
        found = throughput(flow, sizes(flow), rates)
        assert found["s1"] < rates["s1"] or found["s2"] < rates["s2"]
        assert found["o"] == pytest.approx(min(5, min(7, workload[0]) + min(4, workload[1])))


def test_line_18_grants_a_producer_no_more_than_its_part_of_a_consumer():
    flow = Flow([limited("p1", None, selectivity=0.5), limited("p2", None), limited("c", 20, ["p1", "p2"])])
    found = one_pass(flow, sizes(flow), {"p1": 20.0, "p2": 30.0})
    assert found["p1"] == pytest.approx(10)  # half of 20 comes out, 10 of the 40 that arrive; printed: 20 / 0.5


def test_nothing_holds_back_an_operator_that_emits_nothing():
    flow = Flow([limited("s", None), limited("drop", 50, ["s"], selectivity=0), limited("slow", 1, ["drop"])])
    assert throughput(flow, sizes(flow), {"s": 40.0}) == pytest.approx({"s": 40, "drop": 40, "slow": 0})
    assert throughput(flow, sizes(flow), {"s": 80.0})["s"] == pytest.approx(50)


def test_a_share_that_another_bottleneck_frees_is_used():
    flow = Flow([limited("s1", None), limited("s2", None), limited("slow", 10, ["s1"]), limited("c", 50, ["s1", "s2"])])
    rates = {"s1": 100.0, "s2": 90.0}
    assert one_pass(flow, sizes(flow), rates)["s2"] == pytest.approx(90 / 190 * 50)
    assert throughput(flow, sizes(flow), rates)["s2"] == pytest.approx(40)


def test_a_source_whose_records_meet_again_is_not_counted_twice():
    flow = Flow([limited("s", None), limited("a", 50, ["s"]), limited("b", None, ["s"]), limited("c", 90, ["a", "b"])])
    assert one_pass(flow, sizes(flow), {"s": 100.0})["s"] == pytest.approx(30)
    assert throughput(flow, sizes(flow), {"s": 100.0}) == pytest.approx({"s": 45, "a": 45, "b": 45, "c": 90})


def test_an_operator_that_is_overloaded_itself_offers_what_it_can_do():
    flow = Flow([limited("s1", None), limited("s2", None), limited("a", 10, ["s1"]), limited("c", 50, ["a", "s2"])])
    found = throughput(flow, sizes(flow), {"s1": 100.0, "s2": 90.0})
    assert (found["s1"], found["s2"]) == (pytest.approx(5), pytest.approx(45))


def test_a_source_without_records_leaves_its_share_to_the_other():
    flow = Flow([limited("s1", None), limited("s2", 10), limited("c", 5, ["s1", "s2"])])
    assert throughput(flow, sizes(flow), {"s1": 0.0, "s2": 8.0}) == pytest.approx({"s1": 0, "s2": 5, "c": 5})


@settings(max_examples=150, deadline=None)
@given(flows(sources=3, connections=(HASH, BROADCAST)))
def test_no_operator_is_overloaded_and_no_source_could_send_more(flow):
    configuration, rates = sizes(flow, o0=(2, 3)), dict.fromkeys(flow.sources, 7.0)
    found = throughput(flow, configuration, rates)
    reached = {name: found[name] for name in flow.sources}
    assert all(rate <= rates[name] * (1 + 1e-9) for name, rate in reached.items())
    assert not any(load.overloaded for load in loads(flow, configuration, reached).values())
    for name in flow.sources:
        more = reached | {name: reached[name] * 1.001}
        assert reached[name] >= 7 * (1 - 1e-6) or any(x.overloaded for x in loads(flow, configuration, more).values())


@settings(max_examples=100, deadline=None)
@given(flows(sources=3))
def test_one_pass_promises_nothing_that_is_not_there(flow):
    configuration, rates = sizes(flow), dict.fromkeys(flow.sources, 7.0)
    first, found = one_pass(flow, configuration, rates), throughput(flow, configuration, rates)
    assert all(first[name] <= found[name] * (1 + 1e-9) for name in flow.sources)
    reached = {name: first[name] for name in flow.sources}
    assert not any(load.overloaded for load in loads(flow, configuration, reached).values())


@settings(max_examples=60, deadline=None)
@given(flows(sources=1))
def test_one_source_gets_the_largest_rate_without_a_bottleneck(flow):
    configuration, found = sizes(flow), throughput(flow, sizes(flow), {"o0": 7.0})["o0"]
    tried = [7.0 * step / 200 for step in range(1, 201)]
    fits = [rate for rate in tried if not any(x.overloaded for x in loads(flow, configuration, {"o0": rate}).values())]
    assert max(fits, default=0.0) <= found * (1 + 1e-9)
    assert found <= max(fits, default=0.0) + 7.0 / 200 + 1e-9


SHARING = {
    "Example 10": ([limited("s1", 5e3), limited("s2", 5e3), limited("c", 20, ["s1", "s2"])], {"s1": 10.0, "s2": 30.0}),
    "freed share": (
        [limited("s1", 5e3), limited("s2", 5e3), limited("slow", 10, ["s1"]), limited("c", 50, ["s1", "s2"])],
        {"s1": 100.0, "s2": 90.0},
    ),
    "records meet again": (
        [limited("s", 5e3), limited("a", 50, ["s"]), limited("b", 5e3, ["s"]), limited("c", 90, ["a", "b"])],
        {"s": 100.0},
    ),
    "overloaded producer": (
        [limited("s1", 5e3), limited("s2", 5e3), limited("a", 10, ["s1"]), limited("c", 50, ["a", "s2"])],
        {"s1": 100.0, "s2": 90.0},
    ),
    "three on one": (
        [limited("s1", 5e3), limited("s2", 5e3), limited("s3", 5e3), limited("c", 30, ["s1", "s2", "s3"])],
        {"s1": 10.0, "s2": 20.0, "s3": 30.0},
    ),
}


@pytest.mark.parametrize(("operators", "rates"), SHARING.values(), ids=SHARING)
def test_sources_share_as_in_bounded_queues(operators, rates):
    flow = Flow(operators)
    found, seen = throughput(flow, sizes(flow), rates), simulate(flow, sizes(flow), rates, seconds=600)
    assert found == pytest.approx(seen, rel=0.05)


def test_throughput_with_batches_and_tasks_is_that_of_bounded_queues():
    flow = linear_road(None)
    configuration = sizes(flow, spout=(1, 4), parse=(2, 10), agg=(1, 1))
    seen = simulate(flow, configuration, {"spout": 500_000.0}, seconds=0.2)
    found = throughput(flow, configuration, {"spout": 500_000.0})
    assert found["spout"] < 490_000
    assert [found[name] for name in ("spout", "parse", "agg")] == pytest.approx(
        [seen[name] for name in ("spout", "parse", "agg")], rel=0.02
    )


@settings(max_examples=25, deadline=None)
@given(flows(sources=1, connections=(HASH, BROADCAST), bandwidths=(None,)))
def test_throughput_of_one_source_is_that_of_bounded_queues(flow):
    configuration = sizes(flow, o1=(2, 2))
    found = throughput(flow, configuration, {"o0": 7.0})["o0"]
    seen = simulate(flow, configuration, {"o0": 7.0}, seconds=1500 / found)["o0"]
    assert seen == pytest.approx(found, rel=0.05)
