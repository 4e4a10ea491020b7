"""What a run did, from its first batch to its last."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from millrace_jobs.pipeline.progress import BatchReport

Outcome = Literal["finished", "drained", "failed"]


@dataclass(frozen=True)
class Summary:
    """A run as a whole.

    ``seconds`` is its length. ``mean_utilization`` and ``p95_utilization`` are those of W, processing time over
    batch interval; None where there was no batch. ``output`` says where the results are.
    """

    outcome: Outcome
    batches: int
    rows: int
    results: int
    rejected: int
    late: int
    seconds: float
    mean_utilization: float | None
    p95_utilization: float | None
    plan_changes: int
    output: str

    @property
    def rows_per_second(self) -> float:
        """Records read per second of the run."""
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass
class RunTally:
    """Adds up the batches of a run, in memory that does not grow with their number."""

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    late: int = 0
    _utilization: float = 0.0
    _percents: Counter[int] = field(default_factory=Counter)

    def add(self, report: BatchReport) -> None:
        """Take in a finished batch."""
        self.batches += 1
        self.rows += report.rows
        self.rejected += report.rejected
        self.late += report.late
        self._utilization += report.utilization
        # whole percents, as they are shown; a W over 100 is the same to everyone
        self._percents[min(round(100 * report.utilization), 10_000)] += 1

    def summary(self, outcome: Outcome, *, results: int, seconds: float, plan_changes: int, output: str) -> Summary:
        """The run as a whole, with what its batches cannot tell."""
        return Summary(
            outcome=outcome,
            batches=self.batches,
            rows=self.rows,
            results=results,
            rejected=self.rejected,
            late=self.late,
            seconds=seconds,
            mean_utilization=self._utilization / self.batches if self.batches else None,
            p95_utilization=self._percentile(95),
            plan_changes=plan_changes,
            output=output,
        )

    def _percentile(self, percent: int) -> float | None:
        """The least W, to a hundredth, that at least so many percent of the batches stay within."""
        values = sorted(self._percents)
        for value, within in zip(values, accumulate(self._percents[v] for v in values), strict=True):
            if 100 * within >= percent * self.batches:
                return value / 100
        return None
