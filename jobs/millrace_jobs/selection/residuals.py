"""Batch time beyond the predicted stages: reading, the shuffle, planning, commit, and prediction errors."""

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
"""Number of batches after which an algorithm's own record is forgotten; doubled each time it disappoints."""


@dataclass(frozen=True)
class Observed:
    """Observation that batches up to ``batch`` took ``seconds`` for ``rows`` records each.

    ``loads`` is None unless their keys were known.
    """

    batch: int
    algorithm: str
    seconds: float
    rows: float
    loads: TaskLoads | None


class Residuals:
    """Record of what batches took, by which an algorithm that has run is judged.

    An algorithm that has not run, or is forgotten, is judged by what the others took recently. The time beyond the
    stages is always computed from the newest costs, whose errors then cancel for an algorithm's own record.
    """

    def __init__(self) -> None:
        self._observed: deque[Observed] = deque(maxlen=_KEPT)
        self._disappointed: dict[str, tuple[int, int]] = {}

    def add(self, observed: Observed) -> None:
        """Add an observation."""
        self._observed.append(observed)

    def disappointed(self, batch: int, algorithm: str) -> None:
        """Note that the algorithm was abandoned soon after it was chosen, and trust its record for longer."""
        self._disappointed[algorithm] = batch, self.disappointments(algorithm, batch) + 1

    def disappointments(self, algorithm: str, batch: int) -> int:
        """Return how often the algorithm has disappointed; 0 once that is forgotten."""
        last, times = self._disappointed.get(algorithm, (batch, 0))
        return times if batch - last <= REMEMBERED << times else 0

    def rest(self, algorithm: str, batch: int, stages: Callable[[Observed], float]) -> float:
        """Return the seconds to expect beyond the stages in ``batch``; ``stages`` predicts those of past batches."""
        oldest = batch - (REMEMBERED << self.disappointments(algorithm, batch))
        own = [one for one in self._observed if one.algorithm == algorithm and one.batch >= oldest]
        known = (own or list(self._observed))[-_RECENT:]
        if not known:
            return REST_SECONDS
        return statistics.median(one.seconds - stages(one) for one in known)

    def clear(self) -> None:
        """Forget everything, because the plan now has other numbers of tasks."""
        self._observed.clear()
        self._disappointed.clear()
