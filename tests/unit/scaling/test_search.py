from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.scaling.batch_time.batch_model import BatchLoad, Prediction
from millrace_operator.scaling.decision.search import ALIKE, REPLICAS, Need, Search, candidates
from millrace_operator.scaling.shape import Bounds, Network, Range, Shape
from millrace_operator.scaling.zones import LoadDriver

BOUNDS = Bounds(Range(1, 8), Range(1, 48), Range(1, 32), executor_cores=2)
PRESENT = Shape(2, 4, 4)


class Model:
    """Batches take what ``seconds`` says of a plan and its load, give or take a tenth."""

    def __init__(self, seconds, busy=0.0, record_bytes=None):
        self._seconds, self._busy, self._record_bytes = seconds, busy, record_bytes

    def predict(self, plans, load):
        seconds = np.array([self._seconds(plan, load) for plan in plans])
        stages = np.stack([seconds * 0.7, seconds * 0.3], axis=1)
        return Prediction(*(seconds * each for each in (1, 0.9, 1.1, 0.9, 1.1, 0)), stages, ("combine", "merge"))

    def partitioner_load(self, replicas, rate):
        return self._busy * rate / replicas

    def traffic(self, plans, load):
        """Every record is received once, and sent on to another executor."""
        if self._record_bytes is None:
            return None
        executors = np.array([plan.executors for plan in plans])
        received = load.rows / load.interval * self._record_bytes / executors
        return received, received * (1 - 1 / executors)


def shared(plan, load):
    """Work that cores share, a little quicker with more tasks."""
    return 0.1 + load.rows * 1e-4 / (2 * plan.executors) * (1 + 0.1 / plan.parallelism)


def search(
    seconds=shared, rows=1e5, present=PRESENT, bounds=BOUNDS, executors=None, busy=0.0, record_bytes=None, **need
):
    asked = Need(BatchLoad(rows, 2.0), **{"mean": 0.9, "limit": 0.9, "caution": 0.0} | need)
    return Search(Model(seconds, busy, record_bytes), bounds, present, executors or Range(1, 16), asked)


def everything(found):
    return np.ones(len(found.shapes), bool)


@given(
    st.integers(1, 200), st.integers(1, 64), st.integers(1, 64), st.integers(1, 200), st.integers(1, 8), st.booleans()
)
def test_candidates_are_few_and_leave_no_core_idle_that_can_be_used(most, n, m, executors, cores, dedicated):
    bounds = Bounds(Range(1, most), Range(1, 64), Range(1, 64), cores, 0.5 if dedicated else 0.0)
    present = bounds.nearest(Shape(executors, n, m))
    found = candidates(bounds, present, Range(1, 2 * most))
    assert found[0] == present
    assert len(found) == len(set(found)) <= 1100
    for plan in found[1:]:
        assert plan.parallelism in bounds.parallelism
        assert plan.replicas in bounds.replicas
        assert plan.parallelism >= min(plan.executors * cores, 64)
        assert dedicated or plan.replicas >= min(plan.executors * cores, 64)
    assert {plan.executors for plan in found} >= {present.executors, 1, most}


@given(st.floats(1e3, 1e6), st.floats(0, 1), st.integers(1, 8))
def test_the_cheapest_has_the_fewest_cores_of_all_that_meet_the_need(rows, caution, executors):
    found = search(rows=rows, present=Shape(executors, 4, 4), caution=caution)
    best = found.cheapest(found.fits)
    good = [plan for plan in found.shapes if shared(plan, BatchLoad(rows, 2.0)) / 2 * (1 + 0.1 * caution) <= 0.9]
    if best is None:
        assert not good
    else:
        assert found.shapes[best] in good
        assert found.shapes[best].executors == min(plan.executors for plan in good)


def test_among_equals_little_is_changed():
    found = search(lambda plan, load: 1.5 / plan.executors)
    best = found.shapes[found.cheapest(found.fits)]
    assert best == Shape(1, 4, 4)


def test_among_equals_what_a_driver_asks_for_is_changed():
    # parallelism or replicas have to change
    need = lambda plan, load: 0.5 if (plan.parallelism, plan.replicas) != (4, 4) else 5.0  # noqa: E731
    found = search(need, executors=Range(2, 2))
    by_rate = found.shapes[found.cheapest(found.fits, frozenset({LoadDriver.RATE}))]
    by_keys = found.shapes[found.cheapest(found.fits, frozenset({LoadDriver.KEYS}))]
    assert (by_rate.parallelism, by_keys.replicas) == (4, 4)
    assert by_rate.replicas != 4
    assert by_keys.parallelism != 4


