"""What paper 000 says of its algorithms beside shuffle, hash and PK, on made streams."""

import numpy as np
import pytest

from placements import placement_cost

from .streams import make, zipf

N = 8


def cost(name, stream, **parameters):
    return placement_cost(make(name, N, **parameters).route(stream), stream, N)


@pytest.fixture(scope="module")
def skewed():
    """The first key has a tenth of the records, less than the share of one worker of eight."""
    return zipf(rows=50_000, distinct=20_000, exponent=1.0)


def test_affinity_costs_no_more_aggregation_than_hashing(skewed):
    distinct = len(np.unique(skewed))
    for name in ("hash", "am", "cam"):
        assert cost(name, skewed).aggregation_cost == distinct
    for name in ("am", "cam"):
        assert cost(name, skewed, choices=5).aggregation_cost == distinct
        assert distinct < cost(name, skewed, cardinality="hll").aggregation_cost < 1.1 * distinct


def test_without_affinity_two_choices_cost_up_to_twice_and_shuffle_the_most(skewed):
    shuffled = cost("shuffle", skewed).aggregation_cost
    for name in ("pkg", "cm", "lm"):
        assert 1.1 < cost(name, skewed).replication_factor <= 2
        assert cost(name, skewed).aggregation_cost < shuffled


@pytest.mark.parametrize("seed", range(3))
def test_cam_balances_records_far_better_than_hashing_at_the_same_aggregation_cost(skewed, seed):
    hashed = cost("hash", skewed, seed=seed).load_imbalance
    for choices in (2, 5):
        assert cost("cam", skewed, seed=seed, choices=choices).load_imbalance < 0.1 * hashed
    assert cost("cam", skewed, seed=seed, cardinality="hll").load_imbalance < 0.1 * hashed
    assert cost("shuffle", skewed).load_imbalance <= 1


def test_am_balances_records_better_than_hashing_where_groups_are_of_like_size():
    """As in TPC-H Query 3, whose orders have one to seven items. AM does not look at records."""
    orders = np.random.default_rng(0).integers(1, 8, 4000)
    stream = np.repeat(np.arange(4000, dtype=np.uint64), orders)
    hashed = cost("hash", stream).load_imbalance
    for choices in (2, 5):
        assert cost("am", stream, choices=choices).load_imbalance < 0.6 * hashed


@pytest.mark.parametrize("parameters", [{}, {"cardinality": "hll"}])
def test_cm_and_am_balance_distinct_keys(skewed, parameters):
    for name in ("cm", "am"):
        ratio = cost(name, skewed, **parameters).cardinality_imbalance_ratio
        assert ratio < (0.003 if not parameters else 0.05)
        assert ratio < 0.2 * cost("pkg", skewed).cardinality_imbalance_ratio


def test_lm_lies_between_pk_and_cm(skewed):
    """Fewer records on the fullest worker than CM, and fewer keys there than PK."""
    seeds = range(5)
    records = {
        name: np.mean([cost(name, skewed, seed=s).load_imbalance for s in seeds]) for name in ("pkg", "lm", "cm")
    }
    assert records["pkg"] < 0.1 * records["lm"] < 0.1 * records["cm"]
    assert cost("lm", skewed).cardinality_imbalance < 0.3 * cost("pkg", skewed).cardinality_imbalance


def test_optimistic_affinity_turns_into_hashing_in_large_windows():
    """What ``cardinality_hll`` says of keys that pass for known."""
    partitioner, first = make("am", N, cardinality="hll"), make("am", N, choices=1)
    stream = np.arange(4096 * 2 * (N - 1) ** 2, dtype=np.uint64)
    at_first = partitioner.route(stream) == first.route(stream)
    assert at_first[: 4096 * N].mean() < 0.7
    assert at_first[-4096 * N :].mean() > 0.85
    assert partitioner.cardinalities == pytest.approx([4096 * np.log(N)] * N, rel=0.06)
