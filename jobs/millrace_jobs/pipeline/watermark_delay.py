"""How far the watermark is behind the newest event time."""

from __future__ import annotations

from millrace_jobs.pipeline.progress import BatchReport


class WatermarkDelay:
    """The delay of the watermark behind the newest event time of a run, not behind the clock.

    A recording may be years old, so that its distance to the clock says nothing.
    """

    def __init__(self) -> None:
        self._newest: int | None = None

    def after(self, report: BatchReport) -> float | None:
        """Return the delay after a batch, in seconds; None before there is a watermark."""
        watermark = None if report.watermark is None else round(report.watermark.timestamp() * 1e6)
        times = [time for time in (self._newest, report.latest_event, watermark) if time is not None]
        self._newest = max(times, default=None)
        if self._newest is None or watermark is None:
            return None
        return (self._newest - watermark) / 1e6
