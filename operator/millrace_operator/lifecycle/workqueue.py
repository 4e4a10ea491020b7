"""Work queue of keys with delays and retries, modeled on client-go's: see ``WorkQueue``."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from millrace_support.backoff import Backoff

from ..telemetry.metrics import OperatorMetrics
from .fair_queue import FairQueue

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 120.0
"""Pause before a failed key is retried, in seconds: after its first failure, and at most."""

_FEW = 64
"""Dates that no longer count which are kept at any rate."""

Key = TypeVar("Key")


class WorkQueue(Generic[Key]):
    """Work queue that holds each key at most once and never gives a key to two workers at a time.

    A key added while a worker has it is handed out again when that worker is done. So no change is missed, and no two
    workers race on one key. All methods may be called from any thread.

    Args:
        clock: monotonic clock, in seconds.
        metrics: the operator's own metrics.
        owner: returns the owner of a key; owners take turns, see ``FairQueue``. By default, all keys have the same one.
        most: number of workers that one owner may have at a time; None for no limit.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        metrics: OperatorMetrics | None = None,
        owner: Callable[[Key], Hashable] = lambda key: None,
        most: int | None = None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics or OperatorMetrics()
        self._changed = threading.Condition()
        self._ready = FairQueue(owner, most)
        self._waiting: dict[Key, float] = {}
        """Time since which each key waits; waits before the first worker's call count from that call."""
        self._opened: float | None = None
        self._working: set[Key] = set()
        self._later: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._numbers = itertools.count()
        self._backoffs: dict[Key, Backoff] = {}
        self._closed = False
        self._threads: list[threading.Thread] = []

    def __len__(self) -> int:
        """Return the number of keys ready for a worker."""
        with self._changed:
            return len(self._ready)

    def add(self, key: Key, *, new: bool = False) -> None:
        """Queue a key for work now; keys added as ``new`` come after all others of their owner.

        Otherwise a query in progress would wait behind a burst of new ones at each of its steps.
        """
        with self._changed:
            self._add(key, new=new)

    def add_first(self, key: Key) -> None:
        """Queue a key before all others, so that it waits for a worker only, however many others wait."""
        with self._changed:
            if key in self._waiting:
                self._ready.move_first(key)
            else:
                self._add(key, first=True)

    def add_later(self, key: Key, seconds: float) -> None:
        """Queue a key after a delay, unless it is handed out before; an earlier due time of the same key stays."""
        with self._changed:
            due = self._clock() + seconds
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._later, (due, next(self._numbers), key))
                if len(self._later) > 2 * len(self._due) + _FEW:
                    self._later = [each for each in self._later if self._due.get(each[2]) == each[0]]
                    heapq.heapify(self._later)
                self._changed.notify()

    def retry(self, key: Key) -> float:
        """Queue a failed key again after a pause that grows with each failure; return the pause in seconds."""
        with self._changed:
            backoff = self._backoffs.setdefault(key, Backoff(FIRST_PAUSE, LONGEST_PAUSE, jitter=0.5))
            pause = backoff.next()
        self.add_later(key, pause)
        self._metrics.retried()
        return pause

    def forget(self, key: Key) -> None:
        """Reset the failures of a key that succeeded."""
        with self._changed:
            self._backoffs.pop(key, None)

    def get(self) -> Key | None:
        """Wait for the next key and return it; None after ``stop``. The worker must call ``done`` with it."""
        with self._changed:
            if self._opened is None:
                self._opened = self._clock()
            while not self._closed:
                pause = self._take_due()
                if (key := self._ready.take()) is not None:
                    self._working.add(key)
                    self._due.pop(key, None)
                    self._metrics.waited(self._clock() - max(self._waiting.pop(key), self._opened))
                    return key
                self._changed.wait(pause)
            return None

    def start(self, work: Callable[[Key], None], workers: int, name: str) -> None:
        """Start threads that call ``work`` with one key after another until ``stop``."""
        self._threads = [threading.Thread(target=self._run, args=(work,), name=f"{name}-{i}") for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Hand out no more keys, and wait until the threads have finished theirs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def done(self, key: Key) -> None:
        """Release a key after its work, successful or not."""
        with self._changed:
            self._working.discard(key)
            self._ready.done(key)
            if key in self._waiting:
                self._ready.add(key)
            self._changed.notify()

    def _run(self, work: Callable[[Key], None]) -> None:
        while (key := self.get()) is not None:
            try:
                work(key)
            finally:
                self.done(key)

    def _add(self, key: Key, *, new: bool = False, first: bool = False) -> None:
        if key in self._waiting:
            return
        self._waiting[key] = self._clock()
        if key not in self._working:
            if first:
                self._ready.add_first(key)
            else:
                self._ready.add(key, new=new)
            self._changed.notify()

    def _take_due(self) -> float | None:
        """Add the keys that are due; return the seconds until the next one is due, or None if none is delayed."""
        while self._later:
            due, _, key = self._later[0]
            if due > self._clock():
                return due - self._clock()
            heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self._add(key)
        return None
