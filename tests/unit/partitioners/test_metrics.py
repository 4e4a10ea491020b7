import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.placement_cost import (
    PartitioningImbalance,
    PlacementCost,
    cost_of_counts,
    hybrid_imbalance,
    imbalance,
)
from placements import placement_cost

from . import oracles
from .streams import ROUTED, keys, make, workers


def ids(*values):
    return np.array(values, np.int32)


def hybrid(loads, cardinalities, p=0.5):
    """Paper 000, Eq. 7 to 10, as they stand."""

    def scaled(counts):
        least, most = min(counts), max(counts)
        return [(count - least) / (most - least) if most > least else 0 for count in counts]

    h = [p * load + (1 - p) * keys for load, keys in zip(scaled(loads), scaled(cardinalities), strict=True)]
    return max(h) - sum(h) / len(h)


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
    assert cost.hybrid_imbalance == pytest.approx(hybrid(loads, cardinalities))
    assert cost.pays == (sum(cardinalities) <= max(loads))
    assert cost == cost_of_counts(np.array(loads), np.array(cardinalities), distinct_keys=distinct)


@pytest.mark.parametrize("name", ROUTED)
@given(stream=keys, n=workers)
def test_aggregation_cost_is_within_its_bounds(name, stream, n):
    """Paper 000, Proposition 1."""
    cost = placement_cost(make(name, n).route(stream), stream, n)
    least, most = cost.aggregation_cost_bounds
    assert (least, most) == (cost.distinct_keys, n * cost.distinct_keys)
    assert least <= cost.aggregation_cost <= most
    assert 1 <= cost.replication_factor <= n


def test_the_example_of_the_paper_has_its_costs():
    """Paper 000, section 2.2: worker 1 holds x and y, worker 2 holds x, y and z."""
    counts = [(0, "x", 12), (0, "y", 123), (1, "x", 43), (1, "y", 1), (1, "z", 4)]
    placed = np.repeat(ids(*[worker for worker, _, _ in counts]), [rows for _, _, rows in counts])
    stream = np.repeat([key for _, key, _ in counts], [rows for _, _, rows in counts])
    cost = placement_cost(placed, stream, 2)
    assert cost == PlacementCost(
        workers=2,
        rows=183,
        distinct_keys=3,
        largest_load=135,
        load_imbalance=135 - 91.5,
        load_imbalance_ratio=(135 - 91.5) / 91.5,
        cardinality_imbalance=0.5,
        cardinality_imbalance_ratio=0.2,
        hybrid_imbalance=0.0,  # one worker has the records, the other one the keys
        aggregation_cost=5,
    )
    assert cost.pays
    assert cost.aggregation_cost_bounds == (3, 6)


def test_everything_on_one_of_four_workers_is_an_imbalance_of_three():
    cost = placement_cost(ids(2, 2, 2, 2), np.arange(4), 4)
    assert (cost.load_imbalance, cost.load_imbalance_ratio) == (3.0, 3.0)
    assert (cost.cardinality_imbalance, cost.cardinality_imbalance_ratio) == (3.0, 3.0)
    assert cost.replication_factor == 1.0


def test_an_empty_window_has_no_cost():
    cost = placement_cost(ids(), np.empty(0, np.uint64), 4)
    assert cost == PlacementCost(4, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    assert cost.replication_factor == 1.0


def test_without_the_number_of_distinct_keys_there_is_no_replication_factor():
    cost = cost_of_counts(np.array([3, 1]), np.array([2, 1]))
    assert cost.aggregation_cost == 3
    assert cost.distinct_keys is None
    assert cost.replication_factor is None
    assert cost.aggregation_cost_bounds is None
    assert cost.partitioning_imbalance is None


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


def test_a_micro_batch_has_the_imbalances_worked_out_by_hand():
    """Paper 004, Eq. 2 to 6: blocks of 5, 3 and 1 records; key 0 has two fragments, key 1 three, key 2 one."""
    blocks = [[0, 0, 0, 1, 1], [0, 1, 2], [1]]
    placed = np.repeat(ids(0, 1, 2), [5, 3, 1])
    figures = placement_cost(placed, np.concatenate(blocks), 3).partitioning_imbalance
    assert figures == PartitioningImbalance(bsi=5 - 3, bci=3 - 2, ksr=6 / 3)
    assert figures.mpi == pytest.approx((2 + 1 + 2) / 3)


def test_sizes_of_reduce_buckets_have_the_imbalance_of_equation_3():
    """Paper 004, Eq. 3."""
    assert imbalance(np.array([10, 4, 4])) == (4.0, pytest.approx(4 / 6))


def test_relative_figures_are_fractions_of_the_techniques_without_guarantee():
    """Paper 004, Figure 10: BSI relative to hashing, BCI to shuffle."""
    hashing, shuffle = PartitioningImbalance(40.0, 1.0, 1.0), PartitioningImbalance(0.0, 10.0, 4.0)
    relative = PartitioningImbalance(10.0, 2.0, 2.0).relative_to(hashing, shuffle)
    assert relative == PartitioningImbalance(0.25, 0.2, 0.5)
    assert relative.mpi == pytest.approx(0.95 / 3)
    assert math.isnan(hashing.relative_to(shuffle, shuffle).bsi)


@pytest.mark.parametrize(("p", "expected"), [(1.0, 0.5), (0.0, 2 / 3), (0.5, 1 / 12)])
def test_the_hybrid_imbalance_weighs_records_and_keys(p, expected):
    """Paper 000, Eq. 9: with p = 1 only records count, with p = 0 only keys."""
    rows, keys = np.array([30, 20, 10]), np.array([1, 1, 7])
    assert hybrid_imbalance(rows, keys, p) == pytest.approx(expected)
    assert hybrid_imbalance(rows, keys, p) == pytest.approx(hybrid(rows.tolist(), keys.tolist(), p))


def test_the_hybrid_imbalance_of_equal_workers_is_nothing():
    assert hybrid_imbalance(np.array([3, 3]), np.array([2, 2])) == 0.0
