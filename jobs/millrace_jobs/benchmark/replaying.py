"""Replaying a stream through the replicas of an algorithm, slide by slide, like the micro-batches of a job.

The records of each slide are cut into one contiguous slice per replica, of nearly equal length, as a job cuts its
batches (``sources.slicing``). At the end of a slide, every replica advances once for each slide that has passed. Then
the replicas of a cooperative algorithm merge each other's states. Window state that spans several slides, such as
loads, stays local to its replica. In a job, a window is one slide, so no such state remains.
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
"""Most records in a block, as in the blocks that sources deliver."""


@dataclass(frozen=True)
class SlideRun:
    """The run of one slide, over all replicas; seconds are processor time of the one thread that they run in."""

    ids: Workers
    route_seconds: float
    """Time to place the records: ``route``, or ``accumulate`` and ``cut``."""
    advance_seconds: float
    """Time to end the slide: ``advance``, and the exchange between the replicas of a cooperative algorithm."""
    peak_state_bytes: int
    """``len(save())`` of the largest replica after it has taken its records; 0 if states were not requested."""
    state_bytes: int
    """``len(save())`` of the largest replica after the end of the slide, which a job keeps from batch to batch."""


def replay(
    replicas: Sequence[Partitioner],
    hashes: Hashes,
    slides: Slides,
    *,
    slides_per_window: int,
    copies: Sequence[Partitioner] = (),
    states: bool,
) -> Iterator[SlideRun]:
    """Run the stream through the replicas on one core; yield one run per slide that has records.

    Args:
        replicas: the replicas of one algorithm.
        hashes: key hashes of the records, shape ``(rows,)``.
        slides: the slides of the stream.
        slides_per_window: length of a window in slides.
        copies: for a cooperative algorithm, as many further replicas, which hold states during an exchange.
        states: whether to measure the size of states.
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
    """Return the records of the last window that has any, assigned to the replicas as in ``replay``."""
    oldest = np.searchsorted(slides.numbers, slides.numbers[-1] - slides_per_window, side="right")
    dealt = [_slices(begin, end, replicas) for begin, end in pairwise(slides.edges[oldest:].tolist())]
    return [np.concatenate([hashes[low:high] for low, high in of_replica]) for of_replica in zip(*dealt, strict=True)]


def _slices(begin: int, end: int, replicas: int) -> list[tuple[int, int]]:
    """Return the range of the records ``[begin, end)`` that each replica gets."""
    return list(pairwise(begin + offset for offset in bounds(end - begin, replicas)))


def _take(replica: Partitioner, batch: BatchPartitioner | None, blocks: Sequence[Hashes]) -> list[Workers]:
    """Pass a slice to a replica; return the workers of its records, or nothing if placement waits for the cut."""
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
    """Merge into each replica the states that all others had before the exchange."""
    if len(copies) < 2:
        return
    for replica, copy in zip(replicas, copies, strict=True):
        copy.restore(replica.save())
    for place, replica in enumerate(replicas):
        replica.merge([*copies[:place], *copies[place + 1 :]])


def _advances(slides: Slides, slides_per_window: int) -> list[int]:
    """Return the number of advances after each slide with records: past it, and past the empty slides that follow.

    A gap longer than two windows is shortened to two windows plus its remainder after whole windows. By then, no window
    contains earlier records, and windows still end where they would have.
    """
    gaps = np.append(np.diff(slides.numbers), 1)
    two_windows = 2 * slides_per_window
    short = two_windows + gaps % slides_per_window
    counts: list[int] = np.where(gaps > two_windows, short, gaps).tolist()
    return counts
