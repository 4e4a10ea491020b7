"""The records of a case: whose key comes when, and a topic that is filled with them."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.growth.cases import GrowthCase
from bench.kafka.topics import create, messages, produce_all

_BLOCK = 100_000
_WINDOW = 10
_COMPRESSED = {"compression.type": "lz4"}
_SCATTER = 982_451_653
"""A prime above all numbers of keys: multiples of it, modulo a number of keys, are all keys in a random order."""


def keys_of(case: GrowthCase, low: int, high: int) -> NDArray[np.int64]:
    """Return the keys of the records ``low`` to ``high``, as numbers. A key depends on nothing but its record."""
    numbers = np.arange(low, high, dtype=np.int64)
    if case.fresh == 1:
        return numbers * _SCATTER % case.keys
    every = round(1 / case.fresh)
    newest = np.minimum(numbers // every, case.keys - 1)
    drawn = (np.random.default_rng([7, low]).random(high - low) * (newest + 1)).astype(np.int64)
    is_new = (numbers % every == 0) & (numbers // every < case.keys)
    return np.where(is_new, newest, drawn)


@dataclass(frozen=True)
class FullTopic:
    """A topic with the records of a case; all times are in the window that begins at ``began``, seconds since 1970."""

    servers: str
    name: str
    case: GrowthCase
    began: float
    counts: NDArray[np.int64]
    """Number of records of each key."""

    def produce(self, keys: NDArray[np.int64]) -> None:
        """Produce one more record of each of these keys."""
        produce_all(self.servers, self.name, [_texts(self.began, keys, 0, self.case.width)], _COMPRESSED)
        self.counts[:] += np.bincount(keys, minlength=self.case.keys)


def fill_topic(servers: str, name: str, case: GrowthCase) -> FullTopic:
    """Create a topic and fill it with the records of a case."""
    began = time.time() // _WINDOW * _WINDOW
    counts = np.zeros(case.keys, np.int64)

    def block(low: int) -> list[str]:
        keys = keys_of(case, low, min(low + _BLOCK, case.records))
        counts[:] += np.bincount(keys, minlength=case.keys)
        return _texts(began, keys, low, case.width)

    create(servers, name)
    produce_all(servers, name, map(block, range(0, case.records, _BLOCK)), _COMPRESSED)
    return FullTopic(servers, name, case, began, counts)


def _texts(began: float, keys: NDArray[np.int64], first: int, width: int) -> list[str]:
    """Return records as JSON whose times are in the window that begins at ``began``."""
    microseconds = np.arange(first, first + len(keys), dtype=np.int64) % (_WINDOW * 1_000_000)
    return messages(began + microseconds * 1e-6, keys, first, width)
