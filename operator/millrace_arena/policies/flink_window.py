"""Metrics window and stabilization interval of Flink's autoscaler.

Rules of flink-autoscaler 1.10.0. A restart of the job discards its samples. After a restart the job stabilizes, and
then a whole window has to pass before the first decision.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace_arena.policies.flink_metrics import MetricWindow, Sample
from millrace_arena.policies.flink_options import FlinkOptions


class Collector:
    """Samples of the vertices of a job that has been running since ``running_since``, seconds."""

    def __init__(self, running_since: float, options: FlinkOptions) -> None:
        self._stable_since = running_since + options.stabilization
        self._length = options.metrics_window
        self._times: list[float] = []
        self._samples: list[Mapping[str, Sample]] = []

    def add(self, time: float, samples: Mapping[str, Sample]) -> MetricWindow | None:
        """Return the window up to ``time``; None until the window is full and has at least two samples."""
        stable = (earlier for earlier in self._times if earlier >= self._stable_since)
        full_at = next(stable, time) + self._length
        self._times.append(time)
        self._samples.append(samples)
        if time < max(self._stable_since, full_at):
            return None
        old = sum(earlier < time - self._length for earlier in self._times)
        del self._times[:old], self._samples[:old]
        return self.window if len(self._times) > 1 else None

    @property
    def window(self) -> MetricWindow:
        """All samples kept so far."""
        names = self._samples[0] if self._samples else {}
        return MetricWindow(tuple(self._times), {name: [sample[name] for sample in self._samples] for name in names})
