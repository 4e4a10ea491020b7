"""Data-flow graphs, and what they refuse."""

import math

import pytest

from millrace_operator.capacity.flow import Flow, FlowError, FlowOperator, Sizing, StreamConnection

from .flows import BROADCAST, HASH, RANDOM, limited


def refused(*operators, **network):
    with pytest.raises(FlowError) as error:
        Flow(operators, **network)
    return [str(mistake) for mistake in error.value.mistakes]


def named(name, *inputs):
    return limited(name, None, inputs)


def test_example_9_levels_are_the_longest_way_from_a_source():
    edges = {"v1": (), "v2": (), "v3": ("v1",), "v4": ("v2", "v3"), "v5": ("v4",), "v6": ("v4",)}
    flow = Flow([named(name, *producers) for name, producers in reversed(edges.items())])
    assert [set(level) for level in flow.levels] == [{"v1", "v2"}, {"v3"}, {"v4"}, {"v5", "v6"}]
    assert set(flow.sources) == {"v1", "v2"}
    assert [name for name in edges if flow.is_sink(name)] == ["v5", "v6"]
    assert set(flow.consumers["v4"]) == {"v5", "v6"}


def test_a_broadcast_is_as_many_copies_as_tasks():
    assert [connection.copies(7) for connection in (RANDOM, HASH, BROADCAST)] == [1, 1, 7]
    assert StreamConnection("hash") is HASH


def test_a_cycle_of_operators_is_refused():
    (said,) = refused(named("s"), named("a", "s", "c"), named("b", "a"), named("c", "b"))
    assert "the inputs form a cycle" in said
    assert "remove one" in said
    (said,) = refused(named("s", "s"))
    assert "s -> s" in said


def test_names_that_are_missing_or_used_twice_are_refused():
    assert refused() == [": the flow has no operators; write at least one"]
    assert refused(named("a"), named("a")) == ["a: is the name of two operators; rename one"]
    assert refused(named("a"), named("b", "x"), named("c", "y")) == [
        'b.inputs.x: there is no operator "x"; write one of a, c',
        'c.inputs.y: there is no operator "y"; write one of a, b',
    ]
    assert refused(named("a", "x")) == [
        'a.inputs.x: there is no operator "x"; add that operator, or leave the input out'
    ]


def test_operators_of_two_flows_are_refused():
    assert refused(named("a"), named("b", "a"), named("lost")) == [
        "lost: is not connected to a; give it inputs, or plan it in a file of its own"
    ]


@pytest.mark.parametrize("field", ["fetch_seconds", "cpu_seconds", "emit_seconds", "selectivity", "record_bytes"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_numbers_that_are_no_costs_are_refused(field, value):
    (said,) = refused(FlowOperator("a", **{field: value}))
    assert said == f"a.{field}: {value} is not a cost, share or size; write 0 or more"


def test_a_bandwidth_needs_sizes_of_records():
    assert "0 bit/s is not a bandwidth" in refused(named("a"), bandwidth=0)[0]
    assert refused(named("a"), named("b", "a"), bandwidth=1.0) == [
        "a.record_bytes: is required if taskMegabitsPerSecond is set; "
        "write the mean size of an output record, or leave taskMegabitsPerSecond out"
    ]


def test_costs_of_queues_that_do_not_exist_are_refused():
    said = refused(FlowOperator("a", fetch_seconds=1.0), FlowOperator("b", {"a": RANDOM}, emit_seconds=1.0))
    assert said[0].startswith("a.fetch_seconds: a source has no queue to fetch from")
    assert said[1].startswith("b.emit_seconds: has no consumers")


@pytest.mark.parametrize("size", [(0, 1), (1, 0)])
def test_sizes_are_at_least_1(size):
    with pytest.raises(ValueError, match="at least 1"):
        Sizing(*size)
