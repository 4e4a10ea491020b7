"""More keys at once than a new table of keys has room for."""

from collections import Counter

import numpy as np
import pytest

from millrace_jobs.partitioners.registry import initial_states

from .streams import make

by_workers = pytest.mark.parametrize("n", [128, 256])


def followed(n, seed=0):
    """A stream with more than 1.7 n followed keys, of which those under 5/8 n are heavy hitters."""
    heavy, others = np.split(np.arange(n * 9 // 5, dtype=np.uint64), [n * 5 // 8])
    return np.random.default_rng(seed).permutation(np.concatenate([np.repeat(heavy, 40), np.repeat(others, 10)]))


def taught(n, replica=0, replicas=1):
    partitioner = make("dalton", n, replica, replicas)
    partitioner.route(followed(n, seed=replica))
    return partitioner


@by_workers
def test_the_stream_has_its_hot_and_reported_keys(n):
    counts = Counter(followed(n).tolist())
    assert [key for key in counts if counts[key] * n >= counts.total()] == [key for key in counts if key < n * 5 // 8]
    assert all(counts[key] * 4 * n >= counts.total() for key in counts)
    assert len(taught(n).begin_sync().keys) >= 200


@by_workers
def test_all_keys_of_a_full_table_are_restored(n):
    running, restored = taught(n), make("dalton", 2)
    running.advance()
    restored.restore(running.save())
    assert restored.save() == running.save()
    assert restored.route(followed(n)).tolist() == running.route(followed(n)).tolist()
    assert restored.save() == running.save()


@by_workers
def test_a_replica_without_keys_learns_all_heavy_hitters_by_merging(n):
    fresh, other = make("dalton", n, 0, 2), taught(n, 1, 2)
    fresh.merge([other])
    assert sorted(fresh.hot.tolist()) == list(range(n * 5 // 8))
    assert np.allclose(fresh.values(fresh.hot), other.values(fresh.hot))


@by_workers
@pytest.mark.parametrize("resized", [64, 128, 256])
def test_all_heavy_hitters_are_handed_over(n, resized):
    members = [taught(n, replica, 3) for replica in range(3)]
    for member in members:
        member.advance()
    states = [member.save() for member in members]
    (begun,) = set(initial_states("dalton", states, workers=resized, replicas=4, seed=1, parameters={}))
    follower = make("dalton", resized, 3, 4)
    follower.restore(begun)
    assert len(follower.hot) == min(n * 5 // 8, resized)
    assert follower.hot.max() < n * 5 // 8
    assert follower.route(followed(n)).max() < resized
