"""The axes along which work grows, and the case of each size.

The query is that of ``bench.peers``. All event times are in one window of 10 s, so no state ever expires, and there is
one result for each key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FRESH = 0.1
"""Share of records with a new key, until there are as many keys as wanted."""

RECORDS = 2_000_000
"""Number of records, where keys need no more and width allows it."""

LARGEST_TOPIC = 2_000_000_000
"""Bytes of the largest topic for the sake of wide records."""

BATCH = 200_000
"""Number of records of a batch at most, except where the results of a batch are what grows."""

AGAIN = 10_000
"""Number of records after a restart."""


@dataclass(frozen=True)
class GrowthCase:
    """One size of one axis.

    Attributes:
        part, size: the axis and its value.
        records, keys: number of records and of distinct keys.
        fresh: share of records with a new key until all keys were there; 1 for keys that take turns, in random order.
        width: bytes of a record at least.
        partitions: number of state partitions.
        slots: number of tasks at once.
        batch: the most records of a batch, for contenders that have batches.
        interval: batch or commit interval in milliseconds.
        restarts: whether the contender is restarted with its state.
    """

    part: str
    size: int
    records: int
    keys: int
    fresh: float = FRESH
    width: int = 100
    partitions: int = 4
    slots: int = 2
    batch: int = BATCH
    interval: int = 1_000
    restarts: bool = False


@dataclass(frozen=True)
class Axis:
    """An axis: what grows along it, the sizes of a full run, and the case of a size."""

    title: str
    sizes: Sequence[int]
    case: Callable[[int, int, float], GrowthCase]
    """Return the case of a size, for a number of records and a share of records with new keys."""


def _case(part: str, size: int, records: int, keys: int, fresh: float, **more: Any) -> GrowthCase:
    """Return a case of at least ten batches, since costs are taken from one batch to another."""
    return GrowthCase(part, size, records, keys, fresh, batch=max(min(BATCH, records // 10), 1), **more)


def _keys(size: int, records: int, fresh: float) -> GrowthCase:
    return _case("keys", size, max(records, round(size / fresh)), size, fresh)


def _partitions(size: int, records: int, fresh: float) -> GrowthCase:
    return _case("partitions", size, records, _MANY, fresh, partitions=size)


def _width(size: int, records: int, fresh: float) -> GrowthCase:
    fit = LARGEST_TOPIC // max(size, _WIDEST)  # the same number for all, or the fixed cost of a batch would count, too
    return _case("width", size, min(records, fit), 10_000, fresh, width=size)


def _updates(size: int, records: int, fresh: float) -> GrowthCase:
    return GrowthCase("updates", size, max(records, size), size, 1.0, batch=1_000_000, interval=5_000)


def _executors(size: int, records: int, fresh: float) -> GrowthCase:
    return _case("executors", size, records, _MANY, fresh, partitions=size, slots=size)


def _state(size: int, records: int, fresh: float) -> GrowthCase:
    return _case("state", size, size, size, 1.0, restarts=True)


_MANY = 100_000
_WIDEST = 10_000

AXES: Mapping[str, Axis] = {
    "keys": Axis("distinct keys", (10_000, 100_000, 1_000_000, 10_000_000), _keys),
    "partitions": Axis("state partitions", (1, 4, 16, 64), _partitions),
    "width": Axis("bytes of a record", (100, 1_000, 10_000), _width),
    "updates": Axis("results of a batch", (1_000, 10_000, 100_000, 1_000_000), _updates),
    "executors": Axis("emulated executors", (1, 2, 4, 16), _executors),
    "state": Axis("keys in the state", (2_000_000, 10_000_000), _state),
}
