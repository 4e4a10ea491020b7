"""Report of one finished batch: Spark's progress and the notes of replicas and workers, in one record.

``run.loop`` gives it to ``steering`` and to the watchers of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

import numpy as np

from millrace_jobs.partitioners.placement_cost import PlacementCost, cost_of_counts
from millrace_jobs.partitioners.placement_sketch import PlacementSketch
from millrace_jobs.pipeline.arrivals import NO_LATENCIES, RecordLatencies
from millrace_jobs.pipeline.blocks import OBSERVED, STAGE
from millrace_jobs.plan.control import Pin
from millrace_jobs.selection.costs import CombineTask, JoinLoad
from millrace_jobs.sketches import key_profile
from millrace_jobs.sketches.key_profile import KeyProfile
from millrace_support.run_figures import Batch, BatchMeasures

STEPS = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
"""Steps of a batch that Spark measures, in order."""


@dataclass(frozen=True)
class BatchReport(BatchMeasures):
    """All that is known of one finished micro-batch.

    ``steps`` are parts of the processing time, by the names in STEPS.

    ``waiting_in`` is the backlog of each source when the batch was planned, and ``behind`` that of the partitions with
    the longest ones, by source and partition. ``taken`` is what the batch took from all sources, and ``taken_from``
    what it took from each source that moved. Sources count in their own units: Kafka in offsets, not all of which have
    a record, and file sources in files.

    ``route`` and ``combine`` have the seconds that each task of the stage took.

    ``worker_keys`` has the keys of each worker, as ``worker_rows`` has their records.
    ``distinct_keys`` and ``profile`` are None if no worker counted, and ``placement`` is None if nothing was routed.
    ``combined`` has one entry for each task that combined records: a worker, or a replica under ``native``.
    ``search_seconds`` is the time that tasks searched the state for what the watermark has passed, all together.
    ``state_rows`` is the number of rows in the state, by operators on tables as far as ``KeptRows`` knows it; None
    where Spark does not count them.
    ``state_updates`` is the number of groups whose state changed, and ``state_partitions`` the tasks that keep them.
    ``bytes`` is the size of the records in memory. ``routed`` of them passed the filter and were sent to workers, in
    blocks of ``routed_bytes``; workers sent ``partial_bytes`` of partial results to the merge.
    ``latencies`` are the times from the records' arrival to the commit, as far as their arrival is known, and
    ``checkpoint_seconds`` the time of the writes to Spark's logs and of the commit of a state partition, on average.
    ``incomplete`` records are in no result, because their key or event time is NULL: see ``pipeline.incomplete``.
    ``latest_event`` is the latest event time of the batch's records, in microseconds since 1970; ``earliest_event`` the
    earliest one, if it is before 1970.
    ``joins`` are the loads of the buckets of joins that had something to match.
    ``slice_rows`` has the records that each replica has read, and ``slice_seconds`` the time that it took to read and
    place them. ``sink_seconds`` is the time that the sink took once results were computed; see ``sinks.sink_clock``.
    ``states`` is the final state of each replica's partitioner, encoded as text; None if it is too large.
    """

    batch: int
    ended: datetime
    steps: Mapping[str, float]
    bytes: int
    taken: int
    pin: Pin | None
    worker_keys: tuple[int, ...]
    distinct_keys: int | None
    route: tuple[float, ...]
    combine: tuple[float, ...]
    merge_seconds: float
    search_seconds: float
    state_rows: int | None
    state_bytes: int
    latest_event: int | None
    earliest_event: int | None = None
    states: Mapping[int, str | None] = field(default_factory=dict)
    combined: tuple[CombineTask, ...] = ()
    profile: KeyProfile | None = None
    placement: PlacementSketch | None = None
    state_updates: int = 0
    state_partitions: int | None = None
    routed: int = 0
    routed_bytes: int = 0
    partial_bytes: int = 0
    waiting_in: Mapping[str, int] = field(default_factory=dict)
    taken_from: Mapping[str, int] = field(default_factory=dict)
    behind: Mapping[tuple[str, str], int] = field(default_factory=dict)
    joins: tuple[JoinLoad, ...] = ()
    latencies: RecordLatencies = NO_LATENCIES
    checkpoint_seconds: float = 0.0
    incomplete: int = 0
    slice_rows: tuple[int, ...] = ()
    slice_seconds: tuple[float, ...] = ()
    sink_seconds: float = 0.0

    @property
    def work(self) -> float:
        """Seconds in which tasks ran and results were written; other steps do not depend on the number of records."""
        return self.steps.get("addBatch", self.seconds)

    @property
    def hottest_key_share(self) -> float | None:
        """Share of the combined records that the most frequent key has; None if keys were not counted."""
        if self.profile is None or not self.profile.rows:
            return None
        keys = self.profile.sample if self.profile.complete else self.profile.heavy
        return min(float(keys.counts.max()) / self.profile.rows, 1.0) if len(keys) else None

    @property
    def largest_slice_share(self) -> float | None:
        """Share of the records that the largest slice has; None without records."""
        rows = sum(self.slice_rows)
        return max(self.slice_rows) / rows if rows else None

    def shown(self) -> Batch:
        """Return what users see of the batch."""
        cost, pin = placement_of(self), self.pin
        return Batch(
            **{each.name: getattr(self, each.name) for each in fields(BatchMeasures)},
            number=self.batch,
            algorithm=None if pin is None else str(pin.algorithm),
            workers=None if pin is None else pin.workers,
            replicas=None if pin is None else pin.replicas,
            imbalance=None if cost is None else cost.load_imbalance_ratio,
        )


class KeptRows:
    """The rows that operators on tables keep, by stage and bucket.

    A batch reports the buckets that it has processed, so a bucket is unknown until it was processed in this run.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], int] = {}

    def after(self, progress: Mapping[str, Any]) -> int | None:
        """Return the number of rows after a batch, from its progress; None if no operator on tables has reported."""
        self._rows |= {(stage, note["bucket"]): note["kept"] for stage, note in _stage_notes(progress)}
        return sum(self._rows.values()) if self._rows else None


