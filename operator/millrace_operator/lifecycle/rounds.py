"""Back-off for re-applying objects of a query that another client keeps changing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .observe import QueryKey


class Rounds:
    """Back-off between rounds that apply the same objects, so that two clients do not fight over one.

    The pause doubles with each round. It is reset after ``QUIET`` seconds without a round, and when there is something
    else to apply.
    """

    FIRST, LONGEST, QUIET = 1.0, 300.0, 300.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next: dict[QueryKey, tuple[float, float, object]] = {}

    def wait(self, key: QueryKey, wanted: object = None) -> float:
        """Return the seconds until a round that applies ``wanted`` may start; 0 starts the round now."""
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
        """Reset the back-off of a query."""
        with self._lock:
            self._next.pop(key, None)
