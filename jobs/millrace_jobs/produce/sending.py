"""The loop: records in order, encoded, paced, handed over, until there are no more or it is enough."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Protocol

import pyarrow as pa

from millrace_jobs.sources.pacing import Pace, Pacer

_AT_ONCE = 10_000
"""Messages handed over at a time."""
_IDLE = 0.01
"""Seconds to wait where no message is due."""


class Outlet(Protocol):
    """Takes messages; :class:`millrace_jobs.produce.delivery.Delivery`."""

    def send(self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, stopped: Callable[[], bool]) -> None:
        """Take these."""
        ...

    def poll(self, seconds: float) -> None:
        """Wait for so long."""
        ...


@dataclass(frozen=True)
class SendLimits:
    """When to end: after ``count`` messages, after ``duration`` seconds; None is never."""

    count: int | None = None
    duration: float | None = None


Messages = tuple[list[bytes], list[bytes | None] | None]
"""Values, and keys where messages have some."""


def send_all(
    batches: Iterator[pa.RecordBatch],
    encode: Callable[[pa.RecordBatch], Messages],
    outlet: Outlet,
    *,
    pace: Pace | None,
    limits: SendLimits,
    stop: Event,
    advanced: Callable[[int], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Send records at a pace, or as fast as they are taken; ``advanced`` hears how many were sent each time.

    Returns when there are no more, ``limits`` are reached, or ``stop`` is set.
    """
    pacer = Pacer(pace, clock) if pace is not None else None
    deadline = clock() + limits.duration if limits.duration is not None else None
    sent = 0

    def over() -> bool:
        return stop.is_set() or (deadline is not None and clock() >= deadline)

    for values, keys in map(encode, _at_most(batches, limits.count)):
        done = 0
        while done < len(values):
            if over():
                return
            due = pacer.due(sent) - sent if pacer is not None else _AT_ONCE
            if due <= 0:
                outlet.poll(_IDLE)
                continue
            part = slice(done, min(done + due, done + _AT_ONCE))
            outlet.send(values[part], keys[part] if keys is not None else None, over)
            taken = len(values[part])
            done += taken
            sent += taken
            advanced(taken)


def _at_most(batches: Iterator[pa.RecordBatch], count: int | None) -> Iterator[pa.RecordBatch]:
    """Parts of batches that are handed over at once, ``count`` records in all."""
    left = count
    parts = itertools.chain.from_iterable(
        (batch.slice(row, _AT_ONCE) for row in range(0, batch.num_rows, _AT_ONCE)) for batch in batches
    )
    for part in parts:
        if left is None:
            yield part
        else:
            yield part.slice(0, left)
            left -= min(left, part.num_rows)
            if not left:
                return