def batch_report(
    progress: Mapping[str, Any], interval: float, kept: KeptRows | None = None, *, counted: bool = True
) -> BatchReport:
    """Build the report of one batch from its progress.

    Args:
        progress: Spark's StreamingQueryProgress as parsed JSON.
        interval: the batch interval in seconds.
        kept: the rows that operators on tables kept before the batch, which it updates; None if they are unknown.
        counted: whether Spark counts the rows of its state; otherwise it reports none.
    """
    kept_rows = (kept or KeptRows()).after(progress)
    notes = list(_notes(progress))
    workers = [worker for note in notes for worker in note.get("workers", ())]
    replicas = [replica for note in notes for replica in note.get("replicas", [note])]
    ends = [source["endOffset"] for source in progress["sources"] if isinstance(source.get("endOffset"), dict)]
    moved = [source["endOffset"] for source in progress["sources"] if _has_moved(source)]  # others have an older plan
    pin = next((Pin.from_json(end["pin"]) for end in (*moved, *ends) if "pin" in end), None)
    taken = _taken(progress)
    waiting = {end["source"]: end.get("waiting", 0) for end in ends}
    state = progress["stateOperators"]
    durations = progress["durationMs"]
    began, seconds = datetime.fromisoformat(progress["timestamp"]), durations.get("triggerExecution", 0) / 1000
    n = pin.workers if workers and pin is not None and pin.algorithm != "native" else 0  # 0 if nothing was routed
    profiles = [(note["worker"], key_profile.decode(note["profile"])) for note in workers]
    profile = key_profile.union([own for _, own in profiles]) if profiles else None
    return BatchReport(
        batch=progress["batchId"],
        began=began,
        ended=datetime.now(UTC),
        seconds=seconds,
        steps={step: durations[step] / 1000 for step in STEPS if step in durations},
        interval=interval,
        rows=sum(note.get("read", 0) for note in replicas),
        bytes=sum(note.get("bytes", 0) for note in replicas),
        rejected=sum(note.get("rejected", 0) for note in replicas if "read" in note),
        late=_late(replicas, progress),
        taken=sum(taken.values()),
        waiting=sum(waiting.values()),
        pin=pin,
        watermark=_time(progress.get("eventTime", {}).get("watermark")),
        worker_rows=_by_worker(workers, "rows", n),
        worker_keys=_by_worker(workers, "keys", n),
        distinct_keys=profile.distinct if profile is not None else None,
        route=tuple(note["seconds"] for note in replicas if "seconds" in note),
        combine=tuple(note["seconds"] for note in workers),
        merge_seconds=sum(operator["allUpdatesTimeMs"] + operator["commitTimeMs"] for operator in state) / 1000,
        search_seconds=sum(operator["allRemovalsTimeMs"] for operator in state) / 1000,
        state_rows=sum(operator["numRowsTotal"] for operator in state) if kept_rows is None and counted else kept_rows,
        state_bytes=sum(operator["memoryUsedBytes"] for operator in state),
        latest_event=max((note["latest"] for note in replicas if "latest" in note), default=None),
        earliest_event=min((note["earliest"] for note in replicas if "earliest" in note), default=None),
        combined=tuple(CombineTask(note["rows"], note["groups"], note["seconds"]) for note in workers),
        profile=profile,
        placement=PlacementSketch.of_workers(profiles, n) if n else None,
        state_updates=sum(operator["numRowsUpdated"] for operator in state),
        state_partitions=max((operator["numShufflePartitions"] for operator in state), default=None),
        routed=sum(note.get("routed", 0) for note in replicas if n),
        routed_bytes=sum(note.get("sent", 0) for note in replicas if n),
        partial_bytes=sum(note.get("sent", 0) for note in workers),
        waiting_in=waiting,
        taken_from=taken,
        behind={(end["source"], name): lag for end in ends for name, lag in end.get("behind", {}).items()},
        joins=tuple(_join_loads(progress)),
        latencies=RecordLatencies.of(replicas, began.timestamp() + seconds),
        checkpoint_seconds=_checkpoint_seconds(durations, state),
        incomplete=sum(note.get("incomplete", 0) for note in replicas),
        slice_rows=tuple(note["read"] for note in replicas if "reading" in note),
        slice_seconds=tuple(note["seconds"] + note["reading"] for note in replicas if "reading" in note),
        states={note["replica"]: note["state"] for note in replicas if "state" in note and "close" not in note},
    )


