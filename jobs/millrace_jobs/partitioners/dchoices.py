"""D-C and W-C: D-Choices and W-Choices, partial key grouping with more than two choices for the most frequent keys.

Source: Nasir, De Francisci Morales, Kourtellis, Serafini, "When Two Choices Are not Enough: Balancing at Scale in
Distributed Stream Processing", ICDE 2016 (arXiv:1510.05714). It is not among our papers; its Algorithm 1 and its
constraint are given here from the publication's formulas, without its text.

The *head* H is the set of keys with a frequency of at least theta, as space-saving estimates it; all other keys are the
*tail*. A record of a tail key goes to the less loaded of the key's two candidates, as in PKG. A head key has more
choices: all n workers in W-Choices, d candidates in D-Choices. For every prefix of the h most frequent keys, the load
expected on the workers of these keys must not exceed what balance allows, and d is the least number for which this
holds. With p_i the frequencies in descending order and ``b_h = n - n ((n - 1) / n) ** (h d)`` the expected number of
these workers, the constraint is

    sum(p_i, i <= h) + (b_h / n) ** d sum(p_i, h < i <= |H|) + (b_h / n) ** 2 sum(p_i, i > |H|) <= b_h (1/n + eps).

If no d below n fulfils it, D-Choices is W-Choices.

The formulas leave some points open, which are decided here. Candidates are distinct (see ``pkg``), so h keys are on
more workers than b_h expects. d is not solved for at every record, but whenever the stream has grown by a sixteenth
since the last time. The summary has 2 / theta counters, so every key of frequency theta is in the head, and no key
below theta / 2 is, except among the first 2 / theta records, in which any key is frequent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.kernels.mixing import salts
from millrace_jobs.sketches.space_saving import SpaceSaving, SpaceSavingCounters, count, is_frequent

from .base import Hashes, Partitioner, Workers, key_block
from .choices import LocalLoads, draw, least_loaded, least_loaded_candidate
from .parameters import Number
from .state import PartitionerState, SavedCounter, Vectors

HEAD = Number(default=0.2, least=0.2, most=2.0)
"""The parameter ``head``: theta times n. The source considers thetas from 1/(5n) to 2/n."""

_MEMORY = 256
"""Least number of records per summary counter that are remembered; a key of frequency theta came 512 times in them."""

_EPSILON = 1e-4
_TAIL_CHOICES = 2


class HeadSplitting(Partitioner):
    """Base of D-Choices and W-Choices, which differ only in the number of choices for the head."""

    COUNTERS = (SavedCounter("choices", "number of choices", least=1), SavedCounter("due", "number of records"))
    EVERYWHERE: ClassVar[bool]
    """Whether a head key may be on all workers, not only on d."""

    def __init__(self, *, workers: int, seed: int, head: float) -> None:
        super().__init__(workers)
        self._seed = seed
        self._head = HEAD.check("head", head)
        self._loads = LocalLoads(workers)
        self.summary = SpaceSaving(self._capacity(workers))
        self._choices = min(_TAIL_CHOICES, workers)
        self._due = 0  # stream length at which the choices for the head are next computed
        self._owners, self._candidates = _no_candidates(self.summary.capacity)

    @property
    def loads(self) -> NDArray[np.int64]:
        """Shape ``(n,)``: records sent to each worker, less those sent to the least loaded one; a copy."""
        return self._loads.leads.copy()

    @property
    def choices(self) -> int:
        """Number of workers d that a head key may be on; ``n`` means all."""
        return self._choices

    def route(self, keys: Hashes) -> Workers:
        """Send each record to the least loaded of its key's choices."""
        block = key_block(keys)
        ids = np.empty(len(block), np.int32)
        seeds = salts(self._seed, self._workers)
        start = 0
        while start < len(block):
            if self.summary.total >= self._due:
                self._find_choices()
            if self._candidates.shape[1] < self._choices < self._workers:
                self._candidates = np.full((self.summary.capacity, self._choices), -1, np.int32)
            stop = start + self._due - self.summary.total
            _place(
                block[start:stop],
                ids[start:stop],
                seeds,
                self._head / self._workers,
                self._choices,
                self.summary.counters,
                self._owners,
                self._candidates,
                self._loads.leads,
            )
            start = stop
        self._loads.level()
        return ids

    def advance(self) -> None:
        """Forget the loads, and halve the weight of the past until it is below ``2 * _MEMORY`` records per counter.

        The source counts both from the beginning of the stream, which then dominates forever: a key that becomes
        frequent on the tenth day would have to make up for nine.
        """
        self._loads = LocalLoads(self._workers)
        while self.summary.total >= 2 * _MEMORY * self.summary.capacity:
            self.summary.age(2)
            self._due = 0

    def merge(self, others: Sequence[Self]) -> None:
        """Add what each other replica sent since its own last merge, and combine the frequencies of all.

        Frequencies are ratios, so the merged summary is scaled to the records of one replica. Replicas may therefore
        all restore one merged state and be merged again: the common part counts once. Raises ValueError if another
        replica has a different number of workers.
        """
        self._loads.merge([other._loads for other in others])
        if others:
            self.summary.merge([other.summary for other in others])
            self.summary.age(1 + len(others))
            self._due = 0

    def resize(self, workers: int) -> None:
        """Keep the frequencies and the loads of the remaining workers; new workers start at the mean.

        Candidates are redrawn, so most keys move.
        """
        super().resize(workers)
        self._loads.resize(workers)
        self.summary.resize(self._capacity(workers))
        self._choices, self._due = min(_TAIL_CHOICES, workers), 0
        self._owners, self._candidates = _no_candidates(self.summary.capacity)

    def _vectors(self) -> Vectors:
        """Return the loads and the summary, whose 2 / theta counters take 24 bytes each: at most 240 n bytes."""
        return {**self._loads.vectors(), **self.summary.vectors()}

    def _adopt(self, saved: PartitionerState) -> None:
        loads = LocalLoads.restored(saved)
        summary = SpaceSaving.restored(self._capacity(saved.workers), saved.vectors)
        choices, due = saved.counters["choices"], saved.counters["due"]
        if choices > saved.workers or due > _due_after(summary.total):
            shown = f"{choices} choices among {saved.workers} workers until record {due}, after {summary.total} records"
            raise ValueError(f"the saved state of {self.NAME} is impossible: {shown}")
        self._loads, self.summary = loads, summary
        self._owners, self._candidates = _no_candidates(summary.capacity)

    def _capacity(self, workers: int) -> int:
        return math.ceil(2 * workers / self._head)

    def _find_choices(self) -> None:
        self._choices = self._workers
        if not self.EVERYWHERE:
            frequencies = self.summary.counts / max(1, self.summary.total)
            self._choices = _least_choices(frequencies[frequencies >= self._head / self._workers], self._workers)
        self._due = _due_after(self.summary.total)


