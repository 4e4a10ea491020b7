"""The figures of a run that its users see: of each batch, and of the whole. Imports the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

Outcome: TypeAlias = Literal["finished", "drained", "failed"]
"""``finished``: the input ended. ``drained``: the run was stopped, after its running batch."""

Status: TypeAlias = Literal["starting", "running", "finished", "drained", "failed"]
"""The outcome of a run, or what it does until then."""


@dataclass(frozen=True, kw_only=True)
class BatchMeasures:
    """What every report of a finished micro-batch says.

    ``began`` is when Spark triggered it. ``seconds`` is its processing time and ``interval`` the batch interval, both
    in seconds. ``rows`` is the number of records read, and ``results`` how many rows went to the sink; None if that is
    not known. ``waiting`` is the backlog of all sources when the batch was planned, in their units: offsets of Kafka,
    files of a files source. ``worker_rows`` has the records of each worker, and is empty if nothing was routed.
    """

    began: datetime
    seconds: float
    interval: float
    rows: int
    waiting: int
    late: int
    rejected: int
    watermark: datetime | None
    worker_rows: tuple[int, ...]
    results: int | None = None

    @property
    def utilization(self) -> float:
        """Processing time over batch interval, W of the papers: above 1, the query falls behind."""
        return self.seconds / self.interval

    @property
    def rows_per_second(self) -> float:
        """Records read per second of processing time."""
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class Batch(BatchMeasures):
    """One finished micro-batch of a run.

    ``algorithm`` is the partitioner, ``native`` for Spark's own plan, and None if it is not known, as are ``workers``
    and ``replicas``. ``imbalance`` is the largest load of a worker less the average, as a fraction of the average; None
    if nothing was routed.
    """

    number: int
    algorithm: str | None
    workers: int | None
    replicas: int | None
    imbalance: float | None

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

    ``start_seconds`` is how long its start took, and ``seconds`` how long it ran from then on. ``mean_utilization`` and
    ``p95_utilization`` are the mean and the 95th percentile of W, processing time over batch interval; None without a
    batch. ``output`` is the place of the results.
    """

    outcome: Outcome
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
    start_seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        """The records read per second of the run, without its start."""
        return self.rows / self.seconds if self.seconds else 0.0
