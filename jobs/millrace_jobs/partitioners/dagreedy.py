"""DAGreedy: hashes rare keys, and places each record of a frequent key greedily by a cost model.

Source: Pacaci, Özsu, "Distribution-Aware Stream Partitioning for Distributed Stream Processing Systems",
BeyondMR@SIGMOD 2018. Paper 003 cites it as [32] and compares with it; it is not among our papers. The algorithm is
reconstructed from two sources. Paper 003 says that infrequent keys are hashed and frequent ones assigned greedily by a
cost model, with a score for each worker at each record. The program published with paper 003 sends a record of a
frequent key to the worker w with the highest score

    1/2 [w has the key] - 1/2 (L_w - L) / L.

The first of several such workers wins. L_w is the load of w and L the average load; both, like [w has the key], refer
to the current window. So a key is split when its least loaded worker leads the least loaded of all workers by more than
the average load.

Two points are uncertain: whether the original gives both terms the same weight, and how it counts. The program of paper
003 counts exactly and starts again in each slide. A key that exceeds 1/(100 n) of one slide is frequent until the next
slide has ended. Here, space-saving counts with 2 / theta counters, where theta is 1/(100 n) unless ``head`` says
otherwise, and the weight of earlier records is halved at the end of each slide. Among the first records any key is
frequent. If a key is not counted, it is also unknown which workers have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import inlined, kernel
from millrace_jobs.kernels.mixing import salts, seeded_hash
from millrace_jobs.sketches.space_saving import SpaceSaving, SpaceSavingCounters, count, is_frequent

from .base import Hashes, Partitioner, Workers, key_block
from .choices import last_word, least_loaded, words_for
from .parameters import Number, whole_number
from .state import PartitionerState, Vectors

HEAD = Number(default=0.01, least=0.01, most=2.0)
"""The parameter ``head``: n times the lowest frequency of a frequent key."""

Holders = NDArray[np.uint64]
"""Shape ``(slides, keys, ceil(n / 64))``: bit ``w % 64`` of word ``w // 64`` is set if worker w has the key."""

_MOST = 1 << 48
"""The largest plausible number of records in a saved window: 65 days at 50 million records/s."""


class DAGreedy(Partitioner):
    """One replica of DAGreedy, over a window of ``slides`` slides.

    The loads and placements of the oldest slide are forgotten when a new slide begins.
    """

    NAME = "dagreedy"

    def __init__(self, *, workers: int, seed: int, head: float, slides: int) -> None:
        super().__init__(workers)
        self._salt = salts(seed, 1)[0]
        self._head = HEAD.check("head", head)
        self._slides = whole_number("slides", slides, 1)
        self._loads = np.zeros((slides, workers), np.int64)  # by slide, the current one first
        self._continue_with(SpaceSaving(self._capacity(workers)), self._no_fragments(0, workers))

    @property
    def loads(self) -> NDArray[np.int64]:
        """Shape ``(n,)``: records sent to each worker in this window."""
        loads: NDArray[np.int64] = self._loads.sum(axis=0)
        return loads

    @property
    def fragments(self) -> Holders:
        """The workers that have each key of ``summary.keys``, by slide, the current one first; a copy."""
        return self._fragments[:, self.summary.slots]

    def route(self, keys: Hashes) -> Workers:
        """Send each record of a frequent key to the worker with the highest score, and all others by hash."""
        block = key_block(keys)
        ids = np.empty(len(block), np.int32)
        _place(
            block,
            ids,
            self._salt,
            self._theta,
            self.summary.counters,
            self._owners,
            self._fragments,
            self.loads,
            self._loads[0],
        )
        return ids

    def advance(self) -> None:
        """End the slide: forget the oldest slide of the window, and decay the frequencies.

        Keys below half the threshold of a frequent key are too rare to become frequent soon, and are forgotten. At most
        2 / theta = 200 n keys remain, and on most streams only a few of them.
        """
        self._loads = np.concatenate([np.zeros_like(self._loads[:1]), self._loads[:-1]])
        fragments = self.fragments
        fragments = np.concatenate([np.zeros_like(fragments[:1]), fragments[:-1]])
        self.summary.age(2, self._theta / 2)
        self._continue_with(self.summary, fragments[:, : len(self.summary)])

    def merge(self, others: Sequence[Self]) -> None:
        """Add the loads, frequencies and placements of other replicas, which must not be part of this state yet.

        Frequencies are ratios, so the merged summary is scaled to the records of one replica. Raises ValueError if
        another replica has a different number of workers or slides.
        """
        for other in others:
            if other._loads.shape != self._loads.shape:
                raise ValueError(
                    f"cannot merge {other._slides} slides over {other.workers} workers into {self._slides} slides "
                    f"over {self._workers}"
                )
        if not others:
            return
        known = [(part.summary.keys, part.fragments) for part in (self, *others)]
        for other in others:
            self._loads += other._loads
        self.summary.merge([other.summary for other in others])
        self.summary.age(len(known))
        merged = self._no_fragments(len(self.summary), self._workers)
        for keys, fragments in known:
            _, here, there = np.intersect1d(self.summary.keys, keys, assume_unique=True, return_indices=True)
            merged[:, here] |= fragments[:, there]
        self._continue_with(self.summary, merged)

    def resize(self, workers: int) -> None:
        """Keep the frequencies, and the loads and keys of the remaining workers; new workers start at the mean load.

        A new worker that started at zero would get every frequent key. Rare keys are rehashed.
        """
        added = max(0, whole_number("workers", workers, 1) - self._workers)
        means = np.repeat(self._loads.mean(axis=1).astype(np.int64)[:, None], added, axis=1)
        self._loads = np.concatenate([self._loads[:, :workers], means], axis=1)
        before = self.fragments
        self.summary.resize(self._capacity(workers))
        after = self._no_fragments(len(self.summary), workers)
        words = min(before.shape[2], after.shape[2])
        after[:, :, :words] = before[:, : after.shape[1], :words]
        after[:, :, -1] &= last_word(workers)
        super().resize(workers)
        self._continue_with(self.summary, after)

    @property
    def _theta(self) -> float:
        return self._head / self._workers

    def _capacity(self, workers: int) -> int:
        return math.ceil(2 * workers / self._head)

    def _no_fragments(self, keys: int, workers: int) -> Holders:
        return np.zeros((self._slides, keys, words_for(workers)), np.uint64)

    def _continue_with(self, summary: SpaceSaving, fragments: Holders) -> None:
        """Continue with a fresh summary, whose slots are ranks, and the ``fragments`` of its keys."""
        self.summary = summary
        self._owners = np.zeros(summary.capacity, np.uint64)
        self._owners[: len(summary)] = summary.keys
        self._fragments = np.zeros((self._slides, summary.capacity, fragments.shape[2]), np.uint64)
        self._fragments[:, : len(summary)] = fragments

    def _vectors(self) -> Vectors:
        """Return the window's loads and, for each counted key, 24 bytes and n bits per slide."""
        fragments = self.fragments.view(np.int64).ravel()
        return {**self.summary.vectors(), "loads": self._loads.ravel(), "fragments": fragments}

    def _adopt(self, saved: PartitionerState) -> None:
        summary = SpaceSaving.restored(self._capacity(saved.workers), saved.vectors)
        loads, fragments = saved.vector("loads"), saved.vector("fragments")
        shape = self._no_fragments(len(summary), saved.workers).shape
        if len(loads) != self._slides * saved.workers or len(fragments) != math.prod(shape):
            shown = f"{self._slides} slides and {saved.workers} workers"
            raise ValueError(f"the saved state of {self.NAME} does not fit {shown}")
        placed = fragments.view(np.uint64).reshape(shape)
        if loads.min() < 0 or loads.max() > _MOST or (placed[..., -1] & ~last_word(saved.workers)).any():
            raise ValueError(
                f"the saved state of {self.NAME} has impossible loads, or keys on workers that do not exist"
            )
        self._loads = loads.reshape(self._slides, -1)
        self._continue_with(summary, placed)


