"""Token buckets, by which what a query or a namespace causes is limited in number."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

_FULL_KEPT = 1000
"""Number of buckets up to which those that are full again are not looked for."""


@dataclass(slots=True)
class TokenBucket:
    """A bucket of tokens, which begins with a burst and gains one token every so many seconds.

    Attributes:
        burst: number of tokens in a full bucket.
        seconds_each: seconds after which a bucket that is not full has one more.
        full_at: when it is full again, in seconds of a monotonic clock.
    """

    burst: int
    seconds_each: float
    full_at: float = 0.0

    def take(self, now: float) -> bool:
        """Take a token and return True; return False if there is none."""
        if self.wait(now) > 0:
            return False
        self.spend(1, now)
        return True

    def spend(self, tokens: int, now: float) -> None:
        """Take tokens, even more than there are."""
        self.full_at = max(self.full_at, now) + tokens * self.seconds_each

    def wait(self, now: float) -> float:
        """Return the seconds until there is a token."""
        missing = max(self.full_at - now, 0.0) / self.seconds_each
        return max(missing - (self.burst - 1), 0.0) * self.seconds_each


class TokenBuckets:
    """A bucket of tokens for each key. All methods may be called from any thread.

    Args:
        burst, seconds_each: see ``TokenBucket``.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, burst: int, seconds_each: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._seconds_each, self._clock = burst, seconds_each, clock
        self._buckets: dict[Hashable, TokenBucket] = {}
        """Buckets that are not full; one that is not here is full."""
        self._most = _FULL_KEPT
        """Number of buckets above which those that are full again are dropped; it grows with those that are not."""
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> bool:
        """Take a token and return True; return False if there is none."""
        with self._lock:
            return self._bucket(key).take(self._clock())

    def spend(self, key: Hashable, tokens: int) -> None:
        """Take tokens, even more than there are."""
        with self._lock:
            self._bucket(key).spend(tokens, self._clock())

    def wait(self, key: Hashable) -> float:
        """Return the seconds until there is a token."""
        with self._lock:
            return self._buckets[key].wait(self._clock()) if key in self._buckets else 0.0

    def _bucket(self, key: Hashable) -> TokenBucket:
        if key not in self._buckets:
            if len(self._buckets) >= self._most:
                now = self._clock()
                self._buckets = {each: bucket for each, bucket in self._buckets.items() if bucket.full_at > now}
                self._most = max(_FULL_KEPT, 2 * len(self._buckets))
            self._buckets[key] = TokenBucket(self._burst, self._seconds_each)
        return self._buckets[key]
