"""What a calibration run has measured: batches of a query under several plans, and what they ran on.

The jobs measure and the operator's model explains. Neither imports the other, so the model's package registers its
report here, as ``query_targets`` does for queries on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace_api.model.streamquery import StreamQuery


@dataclass(frozen=True)
class TimedTasks:
    """The tasks of a stage in a batch, and their seconds all together."""

    tasks: int
    seconds: float


@dataclass(frozen=True)
class PlanBatch:
    """A batch, the plan that it ran under, and what it reported; times are in seconds, and sizes in bytes.

    Attributes:
        number: number of the batch, in the order of the run.
        epoch: number of the design's point that it belongs to.
        cores, parallelism, replicas: its plan.
        rows, seconds: its records, and its processing time.
        keys, hottest_key, imbalance: of the records that were combined; None if nothing was routed.
        partials, updates: partial results, and results that changed.
        route, combine: the tasks of these stages; None if nothing was routed.
        merge_seconds: seconds of all merge tasks.
        routed, input_bytes, route_bytes, combine_bytes: records that were routed, and the size of what was read, sent
            to workers and sent to the merge.
        source_seconds, log_seconds, planning_seconds: steps of the driver.
        longest_slice, largest_slice: seconds of the slice that took longest, and the largest share of the records.
    """

    number: int
    epoch: int
    cores: int
    parallelism: int
    replicas: int
    rows: int
    seconds: float
    keys: float | None = None
    hottest_key: float | None = None
    imbalance: float | None = None
    partials: int = 0
    updates: int = 0
    route: TimedTasks | None = None
    combine: TimedTasks | None = None
    merge_seconds: float = 0.0
    routed: int = 0
    input_bytes: int = 0
    route_bytes: int = 0
    combine_bytes: int = 0
    source_seconds: float = 0.0
    log_seconds: float = 0.0
    planning_seconds: float = 0.0
    longest_slice: float = 0.0
    largest_slice: float | None = None


@dataclass(frozen=True)
class PlanMeasurements:
    """The batches of a calibration run.

    Attributes:
        query: the query of the user, whose bounds and interval the forecasts keep.
        cores: cores of the machine.
        state_partitions: merge tasks of the run.
        algorithm: partitioning algorithm of the batches.
        batches: those that count, the oldest first.
        warm_up: number of the batches before them.
        seconds: time of all batches.
        event_seconds: event time of a record on average, which says what period a batch covers; None without
            a watermark.
        notes: sentences on what limits the measurements.
    """

    query: StreamQuery
    cores: int
    state_partitions: int
    algorithm: str
    batches: Sequence[PlanBatch]
    warm_up: int
    seconds: float
    event_seconds: float | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ReportRequest:
    """What a report of measurements is to answer: ``rates`` in records per second, none for a choice of its own.

    ``recording`` is a file for the observations, for ``millrace model``; None for none.
    """

    rates: Sequence[float] = ()
    recording: str | None = None


CostReport = Callable[[PlanMeasurements, ReportRequest], tuple[dict[str, Any], list[str]]]
"""Returns the report of measurements: as a document of JSON, and as lines of text."""

cost_reports: dict[str, CostReport] = {}
"""The report of ``calibrate``, by the command's name; the operator's package registers it."""
