"""Whether a watch is alive, judged by touches of something that it watches: see ``Staleness``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

TOUCH_SECONDS = 30.0
"""From one touch to the next."""

MISSED = 3
"""So many intervals may pass without that the watch shows any of the touches."""


class Staleness:
    """Which touches a watch has shown. What the API server has not taken is no fault of the watch, and does not count.

    All methods may be called from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._outstanding: set[str] = set()
        self._unseen = 0
        self._seen_at: float | None = None

    def touching(self, stamp: str) -> None:
        """A touch is about to be made; its ``stamp`` is its own."""
        with self._lock:
            self._outstanding.add(stamp)

    def touched(self, stamp: str) -> None:
        """The API server has taken it."""
        with self._lock:
            if stamp in self._outstanding:  # else the watch has shown it already
                self._unseen += 1

    def failed(self) -> None:
        """The API server has not taken it, or has not said so: the watch has until the next ones to find its way."""
        with self._lock:
            self._unseen = 0

    def seen(self, stamp: str) -> None:
        """The watch has shown a touch, of this operator or another one."""
        with self._lock:
            self._seen_at = self._clock()
            if stamp in self._outstanding:
                self._outstanding.clear()
                self._unseen = 0

    @property
    def stale(self) -> bool:
        """Whether the watch has shown none of one's own touches for so long that it must be dead."""
        with self._lock:
            return self._unseen > MISSED

    @property
    def age(self) -> float | None:
        """Seconds since the watch last showed any touch; None before the first."""
        with self._lock:
            return None if self._seen_at is None else self._clock() - self._seen_at
