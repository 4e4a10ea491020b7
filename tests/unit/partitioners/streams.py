"""Streams of keys, divisions of them into blocks, and partitioners, for tests to draw."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from millrace_jobs.partitioners import registry

ROUTED = [name for name in registry.ALGORITHMS if registry.is_routed(name)]

workers = st.integers(1, 40)
seeds = st.integers(0, 2**64 - 1)
# Few distinct keys, so that they repeat, or any hashes at all.
keys = st.one_of(st.lists(st.integers(0, 12), max_size=200), st.lists(st.integers(0, 2**64 - 1), max_size=200)).map(
    lambda values: np.array(values, np.uint64)
)


def make(name, workers=8, replica=0, replicas=1, seed=1, **parameters):
    return registry.make(name, workers=workers, replica=replica, replicas=replicas, seed=seed, parameters=parameters)


def blocks(stream, cuts):
    """Return ``stream`` cut at the positions ``cuts``. Repeated cuts and cuts beyond its end give empty blocks."""
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


def zipf(rows, distinct, exponent, seed=0):
    """Return keys ``0, 1, ...`` with probability proportional to ``1 / (key + 1) ** exponent``."""
    weights = 1.0 / np.arange(1, distinct + 1) ** exponent
    generator = np.random.default_rng(seed)
    return generator.choice(distinct, rows, p=weights / weights.sum()).astype(np.uint64)