def test_a_lower_w_is_worth_a_change_only_if_it_is_clearly_lower():
    for gain, parallelism in ((ALIKE / 2, 4), (ALIKE * 2, 6)):
        found = search(lambda plan, load, gain=gain: 1 - gain * (plan.parallelism == 6), executors=Range(2, 3))
        three = found.fits & (found.executors == 3)
        assert found.shapes[found.cheapest(three)].parallelism == (parallelism if parallelism == 6 else 6)


def test_caution_counts_the_interval():
    assert search(caution=1.0).cautious == pytest.approx(search().cautious * 1.1)


def test_a_bias_makes_all_batches_longer():
    assert search().middle * 1.2 == pytest.approx(
        Search(Model(shared), BOUNDS, PRESENT, Range(1, 16), Need(BatchLoad(1e5, 2.0), 0.9, 0.9, 0.0), bias=1.2).middle
    )


def test_partitioners_in_pods_of_their_own_have_a_load_too_and_cost_cores():
    bounds = Bounds(Range(1, 8), Range(1, 48), Range(1, 16), 2, replica_cores=1.0)
    found = search(bounds=bounds, present=Shape(4, 8, 1), busy=1e-4)  # 50,000 records/s keep five busy
    best = found.shapes[found.cheapest(found.fits)]
    assert 5 / best.replicas <= 0.9
    assert best.executors == 3
    assert found.forecast(0).bottleneck == REPLICAS
    assert found.forecast(0).utilization == pytest.approx(found.middle[found.shapes.index(Shape(4, 8, 16))])
    assert found.forecast(found.shapes.index(Shape(4, 8, 16))).bottleneck == "combine"
    cheaper = [plan for plan in found.shapes if 5 / plan.replicas <= 0.9 and plan.executors >= 3]
    assert bounds.cores(best) == min(map(bounds.cores, cheaper))


def test_where_nothing_is_enough_cores_are_taken_that_help():
    found = search(lambda plan, load: 10 / plan.executors)
    assert found.shapes[found.nearest(everything(found))].executors == 16


def test_where_nothing_is_enough_cores_that_do_not_help_are_left():
    found = search(lambda plan, load: 10 - 0.02 * plan.executors)
    assert found.nearest(found.cores >= found.cores[0]) == 0


def test_in_proportion_is_what_is_enough_if_cores_have_their_usual_effect():
    found = search(lambda plan, load: 3.6)  # twice the target, whatever is done
    best = found.shapes[found.proportional(everything(found))]
    assert best.executors == 6  # 2 ** (1 / 0.7) times 2, rounded up
    assert found.shapes[found.proportional(found.executors <= 3)].executors == 3


def test_forecasts_tell_what_is_predicted():
    found = search(lambda plan, load: 1.0)
    one = found.forecast(0)
    assert (one.plan, one.utilization, one.bottleneck) == (PRESENT, 0.5, "combine")
    assert (one.low, one.high) == pytest.approx((0.45, 0.55))


@pytest.mark.parametrize("network", [Network(receives=4e6), Network(4e6, 3e6)])
def test_no_shape_whose_network_would_be_full_is_chosen(network):
    """50,000 records of 200 bytes a second: three executors would get 3.3 of 4 MB/s each, two 5."""
    quick = {"seconds": lambda plan, load: 0.1, "record_bytes": 200.0}
    bounds = replace(BOUNDS, network=network)
    free, limited = search(**quick), search(**quick, bounds=bounds)
    assert free.shapes[free.cheapest(free.fits)].executors == 1
    chosen = limited.cheapest(limited.fits)
    assert limited.shapes[chosen].executors == 3
    assert limited.forecast(chosen).bottleneck == "network"
    assert limited.forecast(chosen).utilization == limited.network[chosen] < 0.9
    assert (
        limited.why_unfit(0)
        == f"an executor's network would be busy for {limited.network[0]:.2f} of the time, above 0.90"
    )


@pytest.mark.parametrize(("network", "record_bytes"), [(None, 200.0), (Network(1.0, 1.0), None)])
def test_an_unknown_network_or_size_limits_nothing(network, record_bytes):
    found = search(bounds=replace(BOUNDS, network=network), record_bytes=record_bytes)
    assert not found.network.any()
    assert (found.middle == search().middle).all()
    assert found.forecast(0) == search().forecast(0)
    assert found.why_unfit(0).startswith("W ")
