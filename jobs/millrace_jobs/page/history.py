"""What the page remembers of a run: figures of the last batches, and its last messages, in bounded memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock

import numpy as np

from millrace_api.errors import MillraceError
from millrace_jobs.pipeline.arrivals import RecordLatencies
from millrace_jobs.pipeline.progress import BatchReport, placement_of
from millrace_jobs.pipeline.watermark_delay import WatermarkDelay
from millrace_jobs.selection.switch import Candidate, Switch
from millrace_jobs.sketches.key_profile import KeyProfile
from millrace_support.run_record import (
    MAX_MESSAGE_CHARACTERS,
    AlgorithmPrediction,
    BatchDetails,
    BatchFigures,
    BatchLine,
    BatchPlan,
    DecisionLine,
    EndLine,
    FailureLine,
    HottestKeys,
    IdleLine,
    MessageLine,
    PredictionsLine,
    RecordLine,
    RunLine,
    StartedLine,
    StepLine,
)

MAX_BATCHES = 240
"""Batches that are remembered."""

MAX_LOADS = 32
"""Maximum number of loads of a batch; with more workers, each is the largest of some neighbors."""

MAX_MESSAGES = 20
"""Messages that are remembered."""

MAX_HOT_KEYS, MAX_BEHIND = 8, 8
"""Hot keys of a batch, and partitions of each source with a backlog, that are remembered."""


@dataclass(frozen=True, slots=True)
class RunMessage:
    """A message that the run has shown, and when."""

    time: datetime
    text: str


@dataclass(frozen=True)
class RunFailure:
    """Why a run has failed, and what to do."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class RunSnapshot:
    """A run as it is known at one moment.

    ``began`` and ``last_sign`` are in seconds since 1970; the latter is the time of the last sign of life: a finished
    batch, or a trigger that found nothing to do, in which case the run ``is_idle``. ``newest`` is what is known of the
    newest batch beside its figures. ``late``, ``rejected`` and ``incomplete`` are counts since the start.
    ``step`` is what a start is doing, and empty once batches follow. ``chooses``, ``plan_origin`` and ``output`` are
    those of a ``StartedLine``. ``predictions`` are those of ``auto``, and ``switch`` its newest switch. ``failing`` is
    why the run was started again, until it computes, ``failure`` why it has failed, and ``outcome`` how it has ended.
    """

    began: float
    last_sign: float
    is_idle: bool
    batches: tuple[BatchFigures, ...]
    newest: BatchDetails | None
    rows: int
    late: int
    rejected: int
    incomplete: int
    messages: tuple[RunMessage, ...]
    step: str
    chooses: bool
    plan_origin: str
    output: str
    predictions: tuple[AlgorithmPrediction, ...]
    switch: DecisionLine | None
    failing: RunFailure | None
    failure: RunFailure | None
    outcome: str


