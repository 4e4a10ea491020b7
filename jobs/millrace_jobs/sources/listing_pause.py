"""Pauses between the listings of a large place, so that listing takes a bounded share of the time, and of requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHARE = 10
"""A listing is followed by a pause of so many times its duration."""

_QUICK_SECONDS = 1.0
"""A listing that takes less than this is not followed by a pause."""


class ListingPause:
    """How long to wait before the next listing; ``clock`` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._until = clock, clock()

    def is_over(self) -> bool:
        """Return whether to list."""
        return self._clock() >= self._until

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the listing of the ``with`` block."""
        begin = self._clock()
        yield
        taken = self._clock() - begin
        self._until = begin if taken < _QUICK_SECONDS else self._clock() + SHARE * taken