def _checkpoint_seconds(durations: Mapping[str, int], operators: Iterable[Mapping[str, Any]]) -> float:
    """Return the time of the writes to Spark's logs, and of the commit of a state partition, in seconds."""
    logs = durations.get("walCommit", 0) + durations.get("commitOffsets", 0)
    state = sum(each["commitTimeMs"] / max(each["numShufflePartitions"], 1) for each in operators)
    return float(logs + state) / 1000


def _late(replicas: list[dict[str, Any]], progress: Mapping[str, Any]) -> int:
    """Return the late records as replicas counted them, or as Spark and the operators on tables did.

    ``early`` records are those before 1970, where a watermark begins.
    """
    if replicas and all("late" in note for note in replicas):
        return int(sum(note["late"] for note in replicas))
    dropped = sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"] if replicas)
    early = sum(note.get("early", 0) for note in replicas)
    return int(dropped + early + sum(note["late"] for _, note in _stage_notes(progress)))


def _taken(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return what the batch took from each source; from one that it reads twice, what one of its readers took."""
    moved = [source["endOffset"] for source in progress["sources"] if _has_moved(source)]
    return {end["source"]: end.get("taken", 0) for end in moved}


def _has_moved(source: Mapping[str, Any]) -> bool:
    """Whether a source contributed to the batch.

    An unchanged offset belongs to an earlier batch. In the first batch, that of a source with nothing to offer is the
    one before its first record, which has no pin.
    """
    start, end = source.get("startOffset") or {}, source.get("endOffset")
    return isinstance(end, dict) and "pin" in end and start.get("position") != end.get("position")


def _notes(progress: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for name, observed in progress.get("observedMetrics", {}).items():
        if name.startswith(OBSERVED):
            for text in observed["notes"]:
                yield json.loads(text)


def _stage_notes(progress: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the notes of operators on tables, each with the name of its stage, in the order of processing."""
    for name, observed in progress.get("observedMetrics", {}).items():
        if name.startswith(STAGE):
            for text in observed["notes"]:
                yield name, json.loads(text)


def _join_loads(progress: Mapping[str, Any]) -> Iterator[JoinLoad]:
    """Yield what the buckets of joins had to do."""
    for stage, note in _stage_notes(progress):
        if "pairs" in note:
            task, bucket, rows, pairs = (note[name] for name in ("task", "bucket", "rows", "pairs"))
            yield JoinLoad(int(stage.removeprefix(STAGE)), task, bucket, rows, pairs, tuple(note["hot"]))


def _by_worker(notes: list[dict[str, Any]], field: str, n: int) -> tuple[int, ...]:
    counts = [0] * n
    for note in notes:
        if note["worker"] < n:
            counts[note["worker"]] += note[field]
    return tuple(counts)


def _time(text: str | None) -> datetime | None:
    """Return a watermark; None if it has not moved yet, and the last datetime if it is after the year 9999."""
    if text is None or text.startswith("1970-01-01T00:00:00.000"):
        return None
    return datetime.max.replace(tzinfo=UTC) if text.startswith("+") else datetime.fromisoformat(text)


def placement_of(report: BatchReport) -> PlacementCost | None:
    """Return the cost of a batch's placement, from the counts of its workers; None if no record was routed.

    The report's number of distinct keys is an estimate. The workers' counts bound it, since every key is on at least
    one worker: max ‖L_w‖ ≤ ‖S‖ ≤ Γ. An estimate outside these bounds is moved to the nearer one.
    """
    if not sum(report.worker_rows):
        return None
    rows, keys = np.array(report.worker_rows), np.array(report.worker_keys)
    distinct = report.distinct_keys
    if distinct is not None:
        distinct = min(max(distinct, int(keys.max())), int(keys.sum()))
    return cost_of_counts(rows, keys, distinct_keys=distinct)
