"""Exponential backoff: the pauses between attempts at something that fails."""

from __future__ import annotations

import random

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""First and longest pause in seconds, where a caller does not set its own."""


class Backoff:
    """Pauses in seconds that grow by ``factor`` from ``first`` up to ``longest``, until ``reset``; not thread-safe.

    Each pause is cut by a random share of up to ``jitter`` (0 to 1), so that callers that failed together do not all
    retry together.
    """

    def __init__(
        self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE, factor: float = 2.0, jitter: float = 0.0
    ) -> None:
        self._first, self._longest, self._factor, self._jitter = first, longest, factor, jitter
        self._pause = first

    def next(self) -> float:
        """Return the seconds to wait before the next attempt."""
        pause, self._pause = self._pause, min(self._pause * self._factor, self._longest)
        return pause * (1 - random.uniform(0, self._jitter)) if self._jitter else pause

    def reset(self) -> None:
        """Begin again with the first pause, because an attempt succeeded."""
        self._pause = self._first