class WChoices(HeadSplitting):
    """W-Choices: head keys may be on all workers, for the best balance at the cost of their replication."""

    NAME = "wchoices"
    EVERYWHERE = True


class DChoices(HeadSplitting):
    """D-Choices: head keys may be on d workers each, as few as balance allows."""

    NAME = "dchoices"
    EVERYWHERE = False


def _no_candidates(capacity: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    return np.zeros(capacity, np.uint64), np.empty((capacity, 0), np.int32)


def _due_after(total: int) -> int:
    return total + 1 + total // 16


@kernel
def _place(
    keys: Hashes,
    ids: Workers,
    seeds: NDArray[np.uint64],
    theta: float,
    choices: int,
    counters: SpaceSavingCounters,
    owners: NDArray[np.uint64],
    candidates: NDArray[np.int32],
    loads: NDArray[np.int64],
) -> None:
    """Place ``keys`` in order, counting in ``loads`` in place.

    ``candidates[slot]`` begins with the known candidates of the key ``owners[slot]``, in the order in which they are
    drawn, or with -1 if none are known.
    """
    rows, table, numbers = counters
    workers = len(loads)
    drawn = np.empty(workers, np.int64)
    search = np.zeros(2, np.int64)
    for row in range(len(keys)):
        key = keys[row]
        slot = count(rows, table, numbers, key)
        if not is_frequent(rows, numbers, slot, theta):
            best = least_loaded_candidate(key, seeds, min(_TAIL_CHOICES, workers), loads, drawn)
        elif choices == workers:
            best = least_loaded(loads, search)
        else:
            if owners[slot] != key or candidates[slot, 0] < 0:
                owners[slot] = key
                for choice in range(candidates.shape[1]):
                    candidates[slot, choice] = draw(key, seeds, choice, workers, drawn)
            best = candidates[slot, 0]
            for choice in range(1, choices):
                if loads[candidates[slot, choice]] < loads[best]:
                    best = candidates[slot, choice]
        loads[best] += 1
        ids[row] = best


@kernel
def _least_choices(head: NDArray[np.float64], workers: int) -> int:
    """Return the least d that fulfils the constraint, or ``workers`` if no d below does.

    The search begins at d = p_1 n, because p_1 <= d / n.
    """
    choices = _TAIL_CHOICES
    if len(head) > 0:
        choices = max(choices, math.ceil(head[0] * workers))
    while choices < workers and not _balances(head, choices, workers):
        choices += 1
    return min(choices, workers)


@kernel
def _balances(head: NDArray[np.float64], choices: int, workers: int) -> bool:
    """Whether the constraint holds for every prefix of the head."""
    total = head.sum()
    tail = max(0.0, 1.0 - total)
    prefix = 0.0
    for keys in range(1, len(head) + 1):
        prefix += head[keys - 1]
        share = 1.0 - ((workers - 1) / workers) ** (keys * choices)  # b_h / n
        expected = prefix + share**choices * (total - prefix) + share**_TAIL_CHOICES * tail
        if expected > share * workers * (1.0 / workers + _EPSILON):
            return False
    return True
