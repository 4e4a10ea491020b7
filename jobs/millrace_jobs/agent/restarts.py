"""When a query that failed is started again in the same process, and when it is not."""

from __future__ import annotations

from dataclasses import replace

from millrace_api.errors import MillraceError, TransientError

MOST = 5
"""Restarts in a row without a finished batch."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a restart; the pause doubles from one to the next."""


class Restarts:
    """Counts the restarts since the last finished batch."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def progressed(self) -> None:
        """A batch has been finished: what failed before has passed."""
        self._in_a_row = 0

    def pause_after(self, failure: TransientError) -> float:
        """Seconds to wait before the next start.

        Raises:
            MillraceError: it has been tried often enough.
        """
        if self._in_a_row == MOST:
            first, *more = failure.problems
            message = f"after {MOST} restarts without a finished batch: {first.message}"
            final = MillraceError(replace(first, message=message), *more)
            final.failure = failure.failure
            raise final from None
        self._in_a_row += 1
        return min(FIRST_PAUSE * 2.0 ** (self._in_a_row - 1), LONGEST_PAUSE)

    def __str__(self) -> str:
        return f"{self._in_a_row} of {MOST}"
