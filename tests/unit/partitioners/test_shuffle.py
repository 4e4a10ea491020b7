"""Shuffle deals records out in turn, from another worker in each replica."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from . import oracles
from .streams import blocks, keys, make, workers


@given(keys, workers, st.integers(1, 9), st.data())
def test_agrees_with_the_oracle(stream, n, replicas, data):
    replica = data.draw(st.integers(0, replicas - 1))
    ids = make("shuffle", n, replica, replicas).route(stream)
    assert ids.tolist() == oracles.shuffle(len(stream), n, replica, replicas)


@given(keys, workers, st.integers(0, 200), workers)
def test_loads_differ_by_at_most_one_also_after_a_resize(stream, n, cut, resized):
    partitioner = make("shuffle", n)
    for size, block in zip((n, resized), blocks(stream, [cut]), strict=True):
        partitioner.resize(size)
        loads = np.bincount(partitioner.route(block), minlength=size)
        assert loads.max() - loads.min() <= 1


@given(workers, st.integers(1, 9))
def test_replicas_begin_evenly_apart(n, replicas):
    """One record from each of at most n replicas never meets another one."""
    loads = np.zeros(n, int)
    for replica in range(replicas):
        loads += np.bincount(make("shuffle", n, replica, replicas).route(np.zeros(1, np.uint64)), minlength=n)
    assert loads.max() <= -(-replicas // n)


@given(workers, st.integers(2, 9), st.integers(0, 100))
def test_replicas_that_restore_one_state_stay_apart(n, replicas, rows):
    state = make("shuffle", n)
    state.route(np.zeros(rows, np.uint64))
    firsts = []
    for replica in range(replicas):
        partitioner = make("shuffle", n, replica, replicas)
        partitioner.restore(state.save())
        firsts.append(int(partitioner.route(np.zeros(1, np.uint64))[0]))
    assert firsts == [(replica * n // replicas + rows) % n for replica in range(replicas)]
