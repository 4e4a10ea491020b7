"""What is seen of a running job: answers of the metrics as they come, and what two of them tell about its batches."""

from __future__ import annotations

from dataclasses import dataclass

from .plans import Shape


@dataclass(frozen=True)
class Answer:
    """What the job's metrics said at ``time``, in seconds of the metrics' own clock; None is a series without value.

    Nothing is certain about the numbers: they may be old, NaN, negative or of another plan. Those that end in
    ``_total`` are counters from the start of the driver, the others tell about its last batch.

    ``batches_total`` and ``rows_total`` count finished batches and the records they read;
    ``processing_seconds_total`` their processing time. ``route`` and ``combine`` have tasks and their seconds,
    ``merge_seconds_total`` the seconds of all merge tasks. ``partials_total`` are partial results, from combine to
    merge. ``updates_total`` are results that changed. ``busy_core_seconds_total`` is processor time of all executors.
    ``lag_rows`` wait at the source. ``keys`` are the distinct keys of a batch. ``imbalance`` is the largest load of a
    combine task over the mean one, less 1. ``epoch``, ``parallelism`` and ``replicas`` are of the plan of the last
    batch. ``executors`` are ready at ``time``. ``dedicated_busy_seconds_total`` is processor time of partitioner pods.
    """

    time: float
    batches_total: float | None = None
    rows_total: float | None = None
    processing_seconds_total: float | None = None
    route_tasks_total: float | None = None
    route_seconds_total: float | None = None
    combine_tasks_total: float | None = None
    combine_seconds_total: float | None = None
    merge_seconds_total: float | None = None
    partials_total: float | None = None
    updates_total: float | None = None
    busy_core_seconds_total: float | None = None
    dedicated_busy_seconds_total: float | None = None
    interval_seconds: float | None = None
    lag_rows: float | None = None
    keys: float | None = None
    imbalance: float | None = None
    epoch: float | None = None
    parallelism: float | None = None
    replicas: float | None = None
    executors: float | None = None


@dataclass(frozen=True)
class Stage:
    """Tasks of a stage in a batch, and the seconds of all of them together."""

    tasks: float
    seconds: float


@dataclass(frozen=True)
class Observation:
    """What two answers tell about the ``batches`` that ended between them, all under one plan; means over a batch.

    Attributes:
        since, until: when the two answers were true, seconds of the metrics' clock.
        epoch, plan: what the batches ran under; ``plan.executors`` are those that were ready.
        batches: how many, at least 1.
        interval: the batch interval, seconds.
        seconds: processing time of a batch.
        rows: records of a batch.
        arrival: records per second that came to the source, from those processed and the change of lag.
        lag: records waiting at ``until``.
        keys: distinct keys of a batch, None if unknown.
        partials: partial results of a batch, from combine to merge; None if unknown.
        updates: results of a batch that changed; None if unknown.
        imbalance: of the combine tasks, the largest load over the mean less 1; None if unknown.
        route, combine: their tasks, None where nothing was routed.
        merge_seconds: of all merge tasks of a batch; None if unknown.
        dedicated_busy: share of time that partitioner pods were busy, 0 to 1; None without such pods.
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

    @property
    def utilization(self) -> float:
        """W of paper 004, Algorithm 4: processing time over batch interval."""
        return self.seconds / self.interval
