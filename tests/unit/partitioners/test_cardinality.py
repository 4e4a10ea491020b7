"""What CM, AM, cAM and LM decide, against paper 000's Algorithms 1 to 5."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_jobs.partitioners.state import PartitionerState, pack, unpack

from .oracles import candidates
from .oracles_cardinality import HyperLogLog, Partition
from .streams import blocks, keys, make, seeds, workers, zipf

NAMES = ["cm", "am", "cam", "lm"]
PAPER = [  # Table 2
    *[(name, {"choices": 2}) for name in NAMES],
    *[(name, {"choices": 5}) for name in ("am", "cam")],
    *[(name, {"choices": 2, "cardinality": "hll"}) for name in ("cm", "am", "lm")],
]
OTHERS = [
    ("cm", {"choices": 1}),
    ("cm", {"choices": 7, "cardinality": "hll"}),
    ("am", {"choices": 5, "cardinality": "hll"}),
    ("cam", {"choices": 2, "cardinality": "hll"}),
    ("lm", {"choices": 4, "weight": 0.1}),
]
variants = pytest.mark.parametrize(("name", "parameters"), PAPER + OTHERS)


def agree(partitioner, oracle, block):
    """Both place ``block`` alike, and then know the same."""
    assert partitioner.route(block).tolist() == oracle.route(block.tolist())
    assert partitioner.loads.tolist() == oracle.leads()
    assert partitioner.cardinalities.tolist() == oracle.cardinalities()


@variants
@given(keys, workers, seeds, st.integers(1, 3), st.lists(st.integers(0, 200), max_size=5))
@settings(max_examples=25)
def test_agrees_with_the_oracle_step_by_step(name, parameters, stream, n, seed, slides, cuts):
    partitioner, oracle = make(name, n, seed=seed, slides=slides, **parameters), Partition(name, n, seed, **parameters)
    for ended, block in enumerate(blocks(stream, cuts), 1):
        agree(partitioner, oracle, block)
        partitioner.advance()
        if ended % slides == 0:
            oracle.reset()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [63, 64, 65, 130])
def test_agrees_with_the_oracle_where_a_set_of_workers_fills_its_words(name, n):
    stream = zipf(rows=2000, distinct=300, exponent=0.5)
    agree(make(name, n, choices=5), Partition(name, n, choices=5), stream)


@pytest.mark.data
@variants
def test_agrees_with_the_oracle_on_the_papers_data(data, name, parameters):
    """DEBS Query 1 groups by route, GCM Query 2 by job."""
    folder = "cppstream_debs_google_tpch"
    for file, columns in (("debs_frequent_route_compact_ride_10000", slice(3, 7)), ("task_event_2_10000", 2)):
        with data(f"{folder}/{file}.csv").open(newline="") as lines:
            values = [str(row[columns]) for row in csv.reader(lines)][:1000]
        stream = np.unique(values, return_inverse=True)[1].astype(np.uint64)
        agree(make(name, 16, **parameters), Partition(name, 16, **parameters), stream)


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_oracle_beyond_linear_counting(name):
    """Sketches of 40,000 keys each: their estimates depend on all registers, and so does "contains"."""
    filled = make("cm", 3, cardinality="hll")
    filled.route(np.arange(90_000, dtype=np.uint64))
    vectors = unpack(filled.save(), "cm", 1).vectors
    partitioner, oracle = make(name, 3, cardinality="hll"), Partition(name, 3, cardinality="hll")
    partitioner.restore(pack(PartitionerState(name, 1, 3, {"slide": 0}, vectors)))
    oracle.loads = vectors["loads"].tolist()
    oracle.sets = [HyperLogLog(registers) for registers in vectors["registers"].view(np.uint8).reshape(3, 4096)]
    assert min(oracle.cardinalities()) > 2.5 * 4096
    agree(partitioner, oracle, zipf(rows=1000, distinct=200_000, exponent=0.2))


def state(name, loads, holders):
    """A window with ``loads``, and keys 0, 1, ... on the workers whose bits are ``holders``; n = 3."""
    vectors = {"loads": loads, "shared": [0, 0, 0], "keys": range(len(holders)), "holders": holders}
    return pack(
        PartitionerState(name, 1, 3, {"slide": 0}, {name: np.array(v, np.int64) for name, v in vectors.items()})
    )


# Worker 0 has two keys and 1 record, worker 1 has none and 5, worker 2 has one and 11; key 9 may go to any of them.
# H (p = 0.5) is 0.5 (0 + 1) = 0.5, 0.5 (0.4 + 0) = 0.2, and 0.5 (1 + 0.5) = 0.75.
@pytest.mark.parametrize(("name", "chosen"), [("cm", 1), ("am", 1), ("cam", 0), ("lm", 1)])
def test_a_new_key_goes_to_the_worker_worked_out_by_hand(name, chosen):
    partitioner = make(name, 3, choices=3)
    partitioner.restore(state(name, [1, 5, 11], [0b001, 0b101]))
    assert partitioner.cardinalities.tolist() == [2, 0, 1]
    assert partitioner.route(np.array([9], np.uint64)).tolist() == [chosen]
    assert partitioner.cardinalities.tolist() == [2 + (chosen == 0), chosen == 1, 1]


# Key 0 is on worker 0 only, whose 9 records and 3 keys are the most. H is 1, 0.5 (0.125 + 0) and 0.
@pytest.mark.parametrize(("name", "chosen"), [("cm", {1, 2}), ("am", {0}), ("cam", {0}), ("lm", {2})])
def test_a_known_key_goes_to_the_worker_worked_out_by_hand(name, chosen):
    partitioner = make(name, 3, choices=3)
    partitioner.restore(state(name, [9, 2, 1], [0b001, 0b001, 0b001]))
    assert set(partitioner.route(np.array([0], np.uint64)).tolist()) <= chosen


@given(keys, workers, seeds)
def test_lm_of_keys_alone_is_cm_and_of_records_alone_is_pk(stream, n, seed):
    """Paper 000, section 6.1.1: LM is expected to perform as PK if p is 1."""
    for other, weight in (("cm", 0.0), ("pkg", 1.0)):
        expected = make(other, n, seed=seed).route(stream).tolist()
        assert make("lm", n, seed=seed, weight=weight).route(stream).tolist() == expected


@pytest.mark.parametrize("name", ["am", "cam"])
@given(st.lists(keys, max_size=6), workers, st.integers(1, 5), st.integers(1, 3))
def test_affinity_gives_a_key_one_worker_per_window(name, batches, n, choices, slides):
    partitioner, window = make(name, n, choices=choices, slides=slides), {}
    for ended, block in enumerate(batches, 1):
        for key, worker in zip(block.tolist(), partitioner.route(block).tolist(), strict=True):
            assert window.setdefault(key, worker) == worker
        partitioner.advance()
        if ended % slides == 0:
            window = {}


@pytest.mark.parametrize("cardinality", ["exact", "hll"])
@pytest.mark.parametrize("name", NAMES)
@given(keys, workers, seeds, st.integers(1, 6))
@settings(max_examples=20)
def test_records_go_to_candidates(name, cardinality, stream, n, seed, d):
    ids = make(name, n, seed=seed, choices=d, cardinality=cardinality).route(stream)
    for key, worker in zip(stream.tolist(), ids.tolist(), strict=True):
        assert worker in candidates(key, n, seed, d)


def test_keys_in_alternation_stay_on_a_worker_each():
    """Paper 000, section 7: x in even positions and y in odd ones make 2 partial results, also without affinity."""
    x, y = next(
        pair
        for pair in ((0, key) for key in range(1, 50))
        if candidates(pair[0], 2, 1, 2) != candidates(pair[1], 2, 1, 2)
    )
    stream = np.array([x, y] * 50, np.uint64)
    for name in NAMES:
        ids = make(name, 2).route(stream)
        assert ids.tolist() == [ids[0], 1 - ids[0]] * 50


@pytest.mark.parametrize("n", [3, 100])
def test_counts_are_exact_while_the_table_grows(n):
    stream = np.append(np.random.default_rng(0).integers(0, 2**64 - 1, 30_000, np.uint64), np.uint64(0))
    stream = np.concatenate([stream, stream[::-1]])
    partitioner = make("cm", n)
    ids = np.concatenate([partitioner.route(block) for block in blocks(stream, [7, 11_111])])
    expected = [len(np.unique(stream[ids == worker])) for worker in range(n)]
    assert partitioner.cardinalities.tolist() == expected
    assert ids[30_000] in candidates(0, n, 1, 2)


def test_loads_at_the_limit_still_decide():
    partitioner = make("lm", 3, choices=3, weight=0.9)
    partitioner.restore(state("lm", [2**56, 0, 2**56], []))
    assert partitioner.route(np.zeros(5, np.uint64)).tolist() == [1] * 5
    assert partitioner.loads.tolist() == [2**56 - 5, 0, 2**56 - 5]
