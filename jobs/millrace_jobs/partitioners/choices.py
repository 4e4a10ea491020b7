"""Choices of a key: the workers it may go to, and which of them has the least load as far as a replica knows.

A key's candidates are paper 001's hashes H_1 to H_d, but drawn without replacement, so that d choices are d different
workers. They are the same on every replica. ``LocalLoads`` is the paper's "Local Load Estimation".

CM, AM, cAM and LM (paper 000, Algorithms 2-5) choose by the hybrid load of equation 9, ``p L' + (1 - p) CL'``. With
p = 0 it orders workers by cardinality, as CM and AM do. With p = 1 it orders them by records, as cAM (and PK) does.
These two cases need no normalization.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined, kernel
from millrace_jobs.kernels.mixing import seeded_hash, splitmix64

from .base import Hashes, Workers
from .state import PartitionerState, Vectors

Loads = NDArray[np.int64]
"""Shape ``(n,)``: L, the records sent to each worker, less a number that is the same for all."""

Cardinalities = NDArray[np.float64]
"""Shape ``(n,)``: CL (equation 5), the distinct keys sent to each worker in this window, or their estimates."""

Homes = NDArray[np.float64]
"""Shape ``(n,)``: how much each worker counts when replicas agree on a key's home among its candidates; ``(0,)`` where
replicas agree on nothing. It is drawn in these proportions."""

Extremes = NDArray[np.int64]
"""Shape ``(4,)``: the workers with the fewest records, the most records, the fewest keys and the most keys."""


@inlined
def draw(key: np.uint64, seeds: NDArray[np.uint64], choice: int, workers: int, drawn: NDArray[np.int64]) -> int:
    """Return candidate number ``choice`` of ``key`` among ``workers`` workers; call it for 0, 1, ... in turn.

    ``seeds``, shape ``(d,)`` with ``d <= workers``, are ``mixing.salts``. ``drawn`` has the same shape and holds the
    key's candidates so far in ascending order; the call for choice 0 resets it. Results are frozen, as in ``mixing``.
    """
    # The hash counts only workers that are not drawn yet, so skip the drawn ones below it.
    worker = np.int64(seeded_hash(key, seeds[choice]) % np.uint64(workers - choice))
    place = 0
    while place < choice and worker >= drawn[place]:
        worker += 1
        place += 1
    for later in range(choice, place, -1):
        drawn[later] = drawn[later - 1]
    drawn[place] = worker
    return int(worker)


@inlined
def least_loaded_candidate(
    key: np.uint64, seeds: NDArray[np.uint64], choices: int, loads: Loads, drawn: NDArray[np.int64]
) -> int:
    """Return the one of the first ``choices`` candidates of ``key`` with the least load; the first of several.

    ``seeds`` and ``drawn`` are as in ``draw``.
    """
    best = draw(key, seeds, 0, len(loads), drawn)
    for choice in range(1, choices):
        worker = draw(key, seeds, choice, len(loads), drawn)
        if loads[worker] < loads[best]:
            best = worker
    return best


@inlined
def least_loaded(loads: Loads, search: NDArray[np.int64]) -> int:
    """Return the first worker with the least load; ``loads`` has shape ``(n,)``.

    ``search`` starts as two zeros and stores where the last search ended. Between two calls with it, loads may only
    grow. The first worker with the least load then only moves forward until the least load itself has grown, which
    takes a record for each worker. So a search takes constant time on average. Results are frozen, as in ``mixing``.
    """
    worker: int = search[1]
    while worker < len(loads) and loads[worker] != search[0]:
        worker += 1
    if worker == len(loads):
        worker = 0
        for other in range(1, len(loads)):
            if loads[other] < loads[worker]:
                worker = other
    search[0], search[1] = loads[worker], worker
    return worker


@inlined
def least_hybrid_load(
    key: np.uint64,
    seeds: NDArray[np.uint64],
    drawn: NDArray[np.int64],
    weight: float,
    loads: Loads,
    cardinalities: Cardinalities,
    extremes: Extremes,
) -> int:
    """Return the candidate of ``key`` with the least hybrid load; the first of several. ``weight`` is p."""
    best, least = -1, 0.0
    for choice in range(len(seeds)):
        worker = draw(key, seeds, choice, len(loads), drawn)
        if weight == 0.0:
            load = cardinalities[worker]
        elif weight == 1.0:
            load = float(loads[worker])
        else:
            records = _normalized(loads[worker], loads[extremes[0]], loads[extremes[1]])
            keys = _normalized(cardinalities[worker], cardinalities[extremes[2]], cardinalities[extremes[3]])
            load = weight * records + (1.0 - weight) * keys
        if best < 0 or load < least:
            best, least = worker, load
    return best


@inlined
def home_or_least_hybrid_load(
    key: np.uint64,
    seeds: NDArray[np.uint64],
    drawn: NDArray[np.int64],
    weight: float,
    loads: Loads,
    cardinalities: Cardinalities,
    extremes: Extremes,
    homes: Homes,
    slack: float,
) -> int:
    """Return the home of ``key``, unless it is ahead of the candidate with the least load by more than ``slack``.

    Without homes this is ``least_hybrid_load``. ``weight`` is 0 or 1 with homes, and ``slack`` in keys or records.
    """
    least = least_hybrid_load(key, seeds, drawn, weight, loads, cardinalities, extremes)
    if not len(homes):
        return least
    home = _home(key, seeds, drawn, homes)
    ahead = cardinalities[home] - cardinalities[least] if weight == 0.0 else float(loads[home] - loads[least])
    return least if ahead > slack else home


@inlined
def _home(key: np.uint64, seeds: NDArray[np.uint64], drawn: NDArray[np.int64], homes: Homes) -> int:
    """Return the candidate that all replicas draw for ``key``; the first one if none of its candidates counts."""
    total = 0.0
    for choice in range(len(seeds)):
        total += homes[draw(key, seeds, choice, len(homes), drawn)]
    left = total * float(splitmix64(key) >> np.uint64(11)) * 2.0**-53
    home = -1
    for choice in range(len(seeds)):
        worker = draw(key, seeds, choice, len(homes), drawn)
        if home < 0 or left >= 0.0:
            home = worker
        left -= homes[worker]
    return home


@kernel
def place_by_load(keys: Hashes, amounts: NDArray[np.int64], seeds: NDArray[np.uint64], loads: Loads) -> Workers:
    """Place each key, in order, on its candidate with the least load; the first of several.

    ``amounts``, shape ``(keys,)``, is what each key adds to its worker in ``loads``.
    """
    ids = np.empty(len(keys), np.int32)
    drawn = np.empty(len(seeds), np.int64)
    for row in range(len(keys)):
        ids[row] = least_loaded_candidate(keys[row], seeds, len(seeds), loads, drawn)
        loads[ids[row]] += amounts[row]
    return ids


@inlined
def _normalized(value: float, least: float, most: float) -> float:
    """Return ``value`` scaled by equations 7 and 8; 0 if all workers have the same value, which they leave open."""
    return (value - least) / (most - least) if most > least else 0.0


@inlined
def extremes_of(loads: Loads, cardinalities: Cardinalities) -> Extremes:
    """Return the workers whose values the normalization needs."""
    extremes = np.zeros(4, np.int64)
    for worker in range(len(loads)):
        update_extremes(extremes, worker, loads, cardinalities)
    return extremes


@inlined
def update_extremes(extremes: Extremes, worker: int, loads: Loads, cardinalities: Cardinalities) -> None:
    """Update ``extremes`` after ``worker``'s values have grown.

    Values only grow, so a search is needed only when a remembered least value grew. A worker is a candidate of a
    fraction d/n of the keys, so this costs O(d) per record on average.
    """
    if worker == extremes[0]:
        extremes[0] = _lowest(loads)
    if loads[worker] > loads[extremes[1]]:
        extremes[1] = worker
    if worker == extremes[2]:
        extremes[2] = _lowest(cardinalities)
    if cardinalities[worker] > cardinalities[extremes[3]]:
        extremes[3] = worker


@inlined
def _lowest(values: Loads | Cardinalities) -> int:
    lowest = 0
    for worker in range(1, len(values)):
        if values[worker] < values[lowest]:
            lowest = worker
    return lowest


_MOST = 1 << 56
"""The largest plausible count in a state: 45 years of 50 million records/s to one worker."""


def words_for(workers: int) -> int:
    """Return how many 64-bit words a set of workers takes: bit ``w % 64`` of word ``w // 64`` is worker w."""
    return -(-workers // 64)


def last_word(workers: int) -> np.uint64:
    """Return the bits that the last word of a set of workers can have."""
    return np.uint64(2**64 - 1) >> np.uint64(-workers % 64)


class LocalLoads:
    """Records sent to each worker by this replica, and by others as far as merges and probes reported them.

    Loads are stored as leads, that is, records above the least loaded worker. Decisions only compare loads, so
    subtracting the least load from all changes no decision, and a counter overflows only when one worker leads another
    by 2**63 records.
    """

    def __init__(self, workers: int) -> None:
        self.leads = np.zeros(workers, np.int64)
        """Shape ``(n,)``: the leads. Kernels count in it, and ``level`` then turns the counts into leads again."""
        # The part of the leads that came by merge or probe. Other replicas may hold it too, so a merge omits it.
        self._shared = np.zeros(workers, np.int64)

    def level(self) -> None:
        """Subtract the least load from all; call this after counting."""
        least = self.leads.min()
        self.leads -= least
        self._shared -= least

    def probe(self, loads: NDArray[np.int64]) -> None:
        """Replace the estimates with the true ``loads``, shape ``(n,)``."""
        self.leads = loads - loads.min()
        self._shared = self.leads.copy()

    def merge(self, others: Sequence[Self]) -> None:
        """Add what each other replica counted since its own last merge or probe.

        Raises ValueError, and changes nothing, if one of them has a different number of workers.
        """
        workers = len(self.leads)
        for other in others:
            if len(other.leads) != workers:
                raise ValueError(f"cannot merge loads of {len(other.leads)} workers into those of {workers}")
        for other in others:
            self.leads += other.leads - other._shared
        self.level()
        self._shared = self.leads.copy()

    def resize(self, workers: int) -> None:
        """Keep the loads of the remaining workers, and start new ones at the mean of all.

        At the mean (rounded down), the imbalance max - avg stays as it was: records neither rush to the new workers, as
        they would from zero, nor avoid them.
        """
        added = max(0, workers - len(self.leads))
        mean = int(self.leads.mean())
        self.leads = np.append(self.leads[:workers], np.full(added, mean))
        self._shared = np.append(self._shared[:workers], np.full(added, mean))
        self.level()

    def vectors(self) -> Vectors:
        """Return the arrays that ``restored`` needs."""
        return {"loads": self.leads, "shared": self._shared}

    @classmethod
    def restored(cls, saved: PartitionerState) -> Self:
        """Return the loads whose ``vectors`` are in a state. Raises ValueError if they are missing or implausible."""
        restored = cls(saved.workers)
        restored.leads, restored._shared = (_vector(saved, name) for name in restored.vectors())
        return restored


def _vector(saved: PartitionerState, name: str) -> NDArray[np.int64]:
    vector = saved.vector(name)
    if len(vector) != saved.workers or vector.min() < -_MOST or vector.max() > _MOST:
        raise ValueError(f"the saved state of {saved.algorithm} has no usable {name} for its {saved.workers} workers")
    return vector
