"""The machine's clock may be set back, and Spark's trigger waits for a time of day."""

from __future__ import annotations

import time


class WallClock:
    """Notices that the clock was set back, when it is asked often enough."""

    def __init__(self) -> None:
        self._ahead = _ahead()

    def set_back(self) -> float:
        """Seconds by which the clock is behind the furthest that it has been ahead since this was made."""
        ahead = _ahead()
        self._ahead = max(self._ahead, ahead)
        return self._ahead - ahead


def _ahead() -> float:
    """Seconds by which the clock is ahead of the one that only measures."""
    return time.time() - time.monotonic()
