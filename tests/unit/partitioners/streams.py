"""Streams of keys, divisions of them into blocks, and partitioners, for tests to draw."""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.own_code import OWN

sys.path.append(str(Path(__file__).parents[3] / "examples"))

ROUTED = [name for name in registry.ALGORITHMS if registry.is_routed(name)]
EVERY = [*ROUTED, OWN]
"""The algorithms of Millrace, and a class of a user."""

PARAMETERS = {OWN: {"class": "fewest_keys:FewestKeys"}}
"""Parameters without which an algorithm cannot be made."""

workers = st.integers(1, 40)
seeds = st.integers(0, 2**64 - 1)
# Few distinct keys, so that they repeat, or any hashes at all.
keys = st.one_of(st.lists(st.integers(0, 12), max_size=200), st.lists(st.integers(0, 2**64 - 1), max_size=200)).map(
    lambda values: np.array(values, np.uint64)
)


def make(name, workers=8, replica=0, replicas=1, seed=1, **parameters):
    given = PARAMETERS.get(name, {}) | parameters
    return registry.make(name, workers=workers, replica=replica, replicas=replicas, seed=seed, parameters=given)


def blocks(stream, cuts):
    """Return ``stream`` cut at the positions ``cuts``. Repeated cuts and cuts beyond its end give empty blocks."""
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


def zipf(rows, distinct, exponent, seed=0):
    """Return keys ``0, 1, ...`` with probability proportional to ``1 / (key + 1) ** exponent``."""
    weights = 1.0 / np.arange(1, distinct + 1) ** exponent
    generator = np.random.default_rng(seed)
    return generator.choice(distinct, rows, p=weights / weights.sum()).astype(np.uint64)
