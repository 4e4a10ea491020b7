"""The send loop: encodes records in order and sends them at a pace, until the input ends or a limit is reached."""

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
"""Most messages that are handed over at a time."""
_IDLE = 0.01
"""Seconds to wait if no message is due."""


class Outlet(Protocol):
    """The destination of messages, such as :class:`millrace_jobs.produce.delivery.Delivery`."""

    def send(self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, stopped: Callable[[], bool]) -> None:
        """Send messages in order; return early if ``stopped``."""
        ...

    def poll(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...


@dataclass(frozen=True)
class SendLimits:
    """The limits of a run: ``count`` messages and ``duration`` seconds; None means no limit."""

    count: int | None = None
    duration: float | None = None


Messages = tuple[list[bytes], list[bytes | None] | None]
"""Values of messages and their keys; None in place of the keys if messages have no key."""


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
    """Send records at a pace, or as fast as the outlet accepts them.

    Returns when the records end, ``limits`` are reached, or ``stop`` is set.

    Args:
        batches: the records.
        encode: turns records into messages.
        outlet: the destination.
        pace: when records are due; None sends them as fast as possible.
        limits: when to stop.
        stop: ends the loop when set.
        advanced: is called with the number of messages after each send.
        clock: returns the current time in seconds.
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
    """Yield the batches in parts of at most ``_AT_ONCE`` records, ``count`` records in all."""
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
