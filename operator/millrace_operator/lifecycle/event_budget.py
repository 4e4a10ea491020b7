"""Rate limit of a query's events: a burst, then one at a time, like client-go's event recorder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable


class EventBudget:
    """Token bucket per key; thread-safe."""

    BURST, SECONDS_EACH = 25, 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[Hashable, tuple[float, float]] = {}

    def take(self, key: Hashable) -> bool:
        """Take a token and return whether another event is allowed now."""
        with self._lock:
            now = self._clock()
            left, since = self._left.get(key, (float(self.BURST), now))
            left = min(left + (now - since) / self.SECONDS_EACH, float(self.BURST))
            self._left[key] = (max(left - 1, 0.0) if left >= 1 else left, now)
            return left >= 1

    def forget(self, key: Hashable) -> None:
        """Drop the bucket of a deleted query."""
        with self._lock:
            self._left.pop(key, None)
