"""What the page remembers of a run: figures of the last batches, and its last messages, in bounded memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock

import numpy as np

from millrace_jobs.pipeline.arrivals import RecordLatencies
from millrace_jobs.pipeline.progress import BatchReport, placement_of
from millrace_jobs.pipeline.watermark_delay import WatermarkDelay
from millrace_jobs.selection.switch import Switch

MAX_BATCHES = 240
"""Batches that are remembered."""

MAX_LOADS = 32
"""Maximum number of loads of a batch; with more workers, each is the largest of some neighbors."""

MAX_MESSAGES, MAX_TEXT = 20, 2000
"""Messages that are remembered, and characters of each."""


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """The figures of one finished batch, as charts and findings use them.

    ``ended`` is in seconds since 1970. ``rate`` is the records read per second since the end of the batch before it.
    ``taken`` and ``waiting`` are in the sources' own units, such as files.
    ``median`` and ``p95`` are latencies of its records in seconds; None if their arrival is unknown. ``loads`` are the
    records of each worker, or the rows and matches of each task of a join; empty if nothing was placed. With more than
    ``MAX_LOADS`` of them, each load is the largest of ``load_size`` neighbors. ``mean_load`` is the mean of all, and
    ``imbalance`` the largest over the mean, less 1; None without loads.
    """

    batch: int
    ended: float
    seconds: float
    interval: float
    rows: int
    rate: float
    taken: int
    waiting: int
    median: float | None
    p95: float | None
    late: int
    rejected: int
    incomplete: int
    loads: tuple[int, ...]
    load_size: int
    mean_load: float
    imbalance: float | None
    algorithm: str

    @property
    def utilization(self) -> float:
        """Processing time over batch interval: W."""
        return self.seconds / self.interval


@dataclass(frozen=True, slots=True)
class RunMessage:
    """A message that the run has shown, and when."""

    time: datetime
    text: str


@dataclass(frozen=True)
class RunSnapshot:
    """A run as it is known at one moment.

    ``began`` and ``last_sign`` are in seconds since 1970; the latter is the time of the last sign of life: a finished
    batch, or a trigger that found nothing to do, in which case the run ``is_idle``. ``newest`` is the report of the
    newest batch, and ``watermark_delay`` how far the watermark was behind the newest event time then, in seconds.
    ``late``, ``rejected`` and ``incomplete`` are counts since the start. ``failure`` is why the run has failed.
    """

    began: float
    last_sign: float
    is_idle: bool
    batches: tuple[BatchFigures, ...]
    newest: BatchReport | None
    watermark_delay: float | None
    rows: int
    late: int
    rejected: int
    incomplete: int
    messages: tuple[RunMessage, ...]
    switch: Switch | None
    failure: BaseException | None


class RunHistory:
    """The history of a run, written by its loop and read by the threads of the HTTP server.

    Args:
        clock: returns the seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = Lock()
        self._began = self._last_sign = clock()
        self._is_idle = False
        self._batches: deque[BatchFigures] = deque(maxlen=MAX_BATCHES)
        self._messages: deque[RunMessage] = deque(maxlen=MAX_MESSAGES)
        self._newest: BatchReport | None = None
        self._delay = WatermarkDelay()
        self._delay_seconds: float | None = None
        self._rows = self._late = self._rejected = self._incomplete = 0
        self._switch: Switch | None = None
        self._failure: BaseException | None = None

    def batch(self, report: BatchReport) -> None:
        """Add a finished batch."""
        ended = report.began.timestamp() + report.seconds  # report.ended is when its event was handled
        before = self._batches[-1].ended if self._batches else ended - report.seconds
        figures = _figures(report, ended, max(ended - before, report.seconds, 1e-3))
        delay = self._delay.after(report)
        with self._lock:
            self._batches.append(figures)
            self._newest = report
            self._delay_seconds = delay
            self._rows += report.rows
            self._late += report.late
            self._rejected += report.rejected
            self._incomplete += report.incomplete
            self._last_sign, self._is_idle = self._clock(), False

    def idle(self) -> None:
        """Note that a trigger found nothing to do."""
        with self._lock:
            self._last_sign, self._is_idle = self._clock(), True

    def message(self, text: str) -> None:
        """Add a message."""
        with self._lock:
            self._messages.append(RunMessage(datetime.now(UTC), text[:MAX_TEXT]))

    def switched(self, switch: Switch) -> None:
        """Note the newest switch of ``auto``."""
        with self._lock:
            self._switch = switch
        self.message(str(switch))

    def failed(self, failure: BaseException) -> None:
        """Note why the run has failed."""
        with self._lock:
            self._failure = failure

    def snapshot(self) -> RunSnapshot:
        """Return the run as it is known now."""
        with self._lock:
            return RunSnapshot(
                began=self._began,
                last_sign=self._last_sign,
                is_idle=self._is_idle,
                batches=tuple(self._batches),
                newest=self._newest,
                watermark_delay=self._delay_seconds,
                rows=self._rows,
                late=self._late,
                rejected=self._rejected,
                incomplete=self._incomplete,
                messages=tuple(self._messages),
                switch=self._switch,
                failure=self._failure,
            )


def _figures(report: BatchReport, ended: float, since: float) -> BatchFigures:
    loads = report.worker_rows or _join_loads(report)
    median, p95 = (_quantile(report.latencies, share) for share in (0.5, 0.95))
    size = -(-len(loads) // MAX_LOADS) or 1
    cost = placement_of(report)
    imbalance = cost.load_imbalance_ratio if cost is not None else _imbalance(loads)
    return BatchFigures(
        batch=report.batch,
        ended=ended,
        seconds=report.seconds,
        interval=report.interval,
        rows=report.rows,
        rate=report.rows / since,
        taken=report.taken,
        waiting=report.waiting,
        median=median,
        p95=p95,
        late=report.late,
        rejected=report.rejected,
        incomplete=report.incomplete,
        loads=tuple(max(loads[first : first + size]) for first in range(0, len(loads), size)),
        load_size=size,
        mean_load=sum(loads) / max(len(loads), 1),
        imbalance=imbalance,
        algorithm="-" if report.pin is None else report.pin.algorithm,
    )


def _join_loads(report: BatchReport) -> tuple[int, ...]:
    """Return the rows and matches of each task of joins, over all joins of the query."""
    loads = [0] * (1 + max((load.task for load in report.joins), default=-1))
    for load in report.joins:
        loads[load.task] += load.rows + load.pairs
    return tuple(loads)


def _imbalance(loads: tuple[int, ...]) -> float | None:
    return max(loads) * len(loads) / sum(loads) - 1 if sum(loads) else None


def _quantile(latencies: RecordLatencies, share: float) -> float | None:
    """Return the latency that this share of the records does not exceed; None if no arrival is known."""
    if not latencies.records.sum():
        return None
    order = np.argsort(latencies.seconds)
    within = np.cumsum(latencies.records[order])
    return float(latencies.seconds[order][np.searchsorted(within, share * within[-1])])
