import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.metrics import PlacementCost, cost_of_counts, placement_cost

from . import oracles
from .streams import ROUTED, keys, make, workers


def ids(*values):
    return np.array(values, np.int32)


@given(keys, workers, st.data())
def test_agrees_with_the_oracle_and_with_the_workers_own_counts(stream, n, data):
    size = len(stream)
    placed = ids(*data.draw(st.lists(st.integers(0, n - 1), min_size=size, max_size=size)))
    loads, cardinalities, distinct = oracles.placement(placed.tolist(), stream.tolist(), n)
    cost = placement_cost(placed, stream, n)
    assert cost.rows == sum(loads)
    assert cost.distinct_keys == distinct
    assert cost.aggregation_cost == sum(cardinalities)
    assert cost.load_imbalance == pytest.approx(max(loads) - sum(loads) / n)
    assert cost.cardinality_imbalance == pytest.approx(max(cardinalities) - sum(cardinalities) / n)
    assert cost == cost_of_counts(np.array(loads), np.array(cardinalities), distinct_keys=distinct)


@pytest.mark.parametrize("name", ROUTED)
@given(stream=keys, n=workers)
def test_aggregation_cost_is_within_its_bounds(name, stream, n):
    """Paper 000, Proposition 1."""
    cost = placement_cost(make(name, n).route(stream), stream, n)
    assert cost.distinct_keys <= cost.aggregation_cost <= n * cost.distinct_keys
    assert 1 <= cost.replication_factor <= n


def test_the_example_of_the_paper():
    """Paper 000, section 2.2: worker 1 holds x and y, worker 2 holds x, y and z."""
    counts = [(0, "x", 12), (0, "y", 123), (1, "x", 43), (1, "y", 1), (1, "z", 4)]
    placed = np.repeat(ids(*[worker for worker, _, _ in counts]), [rows for _, _, rows in counts])
    stream = np.repeat([key for _, key, _ in counts], [rows for _, _, rows in counts])
    assert placement_cost(placed, stream, 2) == PlacementCost(
        rows=183,
        distinct_keys=3,
        load_imbalance=135 - 91.5,
        load_imbalance_ratio=(135 - 91.5) / 91.5,
        cardinality_imbalance=0.5,
        cardinality_imbalance_ratio=0.2,
        aggregation_cost=5,
    )


def test_everything_on_one_of_four_workers():
    cost = placement_cost(ids(2, 2, 2, 2), np.arange(4), 4)
    assert (cost.load_imbalance, cost.load_imbalance_ratio) == (3.0, 3.0)
    assert (cost.cardinality_imbalance, cost.cardinality_imbalance_ratio) == (3.0, 3.0)
    assert cost.replication_factor == 1.0


def test_an_empty_window():
    cost = placement_cost(ids(), np.empty(0, np.uint64), 4)
    assert cost == PlacementCost(0, 0, 0.0, 0.0, 0.0, 0.0, 0)
    assert cost.replication_factor == 1.0


def test_without_the_number_of_distinct_keys_there_is_no_replication_factor():
    cost = cost_of_counts(np.array([3, 1]), np.array([2, 1]))
    assert cost.aggregation_cost == 3
    assert cost.distinct_keys is None
    assert cost.replication_factor is None


@pytest.mark.parametrize("distinct", [6, 2])
def test_counts_outside_the_bounds_are_refused(distinct):
    with pytest.raises(ValueError, match=f"5 keys on 2 workers cannot come from {distinct} distinct ones"):
        cost_of_counts(np.array([3, 3]), np.array([3, 2]), distinct_keys=distinct)


def test_bad_shapes_and_ids_are_refused():
    with pytest.raises(ValueError, match="both must be"):
        placement_cost(ids(0, 1), np.arange(3), 2)
    with pytest.raises(ValueError, match="worker ids go from 0 to 2, outside 0 to 1"):
        placement_cost(ids(0, 2), np.arange(2), 2)
    with pytest.raises(ValueError, match="worker ids go from -1 to 0"):
        placement_cost(ids(0, -1), np.arange(2), 2)
    with pytest.raises(ValueError, match="both must be"):
        cost_of_counts(np.array([1, 2]), np.array([1]))
    with pytest.raises(ValueError, match="both must be"):
        cost_of_counts(np.array([], int), np.array([], int))
