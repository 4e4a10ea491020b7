"""A running query as a flow, against the model of batch time that it is made from."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.capacity.bottleneck import BottleneckKind, loads
from millrace_operator.capacity.live_flow import SOURCE, LiveFlow
from millrace_operator.capacity.minimizer import minimize
from millrace_operator.capacity.throughput import time_shares
from millrace_operator.scaling.batch_time.batch_model import BatchLoad, BatchModel
from millrace_operator.scaling.batch_time.partials import ObservedPartials, Partials
from millrace_operator.scaling.batch_time.record_sizes import RecordSizes
from millrace_operator.scaling.batch_time.skew import Skew
from millrace_operator.scaling.batch_time.stage_work import COMBINE, MERGE, ROUTE
from millrace_operator.scaling.shape import Network, Shape

#                 task  record block  group
COSTS = np.array([[0.02, 1e-6, 1e-3, 0.0], [0.03, 4e-6, 0.0, 2e-5], [0.05, 0.0, 0.0, 1e-5]])
MODEL = BatchModel(
    stages=(ROUTE, COMBINE, MERGE),
    costs=COSTS,
    fixed=0.3,
    schedule=0.01,
    contention=0.05,
    spread=np.zeros((15, 1)),
    scatter=0.05,
    executor_cores=2,
    state_partitions=4,
    partials=Partials(ObservedPartials(1e5, 4, 8000.0), filled=100.0, bend=1.0, by_tasks=0.0),
    sizes=RecordSizes(read=200, routed=50, partial=120, passing=0.8),
)
SHAPE = Shape(2, 4, 2)


def live(model=MODEL, rate=50_000.0, shape=SHAPE, interval=2.0, network=None):
    return LiveFlow("trips", model, shape, interval, rate, network)


def predicted(flow, rate):
    """W by the model itself."""
    load = BatchLoad(rate * flow.interval, flow.interval)
    return float(flow.model.predict([flow.shape], load).seconds[0]) / flow.interval


@st.composite
def models(draw):
    costs = np.array(
        [[draw(st.floats(0, 0.1)), draw(st.floats(1e-8, 1e-5)), draw(st.floats(0, 1e-3)), 0.0] for _ in range(3)]
    )
    costs[1:, 3] = draw(st.floats(1e-7, 1e-4))
    costs[2, 1:3] = 0.0
    costs[1, 2] = 0.0
    skew = Skew({draw(st.integers(2, 8)): draw(st.floats(0, 2))})
    stages = draw(st.sampled_from([(ROUTE, COMBINE, MERGE), (COMBINE, MERGE)]))
    return replace(
        MODEL,
        stages=stages,
        costs=costs[-len(stages) :],
        spread=np.zeros((3 + 4 * len(stages), 1)),
        fixed=draw(st.floats(0.01, 1.0)),
        contention=draw(st.floats(0, 0.3)),
        skew=skew,
        partials=draw(st.sampled_from([MODEL.partials, None])),
        sizes=draw(st.sampled_from([MODEL.sizes, None, RecordSizes(10, 0, 5, 0)])),
    )


shapes = st.builds(Shape, st.integers(1, 6), st.integers(1, 30), st.integers(1, 12))


@given(models(), shapes, st.floats(10, 1e6), st.floats(0.5, 30))
def test_the_time_of_all_stages_is_the_models_batch_time(model, shape, rate, interval):
    flow = live(model, rate, shape, interval)
    shares = time_shares(flow.flow, flow.configuration, {SOURCE: rate})
    assert sum(shares.values()) + 1 - flow.flow.turns.share == pytest.approx(predicted(flow, rate))
    assert flow.utilization == pytest.approx(predicted(flow, rate))


@settings(max_examples=40)
@given(models(), shapes, st.floats(100, 1e6), st.floats(0.5, 30))
def test_the_throughput_is_the_rate_at_which_a_batch_takes_its_interval(model, shape, rate, interval):
    flow = live(model, rate, shape, interval)
    carried = flow.throughput({SOURCE: rate})[SOURCE]
    if predicted(flow, rate) <= 1:
        assert carried == pytest.approx(rate)
    elif carried > 1:
        assert predicted(flow, carried) == pytest.approx(1, abs=0.02)
    else:
        assert predicted(flow, 1.0) >= 0.98


def test_the_costs_of_a_stage_are_those_of_equation_3_8():
    one_core = replace(MODEL, executor_cores=1, contention=0.0, skew=Skew())
    built = live(one_core, shape=Shape(1, 4, 2))
    combine, sizing = built.flow.operators["combine"], built.configuration
    # a combine task takes its share of a micro-batch at once: 100,000 records, of which 80,000 pass, on 4 tasks
    assert (sizing[SOURCE].batch, sizing["route"].batch, sizing["combine"].batch) == (50_000, 20_000, 2000)
    assert {name: size.tasks for name, size in sizing.items()} == {SOURCE: 2, "route": 2, "combine": 4, "merge": 4}
    assert combine.fetch_seconds == pytest.approx(0.03)
    assert combine.cpu_seconds == pytest.approx((100_000 * 4e-6 + 8000 * 2e-5) / 80_000)
    assert combine.selectivity == pytest.approx(0.1)
    assert combine.record_bytes == 120
    route = built.flow.operators["route"]
    assert (route.fetch_seconds, route.cpu_seconds) == (pytest.approx(0.02), pytest.approx(1e-6))
    assert route.emit_seconds == pytest.approx(2 * 1e-3)  # a block from each replica
    assert (route.selectivity, route.record_bytes) == (pytest.approx(0.8), 50)
    assert built.flow.operators[SOURCE].record_bytes == 200


def test_a_task_has_its_cores_part_of_an_executors_network():
    assert live(network=Network(100e6, 50e6)).flow.bandwidth == 8 * 50e6 / 2
    assert live(network=Network()).flow.bandwidth is None
    assert live(replace(MODEL, sizes=None), network=Network(1, 1)).flow.bandwidth is None
    narrow = live(network=Network(1e6, 1e6))
    found = loads(narrow.flow, narrow.configuration, {SOURCE: 50_000.0})
    assert BottleneckKind.OUTPUT_NETWORK in found[SOURCE].overloaded
    assert narrow.throughput({SOURCE: 50_000.0})[SOURCE] == pytest.approx(2 * 0.5e6 / 200, rel=1e-3)


@given(models(), st.floats(100, 1e6))
def test_no_fewer_executors_than_enough_carry_the_rate(model, rate):
    flow = live(model, rate)
    enough = flow.enough_executors()
    assert flow.facts()["executors_needed"] == (enough.executors if enough else None)
    if enough is not None:
        assert predicted(live(model, rate, enough), rate) <= 1 + 1e-9
        for count in range(1, enough.executors):
            fewer = Shape(count, max(2 * count, SHAPE.parallelism), max(2 * count, SHAPE.replicas))
            assert predicted(live(model, rate, fewer), rate) > 1


def test_the_fewest_tasks_of_a_query_have_no_bottleneck_of_their_own():
    flow = live(rate=400_000.0)
    found = minimize(flow.flow, {SOURCE: flow.rate})
    assert found["route"].tasks >= 400_000 * flow.flow.operators["route"].cpu_seconds
    for name, load in loads(flow.flow, found, {SOURCE: flow.rate}).items():
        assert set(load.overloaded) <= {BottleneckKind.CORES}, name
