import numpy as np
from hypothesis import given

from . import oracles
from .streams import keys, make, seeds, workers


@given(keys, workers, seeds)
def test_agrees_with_the_oracle(stream, n, seed):
    ids = make("hash", n, seed=seed).route(stream)
    assert ids.tolist() == oracles.hash_grouping(map(int, stream), n, seed)


@given(keys, workers)
def test_a_key_has_one_worker_on_every_replica_and_at_any_time(stream, n):
    one, two = make("hash", n, replica=0, replicas=2), make("hash", n, replica=1, replicas=2)
    expected = one.route(stream).tolist()
    assert two.route(stream).tolist() == expected
    assert one.route(stream).tolist() == expected


@given(keys, workers, workers)
def test_coming_back_to_a_size_brings_every_key_back(stream, n, other):
    partitioner = make("hash", n)
    before = partitioner.route(stream).tolist()
    partitioner.resize(other)
    partitioner.resize(n)
    assert partitioner.route(stream).tolist() == before


def test_seeds_give_different_placements():
    stream = np.arange(1000, dtype=np.uint64)
    same = make("hash", 10, seed=1).route(stream) == make("hash", 10, seed=2).route(stream)
    assert 60 < same.sum() < 140  # a tenth by chance
