"""A wall clock that was set back, for which Spark's trigger would wait."""

from __future__ import annotations

import time


class WallClock:
    """A detector of a wall clock that was set back; it must be polled often."""

    def __init__(self) -> None:
        self._ahead = _ahead()

    def set_back(self) -> float:
        """Return the seconds by which the clock was set back from its furthest point since this object was made."""
        ahead = _ahead()
        self._ahead = max(self._ahead, ahead)
        return self._ahead - ahead


def _ahead() -> float:
    """Return the seconds by which the wall clock is ahead of the monotonic clock."""
    return time.time() - time.monotonic()
