"""Measurements of a running job: an answer of the metrics, and what two of them show: batches, or why no batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from .shape import Shape


@dataclass(frozen=True)
class Answer:
    """The job's metrics at ``time``, in seconds of the metrics' own clock; None is a series without a value.

    Nothing is certain about the numbers: they may be old, NaN, negative or of another plan. Those that end in
    ``_total`` are counters since the start of the driver. The others describe its last batch.

    Attributes:
        batches_total, rows_total: finished batches, and the records they read.
        processing_seconds_total: processing time of these batches.
        input_bytes_total: size of the records they read.
        routed_total: records that were routed to workers, which may be fewer than were read.
        route_bytes_total, combine_bytes_total: size of what the tasks of these stages sent to the next one.
        route_tasks_total, combine_tasks_total: tasks of these stages.
        route_seconds_total, combine_seconds_total: seconds of these tasks.
        merge_seconds_total: seconds of all merge tasks.
        longest_slice_seconds_total: seconds of the route task that took longest in each batch, its reading included.
        latest_offset_seconds_total, get_batch_seconds_total: steps of batches in which the source finds their ranges.
        wal_commit_seconds_total, commit_seconds_total: steps in which Spark's logs are written to the checkpoint.
        planning_seconds_total: the step in which Spark plans batches.
        sink_seconds_total: seconds that the sink took once results were computed.
        partials_total: partial results, from combine to merge.
        updates_total: results that changed.
        busy_core_seconds_total: processor time of all executors.
        dedicated_busy_seconds_total: time that partitioner pods worked on batches, all together.
        dedicated_paused_seconds_total: time that they waited because the job had enough to read, all together.
        dedicated_lag_rows: records that wait in front of them; part of ``lag_rows``.
        interval_seconds: the batch interval.
        lag_rows: records that wait at the source.
        keys: distinct keys of a batch.
        imbalance: largest load of a combine task over the mean, minus 1.
        hottest_key, largest_slice: share of the records of a batch that one key has at most, and one slice.
        epoch: of the plan of the last batch.
        parallelism, replicas: of the last batch: those of its plan, or fewer while executors are missing.
        state_partitions: tasks of the merge.
        executors: executors that are ready at ``time``.
        progress_time: when a batch last ended, or a trigger last found nothing to do; seconds of the driver's clock.
    """

    time: float
    batches_total: float | None = None
    rows_total: float | None = None
    processing_seconds_total: float | None = None
    input_bytes_total: float | None = None
    routed_total: float | None = None
    route_bytes_total: float | None = None
    combine_bytes_total: float | None = None
    route_tasks_total: float | None = None
    route_seconds_total: float | None = None
    combine_tasks_total: float | None = None
    combine_seconds_total: float | None = None
    merge_seconds_total: float | None = None
    longest_slice_seconds_total: float | None = None
    latest_offset_seconds_total: float | None = None
    get_batch_seconds_total: float | None = None
    wal_commit_seconds_total: float | None = None
    commit_seconds_total: float | None = None
    planning_seconds_total: float | None = None
    sink_seconds_total: float | None = None
    partials_total: float | None = None
    updates_total: float | None = None
    busy_core_seconds_total: float | None = None
    dedicated_busy_seconds_total: float | None = None
    dedicated_paused_seconds_total: float | None = None
    dedicated_lag_rows: float | None = None
    interval_seconds: float | None = None
    lag_rows: float | None = None
    keys: float | None = None
    imbalance: float | None = None
    hottest_key: float | None = None
    largest_slice: float | None = None
    epoch: float | None = None
    parallelism: float | None = None
    replicas: float | None = None
    state_partitions: float | None = None
    executors: float | None = None
    progress_time: float | None = None

    def without(self, series: Iterable[str]) -> Answer:
        """Return the answer without values of some series."""
        absent: dict[str, Any] = dict.fromkeys(series)
        return replace(self, **absent)


SERIES = tuple(field.name for field in fields(Answer) if field.name != "time")
COUNTERS = tuple(name for name in SERIES if name.endswith("_total"))
"""Names of the series of an answer, and of those that are counters."""


OF_PODS = tuple(name for name in SERIES if name.startswith("dedicated_"))
"""Names of the series that partitioner pods report."""


@dataclass(frozen=True)
class Stage:
    """The tasks of a stage in a batch, and their seconds all together."""

    tasks: float
    seconds: float


@dataclass(frozen=True)
class Observation:
    """The ``batches`` that ended between two answers, all under one plan; numbers are means over a batch.

    A trigger that finds nothing to do runs no batch. It counts as a batch that has no records and takes no time.

    Attributes:
        since, until: when the two answers were true, seconds of the metrics' clock.
        epoch, plan: what the batches ran under; ``plan.executors`` are those that were ready.
        batches: number of batches, at least 1.
        interval: the batch interval, seconds.
        seconds: processing time of a batch; 0 if triggers found nothing to do.
        rows: records of a batch.
        arrival: records per second that reached the source, from those processed and the change of lag.
        lag: records waiting at ``until``.
        keys: distinct keys of a batch, None if unknown.
        partials: partial results of a batch, from combine to merge; None if unknown.
        updates: results of a batch that changed; None if unknown.
        imbalance: largest load of a combine task over the mean, minus 1; None if unknown.
        route, combine: the tasks of these stages; None if nothing was routed.
        merge_seconds: seconds of all merge tasks of a batch; None if unknown.
        dedicated_busy: share of time that partitioner pods were busy, 0 to 1; None without such pods. It is 1 if
            records wait in front of them and the job could read more, whatever the pods wait for.
        routed: records that were routed to workers; None if unknown, as are the following.
        input_bytes, route_bytes, combine_bytes: size of the records read, of the blocks that route sent, and of the
            partial results that combine sent.
        source_seconds, log_seconds, planning_seconds: time of a batch in which the source finds its range, Spark's logs
            are written, and Spark plans it.
        sink_seconds: time that the sink took once results were computed.
        longest_slice: seconds of the longest route task, its reading included.
        hottest_key, largest_slice: share of the records that one key has at most, and one slice.
    """

    since: float
    until: float
    epoch: int
    plan: Shape
    batches: int
    interval: float
    seconds: float
    rows: float
    arrival: float
    lag: float
    keys: float | None = None
    partials: float | None = None
    updates: float | None = None
    imbalance: float | None = None
    route: Stage | None = None
    combine: Stage | None = None
    merge_seconds: float | None = None
    dedicated_busy: float | None = None
    routed: float | None = None
    input_bytes: float | None = None
    route_bytes: float | None = None
    combine_bytes: float | None = None
    source_seconds: float | None = None
    log_seconds: float | None = None
    planning_seconds: float | None = None
    sink_seconds: float | None = None
    longest_slice: float | None = None
    hottest_key: float | None = None
    largest_slice: float | None = None

    @property
    def cycle(self) -> float:
        """Seconds from one batch to the next: the interval, or the processing time if that is longer."""
        return max(self.seconds, self.interval)

    @property
    def idle(self) -> bool:
        """Whether there was no batch, because triggers found nothing to do."""
        return self.seconds == 0

    @property
    def utilization(self) -> float:
        """Processing time over batch interval: W of paper 004, Algorithm 4."""
        return self.seconds / self.interval


class NoAnswerReason(StrEnum):
    """The reason why there is no observation; its value is what is reported."""

    ABSENT = "Absent"
    """There is no answer, or a required series has no value."""
    STALE = "Stale"
    """The answer, or the last good one before it, is older than the maximum age."""
    FROZEN = "Frozen"
    """Records wait and no batch ends for longer than one should take, or batches ended while metrics stood still."""
    NEGATIVE = "Negative"
    """A number is negative that must not be."""
    NOT_A_NUMBER = "NotANumber"
    """A number is NaN or infinite."""
    COUNTER_RESET = "CounterReset"
    """A counter went down."""
    OTHER_PLAN = "OtherPlan"
    """Batches ran under a plan other than the one decided last, or executors came or went meanwhile."""
    NO_BATCH = "NoBatch"
    """No whole batch has been observed since the answer before; nothing is wrong."""
    INCONSISTENT = "Inconsistent"
    """Numbers contradict each other."""


@dataclass(frozen=True)
class NoAnswer:
    """The result without an observation, for ``reason``; ``message`` is one sentence that quotes the value."""

    reason: NoAnswerReason
    message: str
