"""How far a micro-batch goes into a backlog: to the same time in every partition.

A watermark follows the newest event time of all partitions. If a small or new partition were read faster than the
others, its event times would move the watermark past records that still wait in the others, and these would be late.
A backlog is therefore read in the order of its records' Kafka timestamps, as far as the order within partitions allows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest

from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sources.kafka.offsets import OffsetRange, Offsets
from millrace_jobs.sources.kafka.range_reader import RangeReader

ENOUGH = 0.9
"""The share of the admitted offsets at which a cut is good enough, so that few times have to be tried."""

_TRIES = 40
"""The maximum number of times to try; half of them bisect, which is enough to find a millisecond in 17 minutes."""

_AHEAD_MS = 60_000  # milliseconds by which the clocks of producers may be ahead of this machine's clock
_FIRST_STEP_MS, _FURTHER, _STEPS = 60_000, 4, 13
"""The first step back in time in ms, the factor to the next step, and the number of steps: 42 years in all."""

_MEASURE_EVERY = 32  # micro-batches from one measurement to the next
_MEASURED_PARTITIONS, _MEASURED_OFFSETS = 4, 64
"""The number of partitions to measure, those with the largest backlog, and the number of offsets in each."""

At = Callable[[int, Iterable[Partition]], Mapping[Partition, int | None]]
"""Function that finds the first offset at or after a time in ms since 1970, by partition; None without a record."""


@dataclass(frozen=True)
class _Cut:
    """A time in ms since 1970, its offset in each partition, and the number of backlog offsets before it."""

    time: int
    ends: Offsets
    count: int


class BacklogCutter:
    """Cuts backlogs at a time; the search begins at the time reached by the last cut."""

    def __init__(self, at: At, clock: Callable[[], float] = time.time) -> None:
        self._at = at
        self._clock = clock
        self._reached = 0

    def cut(self, begins: Offsets, ends: Offsets, most: int, turn: int) -> Offsets:
        """Return where a batch ends that begins at ``begins``, has at most ``most`` offsets, and may go to ``ends``.

        ``begins`` and ``ends`` have the same partitions, each with a backlog. ``turn`` is passed to ``admit``.
        Partitions whose records have no timestamps, or timestamps in the future, get a share in proportion to their
        backlog.
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
        if high.count <= most:  # the rest of the backlog has timestamps in the future
            return _filled(begins, high.ends, ends, most, turn)
        low, high = self._around(begins, ends, high, most)
        if low.count > most:  # even the oldest records are too many
            return _filled(begins, begins, low.ends, most, turn)
        for attempt in range(_TRIES):
            if low.count >= ENOUGH * most or high.time - low.time <= 1:
                break
            # half-way, or interpolated as if records were evenly spread
            share = 0.5 if attempt % 2 == 1 else (most - low.count) / (high.count - low.count)
            moment = min(max(low.time + int(share * (high.time - low.time)), low.time + 1), high.time - 1)
            tried = self._cut_at(moment, begins, ends)
            low, high = (tried, high) if tried.count <= most else (low, tried)
        self._reached = low.time
        if low.count >= ENOUGH * most:
            return low.ends
        return _filled(begins, low.ends, high.ends, most, turn)

    def _around(self, begins: Offsets, ends: Offsets, high: _Cut, most: int) -> tuple[_Cut, _Cut]:
        """Return a cut with at most ``most`` offsets, if there is one, and a later cut with more."""
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


def _filled(begins: Offsets, low: Offsets, high: Offsets, most: int, turn: int) -> Offsets:
    """Return the ends of a batch that takes all offsets up to ``low``, and a share of those up to ``high``."""
    rest = {p: high[p] - low[p] for p in low if high[p] > low[p]}
    spare = most - sum(low[p] - begins[p] for p in low)
    more = admit(rest, spare, turn) if rest and spare > 0 else {}
    return {p: low[p] + more.get(p, 0) for p in low}


def admit(waiting: Mapping[Partition, int], most: int, turn: int) -> dict[Partition, int]:
    """Return how many waiting offsets of each partition a micro-batch takes: ``most`` in total, or all if fewer wait.

    Every partition with a backlog gets one offset. The rest is shared in proportion to the backlogs, so that all
    partitions are drained at the same time and none starves next to a large one. If more partitions than ``most``
    have a backlog, ``turn`` rotates which of them come first.
    """
    behind = sorted(partition for partition, records in waiting.items() if records > 0)
    if sum(waiting[partition] for partition in behind) <= most:
        return {partition: waiting[partition] for partition in behind}
    if len(behind) >= most:
        first = turn % len(behind)
        return dict.fromkeys((behind[first:] + behind[:first])[:most], 1)
    ends = [0, *itertools.accumulate(waiting[partition] - 1 for partition in behind)]
    cuts = itertools.pairwise((most - len(behind)) * end // ends[-1] for end in ends)
    # whole shares, each less than one from the exact one
    return {partition: 1 + high - low for partition, (low, high) in zip(behind, cuts, strict=True)}


class RecordSize:
    """The mean bytes of key and value per offset, measured from time to time on the next few records."""

    def __init__(self, source: str, connection: Connection) -> None:
        self._source = source
        self._connection = connection
        self._estimates = 0
        self._bytes = 1.0

    def estimate(self, begins: Mapping[Partition, int], waiting: Mapping[Partition, int]) -> float:
        """Return the mean bytes per offset, at least 1, of the backlog from ``begins`` on. Raises MillraceError."""
        if self._estimates % _MEASURE_EVERY == 0:
            largest = nlargest(_MEASURED_PARTITIONS, waiting, key=lambda partition: waiting[partition])
            sample = [OffsetRange(p, begins[p], begins[p] + min(waiting[p], _MEASURED_OFFSETS)) for p in largest]
            with RangeReader(self._source, self._connection, sample) as reader:
                messages = [message for block in reader.blocks() for message in block]
            size = sum(len(message) + len(message.key() or b"") for message in messages)
            self._bytes = max(size / sum(map(len, sample)), 1.0)
        self._estimates += 1
        return self._bytes
