"""How far a batch goes into a backlog: to the same time in every partition.

A watermark follows the newest event time of all partitions. Were a partition that holds little, or was added lately,
read faster than the others, its times would move the watermark past records that still wait there, and these would be
late. So a backlog is read in the order of its records' timestamps, as Kafka keeps them, as far as partitions go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.kafka.offsets import Offsets, admit

ENOUGH = 0.9
"""Share of what is admitted with which a batch is content, so that few times have to be tried."""

_TRIES = 40
"""Times that are tried at most; half of them halve the distance, which finds a millisecond among ten minutes."""

_AHEAD_MS = 60_000
"""By how much the clocks of producers may be ahead of this machine's."""

_FIRST_STEP_MS, _FURTHER, _STEPS = 60_000, 4, 13
"""How far back in time it is looked first, how much farther each time, and how often: up to 30 years."""

At = Callable[[int, Iterable[Partition]], Mapping[Partition, int | None]]
"""The offset of the first record not before a time in ms since 1970, by partition; None where there is none."""


@dataclass(frozen=True)
class _Cut:
    """A time in ms since 1970, where it is in each partition, and how many offsets are before it."""

    time: int
    ends: Offsets
    count: int


class Timeline:
    """Cuts backlogs; remembers how far it has come, where it begins to look the next time."""

    def __init__(self, at: At, clock: Callable[[], float] = time.time) -> None:
        self._at = at
        self._clock = clock
        self._reached = 0

    def cut(self, begins: Offsets, ends: Offsets, most: int, turn: int) -> Offsets:
        """Where a batch ends that begins at ``begins``, has at most ``most`` offsets, and may go to ``ends``.

        Both have the same partitions, in each of which something waits. ``turn`` is as ``admit`` wants it. Partitions
        whose records have no times, or times that are still to come, have their share by what waits there.
        """
        now = self._cut_at(int(self._clock() * 1000) + _AHEAD_MS, begins, ends)
        timed = [partition for partition, end in now.ends.items() if end > begins[partition]]
        untimed = {p: ends[p] - begins[p] for p in begins if p not in timed}
        share = -(-most * sum(untimed.values()) // sum(ends[p] - begins[p] for p in ends))
        taken = {p: begins[p] + offsets for p, offsets in admit(untimed, share, turn).items()} if untimed else {}
        if not timed or share >= most:
            return taken
        begins, ends = ({p: offsets[p] for p in timed} for offsets in (begins, ends))
        return taken | self._by_time(begins, ends, now, most - share, turn)

    def _by_time(self, begins: Offsets, ends: Offsets, now: _Cut, most: int, turn: int) -> Offsets:
        high = _Cut(now.time, {p: now.ends[p] for p in begins}, sum(now.ends[p] - begins[p] for p in begins))
        if high.count <= most:  # what is left is to come
            return _filled(begins, high.ends, ends, most, turn)
        low, high = self._around(begins, ends, high, most)
        if low.count > most:  # as old as can be
            return _filled(begins, begins, low.ends, most, turn)
        for attempt in range(_TRIES):
            if low.count >= ENOUGH * most or high.time - low.time <= 1:
                break
            tried = self._cut_at(_between(low, high, most, halve=attempt % 2 == 1), begins, ends)
            low, high = (tried, high) if tried.count <= most else (low, tried)
        self._reached = low.time
        if low.count >= ENOUGH * most:
            return low.ends
        return _filled(begins, low.ends, high.ends, most, turn)

    def _around(self, begins: Offsets, ends: Offsets, high: _Cut, most: int) -> tuple[_Cut, _Cut]:
        """A time by which no more than ``most`` is read, if there is one, and one by which more is."""
        low = self._cut_at(self._reached, begins, ends)
        step = _FIRST_STEP_MS
        for _ in range(_STEPS):
            if self._reached and low.count <= most:
                break
            low = self._cut_at(max(high.time - step, 0), begins, ends)
            if low.count <= most:
                break
            high, step = low, step * _FURTHER
        return low, high

    def _cut_at(self, moment: int, begins: Offsets, ends: Offsets) -> _Cut:
        found = self._at(moment, begins)
        cut = {}
        for partition, begin in begins.items():
            offset = found[partition]
            cut[partition] = ends[partition] if offset is None else min(max(offset, begin), ends[partition])
        return _Cut(moment, cut, sum(cut[partition] - begins[partition] for partition in begins))


def _between(low: _Cut, high: _Cut, most: int, *, halve: bool) -> int:
    """A time between the two: where it would be if records came evenly, or half-way."""
    share = 0.5 if halve else (most - low.count) / (high.count - low.count)
    return min(max(low.time + int(share * (high.time - low.time)), low.time + 1), high.time - 1)


def _filled(begins: Offsets, low: Offsets, high: Offsets, most: int, turn: int) -> Offsets:
    """All up to ``low``, and of what is between that and ``high`` as much as is admitted besides."""
    rest = {p: high[p] - low[p] for p in low if high[p] > low[p]}
    spare = most - sum(low[p] - begins[p] for p in low)
    more = admit(rest, spare, turn) if rest and spare > 0 else {}
    return {p: low[p] + more.get(p, 0) for p in low}
