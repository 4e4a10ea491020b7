"""Conversion of Dalton's memory to vectors of integers, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.base import whole_number
from millrace_jobs.partitioners.state import PartitionerState

from .bandit import INITIAL
from .memory import ReplicaMemory
from .statistics import Frequencies
from .table import CARRIED, DRAWS, EXPIRED, HOT, KEYS, SEEN, TOTAL, KeyTable
from .windows import SlidingCounts

Vectors = Mapping[str, NDArray[np.int64]]

_MOST = 1 << 48
"""The largest plausible count in a state: a year of 8 million records/s."""

_COUNTERS = ("load", "local_load", "unreported", "seen", "draws", "exact", "synchronised", "rehashed", "awaiting")


def state_of(memory: ReplicaMemory, name: str, version: int) -> PartitionerState:
    """Return everything in ``memory`` as a state."""
    numbers = memory.table.numbers
    values = (
        memory.load,
        memory.local_load,
        memory.unreported,
        numbers[SEEN],
        numbers[DRAWS],
        memory.frequencies.exact,
        memory.synchronised,
        memory.rehashed,
        memory.awaiting,
    )
    counters = {counter: int(value) for counter, value in zip(_COUNTERS, values, strict=True)}
    vectors = {
        "loads": memory.loads.history.reshape(-1),
        "split_by_others": memory.split_by_others.view(np.int64),
        **_table_vectors(memory.table),
        **memory.frequencies.vectors(),
    }
    return PartitionerState(name, version, memory.workers, counters, vectors)


def _table_vectors(table: KeyTable) -> Vectors:
    rows = slice(table.count)
    followed = table.followed
    slides = table.fragmentation.slides()
    return {
        "keys": table.keys.view(np.int64),
        "status": table.status.astype(np.int64),
        "frequencies": followed.frequency[rows],
        "last": followed.last[rows],
        "q": _integers(table.policy.q[rows][table.status >= EXPIRED]),
        "decay": _integers(table.buffer.decay[rows]),
        "gain": _integers(table.buffer.gain[rows]),
        "bits": np.concatenate(slides),
        "bits_of_slides": np.array([len(slide) for slide in slides], np.int64),
    }


def restored(saved: PartitionerState, like: ReplicaMemory) -> ReplicaMemory:
    """Return the memory that was ``saved``, under the parameters of ``like``. Raises ValueError if it is not usable."""
    memory = like.emptied(saved.workers)
    counters = {name: whole_number(f"the saved {name} of dalton", saved.counters.get(name), 0) for name in _COUNTERS}
    vectors = _Checked(saved.vectors)
    _require(max(counters.values()) <= _MOST and counters["local_load"] <= counters["load"], "counters")
    _restore_table(memory, vectors, awaiting=bool(counters["awaiting"]))
    memory.load, memory.local_load = counters["load"], counters["local_load"]
    memory.unreported, memory.synchronised = counters["unreported"], bool(counters["synchronised"])
    memory.rehashed = counters["rehashed"]
    memory.split_by_others = vectors["split_by_others"].view(np.uint64)
    _require(_ascending(memory.split_by_others), "keys split by others")
    memory.loads = SlidingCounts.of(vectors.counts("loads", memory.loads.history.size).reshape(-1, memory.workers))
    memory.frequencies = Frequencies.restored(memory.frequencies.kind, bool(counters["exact"]), vectors)
    numbers = memory.table.numbers
    numbers[SEEN], numbers[DRAWS] = counters["seen"], counters["draws"]
    numbers[KEYS] = len(vectors["counted_keys"])
    numbers[TOTAL] = memory.loads.totals.sum()
    return memory


class _Checked(dict[str, NDArray[np.int64]]):
    """Vectors by name; a missing vector is empty."""

    def __missing__(self, name: str) -> NDArray[np.int64]:
        return np.empty(0, np.int64)

    def counts(self, name: str, length: int) -> NDArray[np.int64]:
        """Return a vector of plausible counts. Raises ValueError if it is not one of that ``length``."""
        found = self[name]
        _require(len(found) == length and bool(((found >= 0) & (found <= _MOST)).all()), name)
        return found

    def reals(self, name: str, shape: tuple[int, int], least: float) -> NDArray[np.float64]:
        """Return an array with values between ``least`` and 1. Raises ValueError if it is not one of that ``shape``."""
        found = self[name].view(np.float64)
        _require(len(found) == shape[0] * shape[1] and bool(((found >= least) & (found <= 1.0)).all()), name)
        return found.reshape(shape)


def _restore_table(memory: ReplicaMemory, vectors: _Checked, *, awaiting: bool) -> None:
    table, workers = memory.table, memory.workers
    keys = vectors["keys"].view(np.uint64)
    count = len(keys)
    _require(len(np.unique(keys)) == count, "keys")
    table.append(keys, memory.homes(keys))
    status = vectors.counts("status", count)
    learned = np.flatnonzero(status >= EXPIRED)
    live = np.count_nonzero(status >= CARRIED)
    _require(bool((status <= HOT).all()) and (memory.everything or live <= workers), "status")
    table.status[:] = status
    table.count_live()
    table.followed.frequency[:count] = vectors.counts("frequencies", count)
    table.followed.last[:count] = vectors.counts("last", count)
    table.policy.q[learned] = vectors.reals("q", (len(learned), workers), INITIAL)
    table.search()
    if awaiting:
        memory.put_rewards_off()
        table.buffer.decay[:count] = vectors.reals("decay", (count, workers), 0.0)
        table.buffer.gain[:count] = vectors.reals("gain", (count, workers), INITIAL)
    table.fragmentation.replay(_slides(vectors, table.fragmentation.most_slides, count * workers))


def _slides(vectors: _Checked, most: int, places: int) -> list[NDArray[np.int64]]:
    lengths, bits = vectors["bits_of_slides"], vectors["bits"]
    _require(1 <= len(lengths) <= most and lengths.min() >= 0 and lengths.sum() == len(bits), "slides")
    slides = np.split(bits, np.cumsum(lengths)[:-1])
    _require(all(_ascending(slide) for slide in slides), "slides")
    _require(not len(bits) or (bits.min() >= 0 and bits.max() < places), "slides")
    return slides


def _integers(reals: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.ascontiguousarray(reals).reshape(-1).view(np.int64)


def _ascending(values: NDArray[np.int64] | NDArray[np.uint64]) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _require(usable: bool | np.bool_, what: str) -> None:
    if not usable:
        raise ValueError(f"the saved state of dalton has no usable {what}")