class RunHistory:
    """The history of a run: written by its loop, or from a record, and read by the threads of the HTTP server.

    Each change is an event that ``add`` takes in; the record of a run has the same events.

    Args:
        clock: returns the seconds since 1970.
        record: is called with each event, in their order.
        max_messages: messages that are remembered.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        record: Callable[[RecordLine], None] = lambda _: None,
        max_messages: int = MAX_MESSAGES,
    ) -> None:
        self._clock, self._record = clock, record
        self._lock = Lock()
        self._began = self._last_sign = clock()
        self._is_idle = False
        self._batches: deque[BatchFigures] = deque(maxlen=MAX_BATCHES)
        self._messages: deque[RunMessage] = deque(maxlen=max_messages)
        self._newest: BatchDetails | None = None
        self._delay = WatermarkDelay()
        self._rows = self._late = self._rejected = self._incomplete = 0
        self._predictions: tuple[AlgorithmPrediction, ...] = ()
        self._switch: DecisionLine | None = None
        self._failing: RunFailure | None = None
        self._failure: RunFailure | None = None
        self._outcome = self._step = ""
        self._started = StartedLine(self._began)

    def add(self, line: RecordLine) -> None:
        """Take an event in."""
        with self._lock:
            self._record(line)
            match line:
                case RunLine():
                    if not self._batches:
                        self._began = line.time
                    self._last_sign, self._is_idle = line.time, False
                    self._failing = self._failure = None
                    self._outcome = ""
                case StepLine():
                    self._last_sign, self._step = line.time, line.text
                case StartedLine():
                    self._last_sign, self._step, self._started = line.time, "", line
                case BatchLine():
                    self._add_batch(line)
                case IdleLine():
                    self._last_sign, self._is_idle, self._failing = line.time, True, None
                case MessageLine():
                    self._messages.append(RunMessage(datetime.fromtimestamp(line.time, UTC), line.text))
                case DecisionLine():
                    self._switch = line if line.by == "auto" else self._switch
                    self._messages.append(RunMessage(datetime.fromtimestamp(line.time, UTC), line.text))
                case PredictionsLine():
                    self._predictions = line.predictions
                case FailureLine():
                    failure = RunFailure(line.reason, line.remedy)
                    self._failing, self._failure = (None, failure) if line.is_final else (failure, self._failure)
                case EndLine():
                    self._last_sign, self._outcome, self._step = line.time, line.outcome, ""

    def _add_batch(self, line: BatchLine) -> None:
        figures = line.figures
        self._batches.append(figures)
        self._newest = line.details
        self._rows += figures.rows
        self._late += figures.late
        self._rejected += figures.rejected
        self._incomplete += figures.incomplete
        self._last_sign, self._is_idle, self._failing = line.time, False, None

    def step(self, text: str) -> None:
        """Note what the start of the run does from now on."""
        self.add(StepLine(self._clock(), text))

    def started(self, *, chooses: bool, plan_origin: str, output: str) -> None:
        """Note that batches follow, with what is known of them."""
        self.add(StartedLine(self._clock(), chooses, plan_origin, output))

    def batch(self, report: BatchReport) -> None:
        """Add a finished batch."""
        ended = report.began.timestamp() + report.seconds  # report.ended is when its event was handled
        before = self._batches[-1].ended if self._batches else ended - report.seconds
        figures = _figures(report, ended, max(ended - before, report.seconds, 1e-3))
        self.add(BatchLine(self._clock(), figures, _details(report, self._delay.after(report))))

    def idle(self) -> None:
        """Note that a trigger found nothing to do."""
        self.add(IdleLine(self._clock()))

    def message(self, text: str) -> None:
        """Add a message."""
        self.add(MessageLine(self._clock(), text[:MAX_MESSAGE_CHARACTERS]))

    def predicted(self, candidates: Mapping[str, Candidate]) -> None:
        """Note what ``auto`` predicts."""
        found = tuple(
            AlgorithmPrediction(
                each.algorithm, each.time.total, each.imbalance, each.aggregation_cost, each.bearer, each.parts
            )
            for each in candidates.values()
        )
        if found != self._predictions:
            self.add(PredictionsLine(self._clock(), found))

    def switched(self, switch: Switch) -> None:
        """Note the newest switch of ``auto``."""
        self.add(DecisionLine(self._clock(), switch.batch, str(switch), "auto"))

    def failing(self, failure: BaseException) -> None:
        """Note why the run is started again."""
        self.add(FailureLine(self._clock(), *problem_of(failure), is_final=False))

    def failed(self, failure: BaseException) -> None:
        """Note why the run has failed."""
        self.add(FailureLine(self._clock(), *problem_of(failure), is_final=True))

    def ended(self, outcome: str) -> None:
        """Note how the run has ended."""
        self.add(EndLine(self._clock(), outcome))

    def snapshot(self) -> RunSnapshot:
        """Return the run as it is known now."""
        with self._lock:
            return RunSnapshot(
                began=self._began,
                last_sign=self._last_sign,
                is_idle=self._is_idle,
                batches=tuple(self._batches),
                newest=self._newest,
                rows=self._rows,
                late=self._late,
                rejected=self._rejected,
                incomplete=self._incomplete,
                messages=tuple(self._messages),
                step=self._step,
                chooses=self._started.chooses,
                plan_origin=self._started.plan_origin,
                output=self._started.output,
                predictions=self._predictions,
                switch=self._switch,
                failing=self._failing,
                failure=self._failure,
                outcome=self._outcome,
            )


def problem_of(error: BaseException) -> tuple[str, str]:
    """Return the message and the hint of an error."""
    if isinstance(error, MillraceError) and error.problems:
        first = error.problems[0]
        return (f"{first.field}: {first.message}" if first.field else first.message), first.hint
    return str(error) or type(error).__name__, "run with --debug to see where"


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


def _details(report: BatchReport, delay: float | None) -> BatchDetails:
    pin = report.pin
    pairs = sum(load.pairs for load in report.joins)
    return BatchDetails(
        batch=report.batch,
        seconds=report.seconds,
        interval=report.interval,
        work=report.work,
        steps=dict(report.steps),
        plan=None if pin is None else BatchPlan(pin.epoch, pin.algorithm, pin.workers, pin.replicas),
        is_join=not report.worker_rows and bool(report.joins),
        hot_records=_hot_records(report.profile),
        hot_matches=HottestKeys(_hottest(count for load in report.joins for count in load.hot), pairs)
        if pairs
        else None,
        state_rows=report.state_rows,
        state_bytes=report.state_bytes,
        state_partitions=report.state_partitions,
        watermark=report.watermark,
        watermark_delay=delay,
        taken_from=dict(report.taken_from),
        waiting_in=dict(report.waiting_in),
        behind=_behind(report.behind),
        task_seconds=_task_seconds(report),
    )


def _task_seconds(report: BatchReport) -> float | None:
    if not report.route and not report.combine:
        return None
    return sum(report.route) + sum(report.combine) + report.merge_seconds + report.search_seconds


def _hot_records(profile: KeyProfile | None) -> HottestKeys | None:
    if profile is None or not profile.rows:
        return None
    keys = profile.sample if profile.complete else profile.heavy
    return HottestKeys(_hottest(keys.counts.tolist()), profile.rows, profile.distinct, profile.complete)


def _hottest(counts: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(counts, reverse=True)[:MAX_HOT_KEYS])


def _behind(lags: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """Return the partitions of each source with the longest backlogs."""
    found: dict[str, dict[str, int]] = {}
    for (source, partition), lag in sorted(lags.items(), key=lambda each: -each[1]):
        if lag and len(of_source := found.setdefault(source, {})) < MAX_BEHIND:
            of_source[partition] = lag
    return found


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
