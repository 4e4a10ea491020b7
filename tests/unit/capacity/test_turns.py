"""Operators that take turns on the same cores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.capacity.bottleneck import BottleneckKind, loads
from millrace_operator.capacity.flow import Flow, Turns
from millrace_operator.capacity.throughput import throughput, time_shares

from .flows import limited, sizes


def chain(*steps, turns=None):
    """A chain of operators, each a rate of one task and a selectivity."""
    names = [f"o{index}" for index in range(len(steps))]
    before = [None, *([name] for name in names)]
    return Flow([limited(n, rate, b, s) for n, (rate, s), b in zip(names, steps, before, strict=False)], turns=turns)


steps = st.lists(st.tuples(st.floats(1, 1000), st.floats(0.1, 2)), min_size=1, max_size=4)


@given(steps, st.integers(1, 8), st.floats(0.05, 1), st.lists(st.integers(1, 12), min_size=4, max_size=4))
def test_a_chain_carries_what_fits_into_the_time_of_all_its_operators(steps, cores, share, tasks):
    flow = chain(*steps, turns=Turns(cores, share))
    configuration = sizes(flow, **{name: (count, 1) for name, count in zip(flow.operators, tasks, strict=False)})
    seconds, passing = 0.0, 1.0
    for (rate, selectivity), count in zip(steps, tasks, strict=False):
        seconds += passing / rate / min(count, cores)
        passing *= selectivity
    carried = share / seconds
    assert throughput(flow, configuration, {"o0": 10 * carried})["o0"] == pytest.approx(carried)
    assert throughput(flow, configuration, {"o0": carried / 2})["o0"] == pytest.approx(carried / 2)
    assert sum(time_shares(flow, configuration, {"o0": carried}).values()) == pytest.approx(share)


def test_tasks_beyond_the_cores_carry_nothing():
    flow = chain((10, 1), turns=Turns(2, 1.0))
    assert throughput(flow, sizes(flow, o0=(8, 1)), {"o0": 100.0})["o0"] == pytest.approx(20)
    assert throughput(chain((10, 1)), sizes(flow, o0=(8, 1)), {"o0": 100.0})["o0"] == pytest.approx(80)


def test_nothing_gets_through_where_no_time_is_left():
    flow = chain((10, 1), (10, 1), turns=Turns(2, -0.1))
    assert throughput(flow, sizes(flow), {"o0": 1.0}) == {"o0": 0, "o1": 0}


def test_where_only_all_together_are_too_much_the_longest_lacks_cores():
    flow = chain((20, 1), (15, 1), (90, 1), turns=Turns(1, 0.9))
    assert not any(load.overloaded for load in loads(flow, sizes(flow), {"o0": 7.0}).values())
    offered = loads(flow, sizes(flow), {"o0": 8.0})  # 0.4, 0.53 and 0.09 of the time
    assert {name: load.overloaded for name, load in offered.items()} == {
        "o0": (),
        "o1": (BottleneckKind.CORES,),
        "o2": (),
    }
    alone = loads(flow, sizes(flow), {"o0": 18.0})
    assert alone["o1"].overloaded == (BottleneckKind.CPU,)
