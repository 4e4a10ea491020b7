"""Detection of dead watches by touching a watched object: see ``Staleness``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

TOUCH_SECONDS = 30.0
"""Seconds between two touches."""

MISSED = 3
"""Number of touches that the watch may miss before it counts as stale."""


class Staleness:
    """Tracker of the touches that a watch has shown.

    A touch that the API server has not accepted does not count, because the watch is not at fault. All methods may be
    called from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._outstanding: set[str] = set()
        self._unseen = 0
        self._seen_at: float | None = None

    def touching(self, stamp: str) -> None:
        """Announce a touch with a unique ``stamp``."""
        with self._lock:
            self._outstanding.add(stamp)

    def touched(self, stamp: str) -> None:
        """Count a touch that the API server has accepted, unless the watch has already shown it."""
        with self._lock:
            if stamp in self._outstanding:  # otherwise the watch has shown it already
                self._unseen += 1

    def failed(self) -> None:
        """Reset the count after a failed touch, because the API server may be at fault."""
        with self._lock:
            self._unseen = 0

    def seen(self, stamp: str) -> None:
        """Record a touch shown by the watch, made by this operator or another one."""
        with self._lock:
            self._seen_at = self._clock()
            if stamp in self._outstanding:
                self._outstanding.clear()
                self._unseen = 0

    @property
    def stale(self) -> bool:
        """Whether the watch has missed more than ``MISSED`` of the counted touches and must be dead."""
        with self._lock:
            return self._unseen > MISSED

    @property
    def age(self) -> float | None:
        """Seconds since the watch last showed any touch; None before the first."""
        with self._lock:
            return None if self._seen_at is None else self._clock() - self._seen_at
