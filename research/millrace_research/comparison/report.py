"""The report of a comparison, and its JSON form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millrace_jobs.partitioners.placement_cost import MovedKeys, PartitioningImbalance, PlacementCost
from millrace_research.comparison.contenders import ComparisonSetting, Contender
from millrace_research.comparison.stream import Spans

EXACT = "all placement metrics, and moved keys: counted from the worker and the 64-bit key hash of every record"
MEASURED = "seconds and records/s: processor time of one thread in this run, with kernels compiled before"

CLOCK_TICK = 1e-9
"""Shortest duration, in seconds, that a speed is computed from; it avoids a division by zero."""


@dataclass(frozen=True)
class StreamWindow:
    """A window of the stream under one algorithm; ``moved`` is None for the first window."""

    number: int
    """Number of the slide that the window ends with."""
    cost: PlacementCost
    moved: MovedKeys | None


@dataclass(frozen=True)
class Slide:
    """A slide of the stream under one algorithm (see ``replaying.SlideRun``)."""

    number: int
    rows: int
    route_seconds: float
    advance_seconds: float
    peak_state_bytes: int
    state_bytes: int


@dataclass(frozen=True)
class Result:
    """The results of one algorithm."""

    contender: Contender
    total: PlacementCost
    """Cost of the whole input as one window."""
    windows: Sequence[StreamWindow]
    slides: Sequence[Slide]
    moved_on_resize: MovedKeys | None = None
    """Keys that a resize moves; None without a resize.

    After the end of the stream, its last window is placed again, all replicas are resized, and the window is placed
    once more. A slide ends in between, as at the end of a micro-batch.
    """

    @property
    def records_per_second(self) -> float:
        """Records placed per second of processor time spent on placement."""
        return self.total.rows / max(sum(slide.route_seconds for slide in self.slides), CLOCK_TICK)

    @property
    def mean_imbalance(self) -> PartitioningImbalance:
        """BSI, BCI and KSR, each as the mean over windows."""
        means = self.means()
        return PartitioningImbalance(means["bsi"], means["bci"], means["ksr"])

    @property
    def moved(self) -> MovedKeys:
        """Moved keys, summed over all pairs of consecutive windows."""
        pairs = [window.moved for window in self.windows if window.moved is not None]
        return MovedKeys(sum(moved.keys for moved in pairs), sum(moved.moved for moved in pairs))

    @property
    def peak_state_bytes(self) -> int:
        """Largest state of a replica, in bytes, after it has placed the records of a slide."""
        return max(slide.peak_state_bytes for slide in self.slides)

    @property
    def state_bytes(self) -> int:
        """Largest state of a replica, in bytes, after the end of a slide."""
        return max(slide.state_bytes for slide in self.slides)

    @cached_property
    def series(self) -> Mapping[str, NDArray[np.float64]]:
        """Values of each figure of ``cost_figures`` over the windows, shape ``(windows,)``."""
        rows = [tuple(cost_figures(window.cost).values()) for window in self.windows]
        return dict(zip(cost_figures(self.total), np.array(rows, np.float64).T, strict=True))

    def means(self) -> dict[str, float]:
        """Return the mean over the windows of each figure of ``cost_figures``."""
        return {name: float(values.mean()) for name, values in self.series.items()}

    def worst(self) -> dict[str, float]:
        """Return the largest value over the windows of each figure of ``cost_figures``."""
        return {name: float(values.max()) for name, values in self.series.items()}


@dataclass(frozen=True)
class InputStream:
    """The input of a comparison: a recorded stream and its counts of records and keys."""

    file: str
    keys: Sequence[str]
    time: str | None
    rows: int
    distinct_keys: int
    late: int
    """Number of records older than the slide that was current when they arrived."""
    without_time: int
    hashing_seconds: float


@dataclass(frozen=True)
class ComparisonReport:
    """The report of a comparison; paper 004's relative figures refer to ``hashing`` and ``shuffle``."""

    input: InputStream
    setting: ComparisonSetting
    spans: Spans
    results: Sequence[Result]
    hashing: PartitioningImbalance
    shuffle: PartitioningImbalance

    def relative(self, result: Result) -> PartitioningImbalance:
        """Return a result's mean figures relative to those of hashing and shuffle on the same windows."""
        return result.mean_imbalance.relative_to(self.hashing, self.shuffle)

    def end_of(self, number: int) -> float:
        """Return the end of slide ``number``, in seconds since 1970 or in records."""
        end = (number + 1) * self.spans.slide
        return end / 1_000_000 if self.spans.timed else min(end, self.input.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the whole report, including its series over time, as JSON values; an undefined figure is None."""
        unit = 1_000_000 if self.spans.timed else 1
        return {
            "exact": EXACT,
            "measured": MEASURED,
            "input": asdict(self.input),
            "workers": self.setting.workers,
            "replicas": self.setting.replicas,
            "seed": self.setting.seed,
            **({} if self.setting.resize is None else {"resize": self.setting.resize}),
            "unit_of_time": "seconds" if self.spans.timed else "records",
            "window": self.spans.window / unit,
            "slide": self.spans.slide / unit,
            "algorithms": [self._result(result) for result in self.results],
        }

    def _result(self, result: Result) -> dict[str, Any]:
        return {
            "label": result.contender.label,
            "algorithm": result.contender.algorithm,
            "parameters": dict(result.contender.parameters),
            "records_per_second": result.records_per_second,
            "state_bytes": result.state_bytes,
            "peak_state_bytes": result.peak_state_bytes,
            "moved_keys": _moved(result.moved),
            **({} if result.moved_on_resize is None else {"moved_on_resize": _moved(result.moved_on_resize)}),
            "relative": _imbalance(self.relative(result)),
            "total": cost_figures(result.total),
            "mean_of_windows": result.means(),
            "max_of_windows": result.worst(),
            "windows": [
                {"end": self.end_of(window.number), **cost_figures(window.cost), "moved_keys": _moved(window.moved)}
                for window in result.windows
            ],
            "slides": [
                {"end": self.end_of(slide.number)} | {k: v for k, v in asdict(slide).items() if k != "number"}
                for slide in result.slides
            ],
        }


def cost_figures(cost: PlacementCost) -> dict[str, float]:
    """Return all figures, by name, of a placement whose number of distinct keys is known."""
    assert cost.partitioning_imbalance is not None
    assert cost.aggregation_cost_bounds is not None
    least, most = cost.aggregation_cost_bounds
    return {name: value for name, value in vars(cost).items() if name != "workers"} | {
        "aggregation_cost_least": least,
        "aggregation_cost_most": most,
        "aggregation_pays": int(cost.pays),
        "replication_factor": cost.partitioning_imbalance.ksr,
        **_imbalance(cost.partitioning_imbalance),
    }


def _imbalance(figures: PartitioningImbalance) -> dict[str, Any]:
    named = {**asdict(figures), "mpi": figures.mpi}
    return {name: None if math.isnan(value) else value for name, value in named.items()}


def _moved(moved: MovedKeys | None) -> dict[str, float] | None:
    return None if moved is None else {**asdict(moved), "share": moved.share}
