"""Estimated cardinalities: a HyperLogLog per worker, with the optimistic "contains" of paper 000, section 3.2.2.

AM and cAM update a sketch only with keys that it does not contain. While a sketch is in linear counting, a key seems to
be on a worker as soon as any key with the same register was placed there. So fewer and fewer new keys are placed by
load: with two choices, one in four after 4096 n distinct keys in a window, and hardly any after 4096 (n - 1)**2. The
others go to the first candidate that seems to have them, which is mostly the first of all, as with hashing. With n > 1
the sketches stay in linear counting, and their estimates end near 4096 ln n. A key moves to an earlier candidate when
that one begins to seem to have it, so a key can be on up to d workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined, kernel
from millrace_jobs.sketches.hyperloglog import (
    LARGEST,
    REGISTERS,
    HyperLogLogs,
    contains,
    from_registers,
    hashed,
    update,
)

from .base import Hashes, Workers
from .choices import Cardinalities, Homes, Loads, draw, extremes_of, home_or_least_hybrid_load, update_extremes


class SketchedSets:
    """Estimated key sets of ``workers`` workers: 4 KiB and 24 bytes per worker, however many keys there are."""

    def __init__(self, workers: int, registers: NDArray[np.uint8] | None = None) -> None:
        """Start from ``registers``, shape ``(workers, 4096)``, or without keys."""
        self._sketches = from_registers(np.zeros((workers, REGISTERS), np.uint8) if registers is None else registers)

    @property
    def cardinalities(self) -> Cardinalities:
        """Estimated distinct keys of each worker; not a copy."""
        return self._sketches.estimates

    def route(
        self,
        keys: Hashes,
        seeds: NDArray[np.uint64],
        affinity: bool,
        weight: float,
        loads: Loads,
        homes: Homes,
        slack: float,
    ) -> Workers:
        """Place ``keys``, and count them here and in ``loads``. With ``affinity`` a worker that has the key gets it."""
        return _route(keys, seeds, affinity, weight, loads, homes, slack, self._sketches)

    def emptied(self) -> Self:
        """Return sets without keys."""
        return type(self)(len(self.cardinalities))

    def union(self, other: Self) -> None:
        """Add the keys of each of the other's workers."""
        self._sketches = from_registers(np.maximum(self._sketches.registers, other._sketches.registers))

    def place(self, keys: Hashes, ids: Workers) -> None:
        """Count keys on these workers."""
        _place(keys, ids, self._sketches)

    def resized(self, workers: int) -> Self:
        """Return the sets over ``workers`` workers: the remaining ones keep their keys, new ones have none."""
        registers = np.zeros((workers, REGISTERS), np.uint8)
        kept = self._sketches.registers[:workers]
        registers[: len(kept)] = kept
        return type(self)(workers, registers)

    def vectors(self) -> dict[str, NDArray[np.int64]]:
        """Return the registers, eight to a word, for ``from_vectors``; no words while all registers are 0."""
        registers = self._sketches.registers if self._sketches.registers.any() else np.empty(0, np.uint8)
        return {"registers": registers.ravel().view(np.int64)}

    @classmethod
    def from_vectors(cls, workers: int, vectors: Mapping[str, NDArray[np.int64]]) -> Self:
        """Return the sets that ``vectors`` describe. Raises ValueError if these do not fit ``workers`` workers."""
        registers = vectors.get("registers", np.zeros(1, np.int64)).view(np.uint8)
        if len(registers) not in (0, workers * REGISTERS) or (registers > LARGEST).any():
            raise ValueError(f"its {workers} workers do not each have {REGISTERS} registers of at most {LARGEST}")
        return cls(workers, registers.reshape(workers, REGISTERS).copy() if len(registers) else None)


@kernel
def _place(keys: Hashes, ids: Workers, sketches: HyperLogLogs) -> None:
    for row in range(len(keys)):
        update(sketches, ids[row], hashed(keys[row]))


@kernel
def _route(
    keys: Hashes,
    seeds: NDArray[np.uint64],
    affinity: bool,
    weight: float,
    loads: Loads,
    homes: Homes,
    slack: float,
    sketches: HyperLogLogs,
) -> Workers:
    ids = np.empty(len(keys), np.int32)
    drawn = np.empty(len(seeds), np.int64)
    hybrid = 0.0 < weight < 1.0
    extremes = extremes_of(loads, sketches.estimates)
    for row in range(len(keys)):
        key_hash = hashed(keys[row])
        worker = _holder(keys[row], key_hash, seeds, drawn, sketches) if affinity else -1
        if worker < 0:
            worker = home_or_least_hybrid_load(
                keys[row], seeds, drawn, weight, loads, sketches.estimates, extremes, homes, slack
            )
            update(sketches, worker, key_hash)
        loads[worker] += 1
        if hybrid:
            update_extremes(extremes, worker, loads, sketches.estimates)
        ids[row] = worker
    return ids


@inlined
def _holder(
    key: np.uint64, key_hash: np.uint64, seeds: NDArray[np.uint64], drawn: NDArray[np.int64], sketches: HyperLogLogs
) -> int:
    """Return the first candidate that seems to have the key, or -1 if none does."""
    for choice in range(len(seeds)):
        worker = draw(key, seeds, choice, len(sketches.estimates), drawn)
        if contains(sketches, worker, key_hash):
            return worker
    return -1
