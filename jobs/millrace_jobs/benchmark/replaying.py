"""Replaying a stream through the replicas of an algorithm, slide by slide, as micro-batches are in a job.

The records of each slide are cut into as many nearly equal contiguous slices as there are replicas, as a job
cuts its batches (``sources.slicing``). At the end of a slide every replica advances, once for each slide that
has gone by; then replicas that learn together merge what the others know. What a window of several slides leaves
in a replica, such as its loads, stays its own; in a job, where a window is one slide, nothing of it is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from millrace_jobs.partitioners.base import BatchPartitioner, Hashes, Partitioner, Workers
from millrace_jobs.sources.slicing import bounds

from .slides import Slides

BLOCK = 131_072
"""Records in a block at most, as sources deliver them."""


@dataclass(frozen=True)
class SlideRun:
    """What happened in one slide, all replicas together; seconds are processor time of the one thread they run in."""

    ids: Workers
    route_seconds: float
    """Placing the records: ``route``, or ``accumulate`` and ``cut``."""
    advance_seconds: float
    """The end of the slide: ``advance``, and the exchange between replicas that learn together."""
    peak_state_bytes: int
    """``len(save())`` of the largest replica when it had taken in its records; 0 where states were not asked for."""
    state_bytes: int
    """The same after the end of the slide: what a job keeps from batch to batch."""


def replay(
    replicas: Sequence[Partitioner],
    hashes: Hashes,
    slides: Slides,
    *,
    slides_per_window: int,
    copies: Sequence[Partitioner] = (),
    states: bool,
) -> Iterator[SlideRun]:
    """Run the stream through the replicas, one core for all; gives one run per slide that has records.

    For replicas that learn together, ``copies`` are as many more of them, which are used to hold their states.
    """
    steps = _advances(slides, slides_per_window)
    batches = [replica if isinstance(replica, BatchPartitioner) else None for replica in replicas]
    for (begin, end), advances in zip(pairwise(slides.edges.tolist()), steps, strict=True):
        parts: list[Workers] = []
        routing, peak = 0.0, 0
        for replica, batch, (low, high) in zip(replicas, batches, _slices(begin, end, len(replicas)), strict=True):
            blocks = [hashes[row : min(row + BLOCK, high)] for row in range(low, high, BLOCK)]
            began = time.thread_time()
            parts += _take(replica, batch, blocks)
            routing += time.thread_time() - began
            peak = max(peak, len(replica.save())) if states else 0
            if batch is not None:
                began = time.thread_time()
                parts.append(batch.cut())
                routing += time.thread_time() - began
        began = time.thread_time()
        _end_slide(replicas, advances)
        _exchange(replicas, copies)
        ending = time.thread_time() - began
        kept = max(len(replica.save()) for replica in replicas) if states else 0
        yield SlideRun(np.concatenate(parts), routing, ending, peak, kept)


def last_window(hashes: Hashes, slides: Slides, *, slides_per_window: int, replicas: int) -> list[Hashes]:
    """The records of the last window that has any, dealt to the replicas as ``replay`` deals them."""
    oldest = np.searchsorted(slides.numbers, slides.numbers[-1] - slides_per_window, side="right")
    dealt = [_slices(begin, end, replicas) for begin, end in pairwise(slides.edges[oldest:].tolist())]
    return [np.concatenate([hashes[low:high] for low, high in of_replica]) for of_replica in zip(*dealt, strict=True)]


def _slices(begin: int, end: int, replicas: int) -> list[tuple[int, int]]:
    """Which of the records ``[begin, end)`` each replica gets."""
    return list(pairwise(begin + offset for offset in bounds(end - begin, replicas)))


def _take(replica: Partitioner, batch: BatchPartitioner | None, blocks: Sequence[Hashes]) -> list[Workers]:
    """Hand over a slice; gives where its records go, or nothing yet before the cut of a whole batch."""
    if batch is None:
        return [replica.route(block) for block in blocks]
    for block in blocks:
        batch.accumulate(block)
    return []


def _end_slide(replicas: Sequence[Partitioner], advances: int) -> None:
    for replica in replicas:
        for _ in range(advances):
            replica.advance()


def _exchange(replicas: Sequence[Partitioner], copies: Sequence[Partitioner]) -> None:
    """Each replica merges what all others knew before any had merged."""
    if len(copies) < 2:
        return
    for replica, copy in zip(replicas, copies, strict=True):
        copy.restore(replica.save())
    for place, replica in enumerate(replicas):
        replica.merge([*copies[:place], *copies[place + 1 :]])


def _advances(slides: Slides, slides_per_window: int) -> list[int]:
    """How often to advance after each slide that has records: past it, and past the empty ones that follow.

    A gap longer than two windows counts as two windows and what is left of it after whole ones: by then nothing
    of the time before is left in any window, and windows still end where they would have.
    """
    gaps = np.append(np.diff(slides.numbers), 1)
    two_windows = 2 * slides_per_window
    short = two_windows + gaps % slides_per_window
    counts: list[int] = np.where(gaps > two_windows, short, gaps).tolist()
    return counts
