"""The resource minimizer: paper 002, Algorithm 3, against every configuration there is."""

from itertools import product

import pytest
from hypothesis import assume, given, settings

from millrace_operator.capacity.bottleneck import loads
from millrace_operator.capacity.flow import Flow, FlowOperator, Sizing
from millrace_operator.capacity.minimizer import UnattainableError, minimize

from .flows import BROADCAST, HASH, RANDOM, flows, limited

RATE = 3.0
MOST = 8
LARGE = 100_000


def overloaded(flow, configuration, rates):
    return [name for name, load in loads(flow, configuration, rates).items() if load.overloaded]


def configurations(flow, tasks, batches):
    """All with so many tasks in all."""
    names = list(flow.operators)
    for dop in product(range(1, tasks), repeat=len(names)):
        if sum(dop) == tasks:
            for chosen in product(batches, repeat=len(names)):
                yield {name: Sizing(*each) for name, *each in zip(names, dop, chosen, strict=True)}


@pytest.mark.parametrize(("batching", "batches"), [(True, (1, LARGE)), (False, (1,))])
@settings(max_examples=60, deadline=None)
@given(flow=flows(largest=4, bandwidths=(None, 500.0, 2000.0)))
def test_no_configuration_without_a_bottleneck_has_fewer_tasks(batching, batches, flow):
    rates = dict.fromkeys(flow.sources, RATE)
    found = minimize(flow, rates, batching=batching)
    total = sum(sizing.tasks for sizing in found.values())
    assume(total <= MOST)
    assert overloaded(flow, found, rates) == []
    for tasks in range(len(found), total):
        assert all(overloaded(flow, each, rates) for each in configurations(flow, tasks, batches))


@settings(max_examples=60, deadline=None)
@given(flow=flows(largest=4, connections=(HASH, BROADCAST), bandwidths=(None, 2000.0)))
def test_no_configuration_with_broadcasts_and_without_a_bottleneck_has_fewer_tasks(flow):
    rates = dict.fromkeys(flow.sources, RATE)
    try:
        found = minimize(flow, rates)
    except UnattainableError:
        every = (each for tasks in range(2, MOST) for each in configurations(flow, tasks, (LARGE,)))
        assert all(overloaded(flow, each, rates) for each in every)
        return
    total = sum(sizing.tasks for sizing in found.values())
    assume(total <= MOST)
    assert overloaded(flow, found, rates) == []
    for tasks in range(len(found), total):
        assert all(overloaded(flow, each, rates) for each in configurations(flow, tasks, (LARGE,)))


@settings(max_examples=200, deadline=None)
@given(flow=flows(largest=8, sources=4))
def test_what_is_found_has_no_bottleneck_on_larger_flows_either(flow):
    rates = {name: 10.0 / 3 * (index + 1) for index, name in enumerate(flow.sources)}
    assert overloaded(flow, minimize(flow, rates), rates) == []
    assert overloaded(flow, minimize(flow, rates, batching=False), rates) == []


def chain(fetch=0.9, cpu=0.9, emit=0.9, rate=None):
    return Flow([limited("s", rate), FlowOperator("v", {"s": RANDOM}, fetch, cpu, emit), limited("t", None, ["v"])])


def test_example_12_a_task_cannot_be_filled_by_processing_alone():
    flow = chain(0.1, 1.0, 0.1)
    assert minimize(flow, {"s": 10.0})["v"].tasks == 11


def test_a_task_without_queues_is_filled_by_processing_alone():
    assert minimize(chain(0.0, 1.0, 0.0), {"s": 10.0})["v"].tasks == 10


def test_example_13_one_task_is_enough_with_batches_that_fit():
    found = minimize(chain(), {"s": 1.0})
    assert (found["s"].batch, found["v"]) == (10, Sizing(1, 90))
    assert overloaded(chain(), found, {"s": 1.0}) == []


def test_where_the_input_batch_would_fit_to_the_brim_it_is_one_larger():
    # 3500 + 7400 / 74 ns fill 3600 ns, and leave no time to emit
    flow = chain(7400e-9, 3500e-9, 2600e-9)
    found = minimize(flow, {"s": 1e9 / 3600})
    assert found["s"].batch == 75
    assert found["v"].batch == pytest.approx(2600 / (100 - 7400 / 75), rel=1e-3)


def test_a_consumer_raises_the_smallest_batches_of_its_producers_until_it_has_enough():
    producers = {
        "large": FlowOperator("large", cpu_seconds=0.5, emit_seconds=49.9),  # needs batches of 100 itself
        "small": FlowOperator("small", cpu_seconds=0.5, emit_seconds=1.9),  # of 4
        "silent": limited("silent", None, selectivity=0),
        "single": limited("single", None),
    }
    # 1.1 s for a fetch, and 0.25 s left of a record's third of a second: input batches of 5
    flow = Flow([*producers.values(), FlowOperator("c", dict.fromkeys(producers, HASH), 1.1, 1 / 12)])
    found = minimize(flow, dict.fromkeys(producers, 1.0))
    assert {name: found[name].batch for name in producers} == {"large": 100, "small": 4, "silent": 1, "single": 5}
    assert found["c"].tasks == 1


def test_operators_without_arrivals_get_one_task():
    flow = Flow([limited("s", 1, selectivity=0), FlowOperator("v", {"s": RANDOM}, 1, 1, 1), limited("t", 1, ["v"])])
    assert minimize(flow, {"s": 5.0}) == {"s": Sizing(5), "v": Sizing(), "t": Sizing()}
    assert minimize(flow, {"s": 0.0}, batching=False) == dict.fromkeys("svt", Sizing())


def test_broadcasts_burden_the_producer_and_every_task():
    def flow(rate):
        return Flow(
            [
                FlowOperator("rules", record_bytes=100),
                limited("events", None, record_bytes=1),
                FlowOperator("match", {"rules": BROADCAST, "events": HASH}, cpu_seconds=1 / rate),
            ],
            bandwidth=8 * 1000.0,
        )

    rates = {"rules": 5.0, "events": 45.0}
    # each task of 10 records/s gets the 5 of the rules and 5 events: 9 tasks, to which 5 rules/s are 4500 bytes/s
    assert {name: sizing.tasks for name, sizing in minimize(flow(10), rates).items()} == {
        "rules": 5,
        "events": 1,
        "match": 9,
    }
    with pytest.raises(UnattainableError, match="match cannot keep up"):
        minimize(flow(4.9), rates)
