"""What batches took beyond their predicted stages: reading, the shuffle, planning, commit, and what was misjudged."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from .prior import REST_SECONDS
from .work import TaskLoads

_KEPT = 64
_RECENT = 6

REMEMBERED = 200
"""Batches after which an algorithm's own record is forgotten, doubled by each time it has disappointed."""


@dataclass(frozen=True)
class Observed:
    """Batches up to ``batch`` took ``seconds`` for ``rows`` records each; ``loads`` if their keys were known."""

    batch: int
    algorithm: str
    seconds: float
    rows: float
    loads: TaskLoads | None


class Residuals:
    """Remembers what batches took: an algorithm that has run is judged by that.

    An algorithm that has not run, or is forgotten, is judged by what the others took lately. What is beyond the
    stages is always reckoned by the newest costs: their errors then cancel for an algorithm's own record.
    """

    def __init__(self) -> None:
        self._observed: deque[Observed] = deque(maxlen=_KEPT)
        self._disappointed: dict[str, tuple[int, int]] = {}

    def add(self, observed: Observed) -> None:
        """Take in what batches took."""
        self._observed.append(observed)

    def disappointed(self, batch: int, algorithm: str) -> None:
        """The algorithm was left again soon after it was chosen: believe its record for longer."""
        self._disappointed[algorithm] = batch, self.disappointments(algorithm, batch) + 1

    def disappointments(self, algorithm: str, batch: int) -> int:
        """How often the algorithm has disappointed; 0 once that is forgotten."""
        last, times = self._disappointed.get(algorithm, (batch, 0))
        return times if batch - last <= REMEMBERED << times else 0

    def rest(self, algorithm: str, batch: int, stages: Callable[[Observed], float]) -> float:
        """Seconds to expect beyond the stages at the time of ``batch``; ``stages`` predicts those of past batches."""
        oldest = batch - (REMEMBERED << self.disappointments(algorithm, batch))
        own = [one for one in self._observed if one.algorithm == algorithm and one.batch >= oldest]
        known = (own or list(self._observed))[-_RECENT:]
        if not known:
            return REST_SECONDS
        return statistics.median(one.seconds - stages(one) for one in known)

    def clear(self) -> None:
        """Forget everything, since the plan has other numbers of tasks now."""
        self._observed.clear()
        self._disappointed.clear()
