"""Token buckets, by which what a query or a namespace causes is limited in number: see ``TokenBuckets``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

_FULL_KEPT = 1000
"""Number of buckets up to which those that are full again are not looked for."""


class TokenBuckets:
    """A bucket of tokens for each key, which begins with a burst and gains one token every so many seconds.

    Args:
        burst: number of tokens in a full bucket.
        seconds_each: seconds after which a bucket that is not full has one more.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, burst: int, seconds_each: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._seconds_each, self._clock = burst, seconds_each, clock
        self._full_at: dict[Hashable, float] = {}
        """When each bucket is full again; one that is not here is full."""
        self._most = _FULL_KEPT
        """Number of buckets above which those that are full again are dropped; it grows with those that are not."""
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> bool:
        """Take a token and return True; return False if there is none."""
        with self._lock:
            if self._missing(key) > self._burst - 1:
                return False
            self._spend(key, 1)
            return True

    def spend(self, key: Hashable, tokens: int) -> None:
        """Take tokens, even more than there are."""
        with self._lock:
            self._spend(key, tokens)

    def wait(self, key: Hashable) -> float:
        """Return the seconds until there is a token."""
        with self._lock:
            return max(self._missing(key) - (self._burst - 1), 0.0) * self._seconds_each

    def forget(self, key: Hashable) -> None:
        """Drop the bucket of a key that is gone."""
        with self._lock:
            self._full_at.pop(key, None)

    def _missing(self, key: Hashable) -> float:
        """Return the number of tokens that a full bucket has more."""
        return max(self._full_at.get(key, 0.0) - self._clock(), 0.0) / self._seconds_each

    def _spend(self, key: Hashable, tokens: int) -> None:
        now = self._clock()
        self._full_at[key] = max(self._full_at.get(key, 0.0), now) + tokens * self._seconds_each
        if len(self._full_at) > self._most:
            self._full_at = {each: at for each, at in self._full_at.items() if at > now}
            self._most = max(_FULL_KEPT, 2 * len(self._full_at))
