"""What a run reports: its batches and, at the end, its totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from millrace_jobs.display.display import Summary
    from millrace_jobs.pipeline.progress import BatchReport

Status = Literal["starting", "running", "finished", "drained", "failed"]
"""``finished``: the input ended. ``drained``: the run was stopped, after its running batch."""


@dataclass(frozen=True)
class Batch:
    """One finished micro-batch of a run."""

    number: int
    began: datetime
    seconds: float
    """Processing time."""
    interval: float
    """Batch interval, in seconds."""
    rows: int
    """Records read."""
    waiting: int
    """Backlog when the batch was planned, in the source's units: offsets of Kafka, files of a files source."""
    late: int
    rejected: int
    watermark: datetime | None
    algorithm: str | None
    """Partitioner; ``native`` for Spark's own plan, None if it is not known."""
    workers: int | None
    replicas: int | None
    imbalance: float | None
    """Largest load of a worker less the average, as a fraction of the average; None if nothing was routed."""
    worker_rows: tuple[int, ...]
    """Records of each worker; empty if nothing was routed."""

    @property
    def utilization(self) -> float:
        """Processing time over batch interval, W: above 1, the query falls behind."""
        return self.seconds / self.interval

    @property
    def rows_per_second(self) -> float:
        """Records read per second of processing time."""
        return self.rows / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the batch as JSON values."""
        watermark = None if self.watermark is None else self.watermark.isoformat()
        return asdict(self) | {"began": self.began.isoformat(), "watermark": watermark}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Batch:
        """Return the batch that ``to_json`` wrote."""
        watermark = values["watermark"]
        times = {
            "began": datetime.fromisoformat(values["began"]),
            "watermark": None if watermark is None else datetime.fromisoformat(watermark),
        }
        return cls(**{**values, **times, "worker_rows": tuple(values["worker_rows"])})


@dataclass(frozen=True)
class RunSummary:
    """The totals of a run.

    ``mean_utilization`` and ``p95_utilization`` are the mean and the 95th percentile of W; None without a batch.
    ``output`` is the place of the results.
    """

    outcome: Status
    batches: int
    rows: int
    results: int
    rejected: int
    late: int
    seconds: float
    mean_utilization: float | None
    p95_utilization: float | None
    plan_changes: int
    output: str


def batch_of(report: BatchReport) -> Batch:
    """Return what a report of the jobs says to users."""
    from millrace_jobs.pipeline.progress import placement_of

    cost, pin = placement_of(report), report.pin
    return Batch(
        number=report.batch,
        began=report.began,
        seconds=report.seconds,
        interval=report.interval,
        rows=report.rows,
        waiting=report.waiting,
        late=report.late,
        rejected=report.rejected,
        watermark=report.watermark,
        algorithm=None if pin is None else str(pin.algorithm),
        workers=None if pin is None else pin.workers,
        replicas=None if pin is None else pin.replicas,
        imbalance=None if cost is None else cost.load_imbalance_ratio,
        worker_rows=tuple(map(int, report.worker_rows)),
    )


def summary_of(summary: Summary) -> RunSummary:
    """Return the totals that the jobs report."""
    return RunSummary(**{field.name: getattr(summary, field.name) for field in fields(RunSummary)})
