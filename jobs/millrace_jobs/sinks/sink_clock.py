"""The time of batches that sinks take after their results are computed, which no executor shortens.

A sink that writes from the driver runs ``SINK_CLOCK`` around its own work. While it waits for results that Spark still
computes, the clock stands. Tasks that write side by side have a clock each, of which the driver adds the longest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_T = TypeVar("_T")


class SinkClock:
    """A stop watch of one thread; ``seconds`` is all that it has counted so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._since = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of the block; within another such block, it counts once."""
        self._start()
        try:
            yield
        finally:
            self._stop()

    def outside(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items, and do not count the time that each one takes to come."""
        iterator = iter(items)
        while True:
            is_running = self._depth > 0
            if is_running:
                self._stop()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                if is_running:
                    self._start()
            yield item

    def add(self, seconds: float) -> None:
        """Add the time that tasks took to write, side by side."""
        self.seconds += seconds

    def _start(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._since = time.perf_counter()

    def _stop(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._since


SINK_CLOCK = SinkClock()
"""The clock of the driver's sinks, all of which write in the thread of ``foreachBatch``."""
