"""Bottlenecks, their kinds, and what relieves them: paper 002, Definition 43 and Algorithm 1."""

import pytest
from hypothesis import given, settings

from millrace_operator.capacity.bottleneck import BottleneckKind, Remedy, loads, remedy
from millrace_operator.capacity.flow import Flow, FlowOperator, Sizing

from .flows import BROADCAST, HASH, RANDOM, flows, limited, sizes


def found(flow, configuration, **rates):
    return {name: load.overloaded for name, load in loads(flow, configuration, rates).items() if load.overloaded}


def test_an_overloaded_operator_lets_through_its_capacity():
    flow = Flow(
        [limited("s", 50), limited("a", 20, ["s"], selectivity=2), limited("b", 45, ["a"]), limited("c", 39, ["a"])]
    )
    result = loads(flow, sizes(flow), {"s": 30.0})
    assert {name: load.arriving.records for name, load in result.items()} == {"s": 30, "a": 30, "b": 40, "c": 40}
    assert result["a"].utilization == pytest.approx(1.5)
    assert found(flow, sizes(flow), s=30.0) == {"a": (BottleneckKind.CPU,), "c": (BottleneckKind.CPU,)}
    assert found(flow, sizes(flow, a=(2, 1), c=(2, 1)), s=20.0) == {}


def test_a_rate_of_just_the_capacity_is_no_bottleneck():
    flow = Flow([limited("s", 50), limited("t", 50, ["s"])])
    assert found(flow, sizes(flow), s=50.0) == {}
    assert found(flow, sizes(flow), s=50.001) == {"s": (BottleneckKind.CPU,)}


@pytest.mark.parametrize(
    ("rate", "batches", "kinds"),
    [
        (1.0, (1, 1), (BottleneckKind.QUEUE,)),
        (1.0, (5, 10**9), (BottleneckKind.QUEUE,)),
        (1.0, (10, 90), ()),  # Example 13
        (1.0, (15, 25), ()),
        (1.0, (20, 20), ()),
        (1.2, (10**9, 10**9), (BottleneckKind.CPU,)),
    ],
)
def test_larger_batches_help_where_the_queues_take_the_time(rate, batches, kinds):
    flow = Flow([limited("s", None), FlowOperator("v", {"s": RANDOM}, 0.9, 0.9, 0.9), limited("t", None, ["v"])])
    configuration = sizes(flow, s=(1, batches[0]), v=(1, batches[1]))
    assert found(flow, configuration, s=rate).get("v", ()) == kinds


def test_a_full_network_is_a_bottleneck_of_either_side():
    flow = Flow([limited("s", None, record_bytes=10), limited("t", 5, ["s"])], bandwidth=800.0)
    assert found(flow, sizes(flow), s=12.0) == {"s": (BottleneckKind.OUTPUT_NETWORK,), "t": (BottleneckKind.CPU,)}
    assert found(flow, sizes(flow, s=(2, 1)), s=12.0) == {"t": (BottleneckKind.CPU, BottleneckKind.INPUT_NETWORK)}
    assert found(flow, sizes(flow, s=(2, 1), t=(3, 1)), s=12.0) == {}


def test_more_tasks_do_not_help_with_a_broadcast():
    flow = Flow([limited("s", None), FlowOperator("t", {"s": BROADCAST}, cpu_seconds=0.1)])
    for tasks in (1, 2, 50):
        configuration = sizes(flow, t=(tasks, 1))
        assert found(flow, configuration, s=11.0) == {"t": (BottleneckKind.CPU,)}
        assert remedy(flow, configuration, "t", loads(flow, configuration, {"s": 11.0})) == Remedy(None, None)
        assert found(flow, configuration, s=10.0) == {}


def test_more_tasks_or_larger_batches_relieve_a_queue():
    flow = Flow([limited("s", None), FlowOperator("v", {"s": RANDOM}, 0.9, 0.9, 0.9), limited("t", None, ["v"])])
    configuration = sizes(flow)
    assert remedy(flow, configuration, "v", loads(flow, configuration, {"s": 1.0})) == Remedy(3, (10, 90))
    configuration = sizes(flow, s=(1, 20))
    assert remedy(flow, configuration, "v", loads(flow, configuration, {"s": 1.0})) == Remedy(2, (20, 17))


def test_a_present_batch_is_not_rounded_up_to_another_record():
    flow = Flow([limited("s", None), FlowOperator("v", {"s": RANDOM}, 0.09, 0.09, 0.09), limited("t", None, ["v"])])
    configuration = sizes(flow, s=(1, 61))
    offered = loads(flow, configuration, {"s": 10.0})
    assert offered["v"].arriving.batch_records > 61
    assert remedy(flow, configuration, "v", offered) == Remedy(2, (61, 11))


@settings(max_examples=150, deadline=None)
@given(flows() | flows(connections=(HASH, BROADCAST), bandwidths=(None,)))
def test_a_remedy_is_just_enough(flow):
    configuration, rates = sizes(flow, o0=(2, 2)), dict.fromkeys(flow.sources, 5.0)
    offered = loads(flow, configuration, rates)
    for name in (name for name, load in offered.items() if load.overloaded):
        found = remedy(flow, configuration, name, offered)
        for tasks in (found.tasks,) if found.tasks else ():
            more = {**configuration, name: Sizing(tasks, configuration[name].batch)}
            assert not loads(flow, more, rates)[name].overloaded
            less = {**configuration, name: Sizing(tasks - 1, configuration[name].batch)}
            assert loads(flow, less, rates)[name].overloaded
        if not found.tasks:
            many = {**configuration, name: Sizing(10**6, configuration[name].batch)}
            assert loads(flow, many, rates)[name].overloaded
        if found.batches:
            larger = dict(configuration)
            for producer in flow.operators[name].inputs:
                larger[producer] = Sizing(larger[producer].tasks, found.batches[0])
            larger[name] = Sizing(larger[name].tasks, found.batches[1])
            assert BottleneckKind.QUEUE not in _at_rate(flow, larger, name, offered)


def _at_rate(flow, configuration, name, offered):
    """What the operator lacks when as much arrives as before; larger batches let its producers send more."""
    alone = Flow(
        [
            *(limited(producer, None, record_bytes=1) for producer in flow.operators[name].inputs),
            flow.operators[name],
            *(limited(consumer, None, [name]) for consumer in flow.consumers[name]),
        ]
    )
    return loads(alone, configuration, {p: offered[p].sent for p in flow.operators[name].inputs} or {name: 5.0})[
        name
    ].overloaded
