"""How often the objects of a query are made what they shall be, where they do not stay so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .observe import QueryKey


class Rounds:
    """Keeps an operator from fighting with somebody else over an object: rounds of applying the same get rarer.

    After ``QUIET`` seconds without one they begin anew, as they do with another thing to apply.
    """

    FIRST, LONGEST, QUIET = 1.0, 300.0, 300.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next: dict[QueryKey, tuple[float, float, object]] = {}

    def wait(self, key: QueryKey, wanted: object = None) -> float:
        """Seconds until the next round may begin, which applies what is ``wanted``; 0 begins it."""
        with self._lock:
            now = self._clock()
            due, pause, before = self._next.get(key, (now, self.FIRST, wanted))
            if wanted != before:
                due, pause = now, self.FIRST
            if due > now:
                return due - now
            if now > due + self.QUIET:
                pause = self.FIRST
            self._next[key] = (now + pause, min(2 * pause, self.LONGEST), wanted)
            return 0.0

    def forget(self, key: QueryKey) -> None:
        """There is no such query any more."""
        with self._lock:
            self._next.pop(key, None)