@kernel
def _place(
    keys: Hashes,
    ids: Workers,
    salt: np.uint64,
    theta: float,
    counters: SpaceSavingCounters,
    owners: NDArray[np.uint64],
    fragments: Holders,
    loads: NDArray[np.int64],
    slide_loads: NDArray[np.int64],
) -> None:
    """Place ``keys`` in order, counting in both load arrays in place.

    ``fragments[:, slot]`` belong to the key ``owners[slot]``.
    """
    rows, table, numbers = counters
    workers = len(loads)
    total = loads.sum()
    search = np.zeros(2, np.int64)
    for row in range(len(keys)):
        key = keys[row]
        slot = count(rows, table, numbers, key)
        if owners[slot] != key:
            owners[slot] = key
            fragments[:, slot] = 0
        worker: int | np.int64
        if is_frequent(rows, numbers, slot, theta):
            worker = _greedy(fragments, slot, loads, total, search)
        else:
            worker = np.int64(seeded_hash(key, salt) % np.uint64(workers))
        fragments[0, slot, worker >> 6] |= np.uint64(1) << np.uint64(worker & 63)
        loads[worker] += 1
        slide_loads[worker] += 1
        total += 1
        ids[row] = worker


@inlined
def _greedy(fragments: Holders, slot: np.int64, loads: NDArray[np.int64], total: int, search: NDArray[np.int64]) -> int:
    """Return the first worker with the highest score.

    It is either the least loaded worker that has the key, or the least loaded of all. The difference of their scores,
    times the total load, is a whole number.
    """
    least = least_loaded(loads, search)
    holder = -1
    for word in range(fragments.shape[2]):
        bits = _workers_with(fragments, slot, word)
        while bits != np.uint64(0):
            worker = 64 * word + _lowest_bit(bits)
            bits &= bits - np.uint64(1)
            if holder < 0 or loads[worker] < loads[holder]:
                holder = worker
    lead = (loads[holder] - loads[least]) * len(loads)
    return holder if holder >= 0 and (lead < total or (lead == total and holder < least)) else least


@inlined
def _workers_with(fragments: Holders, slot: np.int64, word: int) -> np.uint64:
    """Return the workers of one word that have the key in this window, as bits."""
    bits = np.uint64(0)
    for slide in range(fragments.shape[0]):
        bits |= fragments[slide, slot, word]
    return bits


_DE_BRUIJN = 0x03F79D71B4CB0A89
"""A de Bruijn sequence, whose 64 runs of 6 bits are all different. Source: Leiserson, Prokop, Randall, "Using de Bruijn
Sequences to Index a 1 in a Computer Word", 1998."""

_POSITIONS = np.zeros(64, np.int64)
for _bit in range(64):
    _POSITIONS[(_DE_BRUIJN << _bit & (1 << 64) - 1) >> 58] = _bit


@inlined
def _lowest_bit(bits: np.uint64) -> int:
    """Return the position of the lowest set bit of ``bits``, which must not be zero."""
    lowest = bits & (~bits + np.uint64(1))
    position: int = _POSITIONS[np.int64((lowest * np.uint64(_DE_BRUIJN)) >> np.uint64(58))]
    return position
