"""Table 4.3 of paper 002: the Linear Road flow at 500000 records/s, with and without batching."""

import pytest

from millrace_operator.capacity.bottleneck import loads
from millrace_operator.capacity.minimizer import minimize

from .flows import EMIT, FETCH, NS, linear_road

RATE = {"spout": 500_000.0}


def tasks(sizes):
    return [sizing.tasks for sizing in sizes.values()]


def test_with_batching_the_table_comes_out():
    flow = linear_road()
    sizes = minimize(flow, RATE)
    assert tasks(sizes) == [1, 2, 2, 1, 1, 1]
    assert [sizing.batch for name, sizing in sizes.items() if not flow.is_sink(name)] == [15, 387, 1, 1]
    assert not any(load.overloaded for load in loads(flow, sizes, RATE).values())


def test_without_batching_the_table_comes_out_from_parse_on_and_the_spout_needs_2():
    sizes = minimize(linear_road(), RATE, batching=False)
    assert tasks(sizes) == [2, 7, 5, 1, 1, 1]


@pytest.mark.parametrize(
    ("spout", "needed"),
    [
        ({"emit_seconds": FETCH}, 5),  # c_fetch in the place of c_emit
        ({"emit_seconds": 7500 * NS}, 5),  # c_emit of the spout of section 4.3.1
        ({"emit_seconds": FETCH + EMIT}, 6),
        ({"emit_seconds": 7000 * NS}, 4),
        ({"emit_seconds": 7001 * NS}, 5),
        ({"emit_seconds": 9000 * NS}, 5),
        ({"emit_seconds": 9001 * NS}, 6),
    ],
)
def test_the_printed_5_tasks_of_the_spout_take_7000_to_9000_ns_for_its_queue(spout, needed):
    assert tasks(minimize(linear_road(**spout), RATE, batching=False)) == [needed, 7, 5, 1, 1, 1]


@pytest.mark.parametrize("megabits", [50, 83, 100, 107, 142, 214, 428, 500, 1000])
def test_no_bandwidth_gives_both_rows(megabits):
    flow = linear_road(megabits * 1e6)
    rows = tasks(minimize(flow, RATE)), tasks(minimize(flow, RATE, batching=False))
    assert rows != ([1, 2, 2, 1, 1, 1], [5, 7, 5, 1, 1, 1])


def test_100_megabits_a_task_give_the_row_without_batching_but_not_the_other():
    flow = linear_road(100e6)
    assert tasks(minimize(flow, RATE, batching=False)) == [5, 7, 5, 1, 1, 1]
    assert tasks(minimize(flow, RATE)) == [5, 5, 2, 1, 1, 1]
