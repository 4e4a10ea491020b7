"""Which batches close windows, where no other ones have results.

Under OnWindowClose, Spark's aggregation emits a group in the first batch whose watermark has reached the end of the
group's window, and drops records of windows that an earlier batch has closed. So a batch has no results if no window
ends between the watermark of the batch before and its own. A sink then need not be prepared for many.
"""

from __future__ import annotations

from dataclasses import replace

from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.sinks.base import ResultBatch


class ClosingWindows:
    """Marks the batches of a query that close no windows; those of which nothing is known count as closing some."""

    def __init__(self, query: CompiledQuery, spec: Spec) -> None:
        self._window = query.execution.closing_window if spec.emit is Emit.ON_WINDOW_CLOSE else None
        self._before: ResultBatch | None = None

    def marked(self, batch: ResultBatch) -> ResultBatch:
        """Return the batch that is about to be written, with ``may_have_results`` false if it closes no window."""
        before, self._before = self._before, batch
        follows = before is not None and before.number + 1 == batch.number  # else, a batch is repeated
        if self._window is None or before is None or not follows:
            return batch
        closes = self._window.ends_between(before.watermark * 1000, batch.watermark * 1000)
        return batch if closes else replace(batch, may_have_results=False)
