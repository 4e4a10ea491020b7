"""The choice of a display for a run, and the totals that it shows at the end of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console

from millrace_jobs.pipeline.progress import BatchReport
from millrace_support.run_figures import Outcome, RunSummary

if TYPE_CHECKING:
    from millrace_jobs.display.live import LiveDisplay
    from millrace_jobs.display.plain import PlainDisplay

    Display: TypeAlias = LiveDisplay | PlainDisplay
    """A display of a run; its methods may be called from any thread."""


@dataclass
class RunTally:
    """Running totals over the batches of a run, in memory that does not grow with their number.

    ``incomplete`` records are in no result, because their key or event time is NULL. ``before_1970`` is whether
    there was a record with an event time before 1970.
    """

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    late: int = 0
    incomplete: int = 0
    before_1970: bool = False
    _utilization: float = 0.0
    _percents: Counter[int] = field(default_factory=Counter)

    def add(self, report: BatchReport) -> None:
        """Add a finished batch to the totals."""
        self.batches += 1
        self.rows += report.rows
        self.rejected += report.rejected
        self.late += report.late
        self.incomplete += report.incomplete
        self.before_1970 = self.before_1970 or report.earliest_event is not None
        self._utilization += report.utilization
        # whole percents, as shown; above W = 100 the exact value no longer matters
        self._percents[min(round(100 * report.utilization), 10_000)] += 1

    def summary(
        self,
        outcome: Outcome,
        *,
        results: int,
        seconds: float,
        plan_changes: int,
        output: str,
        start_seconds: float = 0.0,
    ) -> RunSummary:
        """Return the summary of the run; the arguments are the facts that batch reports do not contain."""
        return RunSummary(
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
            start_seconds=start_seconds,
        )

    def _percentile(self, percent: int) -> float | None:
        """Return the smallest W, to a hundredth, that at least ``percent`` % of the batches stay within."""
        values = sorted(self._percents)
        for value, within in zip(values, accumulate(self._percents[v] for v in values), strict=True):
            if 100 * within >= percent * self.batches:
                return value / 100
        return None


def display_for(console: Console, name: str, results: Console | None = None) -> Display:
    """Return the display of query ``name``: live if the console is a terminal that can move its cursor, else plain.

    Args:
        console: where progress and messages go.
        name: name of the query.
        results: where the rows of the sink ``console`` go; None for ``console``, too.
    """
    from millrace_jobs.display.live import LiveDisplay
    from millrace_jobs.display.plain import PlainDisplay

    # variables such as FORCE_COLOR make a terminal of any file for Rich
    if console.is_terminal and console.file.isatty() and not console.is_dumb_terminal:
        return LiveDisplay(console, name, results)
    return PlainDisplay(console, name, results)
