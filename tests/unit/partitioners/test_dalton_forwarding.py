"""Key forwarding, section 4.2, against where the records really went."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.dalton.cooperative import reduce

from .streams import keys, make, workers, zipf

slides = st.lists(keys, min_size=1, max_size=4)


def places(ids, stream):
    """The set of workers of each key."""
    found = {}
    for worker, key in zip(ids.tolist(), stream.tolist(), strict=True):
        found.setdefault(key, set()).add(worker)
    return found


def all_keys(*streams):
    return np.unique(np.concatenate(streams))


@given(slides, workers, st.integers(1, 3), st.sampled_from([0.1, 1.0]))
def test_a_forwarded_key_is_on_one_worker_in_the_whole_window(streams, n, window, epsilon):
    partitioner = make("dalton", n, slides=window, fragmentation="window", epsilon=epsilon)
    placed = []
    for stream in streams:
        placed.append((partitioner.route(stream), stream))
        ids, seen = (np.concatenate(parts) for parts in zip(*placed[-window:], strict=True))
        forwarded = partitioner.forwardable(all_keys(seen))
        where = places(ids, seen)
        assert all(len(where[key]) == 1 for key in all_keys(seen)[forwarded].tolist())
        partitioner.advance()


def test_all_keys_of_a_uniform_stream_are_forwarded():
    partitioner = make("dalton", 8)
    for _ in range(2):
        partitioner.route(zipf(20_000, 2000, 0.0))
        assert partitioner.forwardable(np.arange(2000, dtype=np.uint64)).all()
        partitioner.advance()


def test_all_keys_but_the_hot_ones_of_a_skewed_stream_are_forwarded():
    partitioner = make("dalton", 8)
    for _ in range(2):
        partitioner.route(zipf(20_000, 2000, 1.5))
        partitioner.advance()
    hot = partitioner.hot
    partitioner.route(zipf(20_000, 2000, 1.5))
    forwarded = partitioner.forwardable(np.arange(2000, dtype=np.uint64))
    assert np.flatnonzero(~forwarded).tolist() == sorted(hot.tolist())


def test_a_key_that_was_split_is_forwarded_again_when_its_records_have_left_the_window():
    partitioner = make("dalton", 4, slides=3, fragmentation="window", epsilon=1.0)
    others = np.arange(100, 1100, dtype=np.uint64)
    key = np.array([9], np.uint64)
    partitioner.route(np.concatenate([np.full(900, 9, np.uint64), others]))
    forwarded = []
    for _ in range(4):
        forwarded.append(bool(partitioner.forwardable(key)[0]))
        partitioner.advance()
        partitioner.route(others)
    assert forwarded == [False, False, False, True]


@given(st.lists(st.tuples(keys, st.none() | workers), min_size=1, max_size=6), workers, st.integers(1, 3))
def test_no_key_is_forwarded_that_was_split_by_resizing(steps, n, window):
    partitioner = make("dalton", n, slides=window, fragmentation="window", epsilon=1.0)
    placed = []
    for stream, resized in steps:
        half = len(stream) // 2
        ids = [partitioner.route(stream[:half])]
        if resized is not None:
            partitioner.resize(resized)
        partitioner.restore(partitioner.save())
        placed.append((np.concatenate([*ids, partitioner.route(stream[half:])]), stream))
        ids, seen = (np.concatenate(parts) for parts in zip(*placed[-window:], strict=True))
        forwarded = partitioner.forwardable(all_keys(seen))
        where = places(ids, seen)
        assert all(len(where[key]) == 1 for key in all_keys(seen)[forwarded].tolist())
        partitioner.advance()


def test_after_resizing_nothing_is_forwarded_until_the_window_has_passed():
    partitioner = make("dalton", 8, slides=5, fragmentation="window")
    cold = np.arange(5000, dtype=np.uint64)
    placed = [np.stack([partitioner.route(cold)])]
    assert partitioner.forwardable(cold).all()
    partitioner.resize(9)
    placed[0] = np.stack([*placed[0], partitioner.route(cold)])
    forwarded, really = [], []
    for _ in range(6):
        where = np.concatenate(placed[-5:])
        forwarded.append(np.count_nonzero(partitioner.forwardable(cold)))
        really.append(np.count_nonzero((where == where[0]).all(axis=0)))
        partitioner.advance()
        placed.append(partitioner.route(cold)[None])
    assert forwarded == [0] * 5 + [5000]
    assert all(same < 1000 for same in really[:5])
    assert really[5] == 5000


def test_a_replica_does_not_forward_what_another_one_split_by_resizing():
    members = [make("dalton", 8, 0, 2, slides=2), make("dalton", 9, 1, 2, slides=2)]
    cold = np.arange(100, 1100, dtype=np.uint64)
    before = members[0].route(cold)
    members[0].resize(9)
    after = members[1].route(cold)
    assert (before != after).any()
    policy = reduce([member.begin_sync() for member in members])
    for member in members:
        member.end_sync(policy)
        assert not member.forwardable(cold).any()


@given(st.lists(keys, min_size=2, max_size=3), workers)
def test_after_a_synchronization_several_replicas_forward_what_none_has_split(streams, n):
    members = [make("dalton", n, replica, len(streams), epsilon=1.0) for replica in range(len(streams))]
    ids = np.concatenate([member.route(stream) for member, stream in zip(members, streams, strict=True)])
    where = places(ids, np.concatenate(streams))
    members[0].merge(members[1:])
    forwarded = members[0].forwardable(all_keys(*streams))
    assert all(len(where[key]) == 1 for key in all_keys(*streams)[forwarded].tolist())


def test_without_a_synchronization_after_the_last_record_several_replicas_forward_nothing():
    members = [make("dalton", 4, replica, 2) for replica in range(2)]
    cold, stream = np.arange(100, 120, dtype=np.uint64), zipf(500, 50, 1.0)
    members[0].route(stream)
    assert not members[0].forwardable(cold).any()
    members[0].merge(members[1:])
    assert members[0].forwardable(cold).all()
    restored = make("dalton", 4, 0, 2)
    restored.restore(members[0].save())
    assert restored.forwardable(cold).all()
    members[0].route(np.empty(0, np.uint64))
    assert members[0].forwardable(cold).all()
    members[0].route(stream[:1])
    assert not members[0].forwardable(cold).any()
    restored.advance()  # that was for the slide which ends here
    assert not restored.forwardable(cold).any()


def test_without_heavy_hitters_nothing_is_forwarded():
    partitioner = make("dalton", 4, keys="all")
    partitioner.route(np.arange(20, dtype=np.uint64))
    assert not partitioner.forwardable(np.arange(20, dtype=np.uint64)).any()


def test_keys_may_be_read_only_or_none():
    partitioner = make("dalton", 4)
    stream = np.arange(20, dtype=np.uint64)
    stream.flags.writeable = False
    assert partitioner.forwardable(stream).shape == (20,)
    assert partitioner.forwardable(stream[:0]).shape == (0,)
    with pytest.raises(TypeError, match="uint64 array with one dimension"):
        partitioner.forwardable(np.arange(3))
