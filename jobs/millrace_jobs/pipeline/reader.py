"""A Millrace source as a Spark streaming data source, in one of three roles.

``rows`` yields the records themselves, for Spark to evaluate. ``blocks`` projects and routes them in the source task,
so that records never become rows of the JVM. ``partials`` also combines them there, for a plan without routing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from millrace_jobs.pipeline import blocks
from millrace_jobs.pipeline.arrivals import Arrivals
from millrace_jobs.pipeline.combine import Combiner
from millrace_jobs.pipeline.incomplete import incomplete
from millrace_jobs.pipeline.route import CONTROL, Router, alone
from millrace_jobs.places import Place
from millrace_jobs.plan.control import Control, Pin, read_control
from millrace_jobs.plan.log_entries import LogEntries
from millrace_jobs.plan.policies import LearnedStates, state_of, state_text
from millrace_jobs.sources.base import PlacedSlice, Position, Rejected, Slice, Source
from millrace_jobs.windows import TimeSpan

Role = Literal["rows", "blocks", "partials"]

FOLLOWED = "followed"
"""Entry of an offset with the number that its batch has in the run that is followed."""


@dataclass(frozen=True)
class SourceTask:
    """Work that the tasks of a source do on its records; ``time_column`` is the column of its watermark.

    ``own_watermark``: records are late by the watermark of their own batch, as in the operators on tables, instead of
    by that of the batch before, as in Spark's own. ``since_epoch``: records until the beginning of 1970 are
    late. ``required``: columns in which a record without a value is in no result; see ``incomplete``.
    ``slice_records``: a batch has fewer slices than its plan has replicas if they would have fewer records than this.
    """

    role: Role
    time_column: str | None
    router: Router | None = None
    combiner: Combiner | None = None
    own_watermark: bool = False
    since_epoch: bool = False
    required: tuple[str, ...] = ()
    slice_records: int = 0


@dataclass(frozen=True)
class ReaderConfig:
    """Everything a reader needs, sent to Spark's source process and to the tasks.

    ``followed`` is Spark's part of the checkpoint of another run of the query, whose batches this run repeats, with
    their offsets. Its batch ``n`` is this run's ``n + 1``. ``control`` then has the last batch to repeat so far.
    """

    name: str
    source: Source
    task: SourceTask
    spark_schema: StructType
    control: Path
    checkpoint: Place
    policies: Place
    everything: bool
    followed: Place | None = None


class MillraceDataSource(DataSource):
    """Base class of the data sources that ``data_source`` makes; ``config`` is set on the subclass."""

    config: ReaderConfig

    def schema(self) -> StructType:
        """Return the schema of the rows that the role yields."""
        return self.config.spark_schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the stream reader of one query."""
        return MillraceStreamReader(self.config)


def data_source(config: ReaderConfig) -> type[DataSource]:
    """Return a new data source class for one source of one query; Spark finds it by its name."""
    format_name = f"millrace_{config.name}"
    members = {"config": config, "name": classmethod(lambda cls: format_name)}
    return type("QuerySource", (MillraceDataSource,), members)


@dataclass
class Replica(InputPartition):
    """One input partition of a batch: a slice, or the closing of the input, and the pinned plan.

    ``state`` is the initial state of the partitioner, encoded as text; None if it starts without one.
    """

    index: int
    piece: Slice | None
    pin: Pin
    batch: int
    watermark: int
    state: str | None = None
    closing_time: int | None = None


class MillraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's stream reader for one source of one query.

    Offsets are ``{"source": name, "position": ..., "pin": ..., "taken": ..., "waiting": ...}``. ``taken`` counts the
    records since the previous position, and ``waiting`` those beyond this one; a source may count other units instead.
    ``behind`` has those of the partitions where the most wait.

    ``tables`` has the contents of static tables that the batch joins, if there are such tables.

    The offset that ends a bounded input also has ``"closed"``, the event time that closed its windows. A different
    time makes another closing batch, in case the windows stayed open because a process died.
    """

    def __init__(self, config: ReaderConfig) -> None:
        self._config = config
        self._log = LogEntries(config.checkpoint)
        self._followed = None if config.followed is None else LogEntries(config.followed)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset before the first record."""
        return {"source": self._config.name, "position": dict(self._config.source.initial())}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return no limit, because the source limits its batches itself."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: with ``everything``, a source does not go beyond what it found first."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch with the plan it is pinned to; ``start`` if there is nothing to do.

        Spark writes this offset to its log before the batch's first task, and reads it back after a crash.
        """
        if self._followed is not None:
            return self._followed_offset(self._followed) or start
        control = read_control(self._config.control)
        if control.draining or self._config.name in control.held:
            return start
        if control.closing_time is not None:  # records after the end of the input wait for the next run
            done = start.get("closed") == control.closing_time
            closing = {"pin": control.pin.to_json(), "closed": control.closing_time}
            return start if done else start | closing | _contents(control)
        source = self._config.source
        most = control.most.get(self._config.name)
        end = dict(source.latest(start["position"], everything=self._config.everything, most=most))
        if end == start["position"]:
            return start
        waiting = source.lag(end)
        taken = source.lag(start["position"]) - waiting
        placed = source.placed_under(end)
        # records that came after a new plan was told run under it
        control = read_control(self._config.control)
        pin = Pin.from_json(placed) if placed is not None else control.pin
        offset = start | {"position": end, "pin": pin.to_json(), "taken": taken, "waiting": waiting}
        offset |= _contents(control)
        offset["behind"] = dict(source.longest_lags(end))
        offset.pop("closed", None)
        offset.pop(FOLLOWED, None)
        return offset

    def _followed_offset(self, log: LogEntries) -> dict[str, Any] | None:
        """Return the offset of the next batch to repeat; None if it is not to be repeated yet."""
        batch = self._log.newest("commits") or 0
        if batch > int(self._config.control.read_text(encoding="utf-8")):
            return None
        return followed_offset(log.text("offsets", batch), self._config.name, batch)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Replica]:
        """Return the replicas of a batch, which its two offsets determine."""
        closing = end.get("closed") not in (None, start.get("closed"))
        if start["position"] == end["position"] and not closing:
            return []
        pin = Pin.from_json(end["pin"])
        batch = self._log.newest("offsets") or 0
        watermark = self._watermark(batch if self._config.task.own_watermark else batch - 1)
        pieces: list[Slice | None] = []
        if start["position"] != end["position"]:
            pieces.extend(self._slices(start["position"], end["position"], pin.replicas))
        saved = LearnedStates(self._config.policies).beginnings(pin) if pieces else []
        states = [state_text(state) for state in saved] or [None] * len(pieces)
        replicas = [Replica(i, piece, pin, batch, watermark, states[i]) for i, piece in enumerate(pieces)]
        if closing:
            replicas.append(Replica(len(replicas), None, pin, batch, watermark, closing_time=end["closed"]))
        return replicas

    def _slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        source, least = self._config.source, self._config.task.slice_records
        records = source.most_records(start, end) if least else None
        if records is not None:
            replicas = max(1, min(replicas, records // least))
        return source.slices(start, end, replicas)

    def _watermark(self, batch: int) -> int:
        """Return the watermark that a batch runs under, in microseconds; 0 without one."""
        try:
            metadata = json.loads(self._log.text("offsets", batch).splitlines()[1])
        except FileNotFoundError:
            return 0
        return int(metadata["batchWatermarkMs"]) * 1000

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one slice in the form of the role."""
        assert isinstance(partition, Replica)
        task = self._config.task
        records = _Records(self._config.source, partition)
        if task.role == "rows":
            yield from _rows(records, self._config.source.schema, task)
            return
        assert task.router is not None
        if task.role == "blocks":
            yield from _routed(records, task.router, partition.pin, partition.state)
            return
        assert task.combiner is not None
        if isinstance(partition.piece, PlacedSlice):
            blocks_of_worker = _placed(self._config.source, partition, partition.piece, task)
            yield from task.combiner(blocks_of_worker, worker=partition.piece.worker)
            return
        yield from task.combiner(_routed(records, task.router, alone(partition.pin)), worker=partition.index)


def followed_offset(entry: str, source: str, batch: int) -> dict[str, Any] | None:
    """Return the offset of a source in a batch's entry of Spark's log, as the batch is repeated; None without one.

    It differs from the one before even if the source had no record: Spark decides by that whether there is a batch.
    """
    for line in entry.splitlines()[2:]:
        offset: dict[str, Any] = {} if line == "-" else json.loads(line)
        if offset.get("source") == source:
            return offset | {FOLLOWED: batch}
    return None


def _contents(control: Control) -> dict[str, Any]:
    """Return the contents of static tables as a part of an offset, which queries without such tables do not have."""
    return {"tables": dict(control.tables)} if control.tables else {}


class _Records:
    """Batches of one slice, with a count of the rejected records."""

    def __init__(self, source: Source, replica: Replica) -> None:
        self._source = source
        self.replica = replica
        self.rejected = 0
        self._arrivals = Arrivals()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self.replica.piece is None:
            return
        label = f"{self.replica.batch:010d}-{self.replica.index:04d}"
        for item in self._source.read(self.replica.piece, label, self._arrivals.add):
            if isinstance(item, Rejected):
                self.rejected += item.records
            else:
                yield item

    def note(self) -> dict[str, Any]:
        """Return the replica's part of its note to the driver."""
        note = {"replica": self.replica.index, "rejected": self.rejected, "watermark": self.replica.watermark}
        note |= self._arrivals.note()
        return note if self.replica.closing_time is None else note | {"close": self.replica.closing_time}


def _routed(records: _Records, router: Router, pin: Pin, state: str | None = None) -> Iterator[pa.RecordBatch]:
    initial = None if state is None else state_of(state)
    summary = yield from router(records, pin, records.replica.index, records.replica.watermark, initial)
    yield blocks.note(summary | records.note())


def _placed(source: Source, replica: Replica, piece: PlacedSlice, task: SourceTask) -> Iterator[pa.RecordBatch]:
    """Yield the block stream of one worker whose records were placed before the batch."""
    assert task.router is not None
    assert task.combiner is not None
    late = 0
    for batch in blocks.joined(source.placed_blocks(piece), task.combiner.block):
        late += task.router.late(batch, replica.watermark)
        yield blocks.row(batch)
    for note in piece.notes:
        yield blocks.note({"late": 0, **note})
    yield blocks.note({"late": late})


def _rows(records: _Records, schema: pa.Schema, task: SourceTask) -> Iterator[pa.RecordBatch]:
    """Yield the records with an empty control column, between two control rows that carry no record."""
    pin = records.replica.pin
    state = {} if records.replica.state is None else {"begins": records.replica.state}
    yield _control_row(schema, {"pin": pin.to_json()} | state | records.note())
    counts = {"read": 0, "bytes": 0, "epoch": pin.epoch, "incomplete": 0}
    known = {name.lower(): place for place, name in enumerate(schema.names)}  # as in Spark, the case does not count
    required = [known[column.lower()] for column in task.required if column.lower() in known]
    times = TimeSpan()
    time = None if task.time_column is None else known[task.time_column.lower()]
    for batch in records:
        counts["read"] += batch.num_rows
        counts["bytes"] += batch.nbytes
        counts["incomplete"] += incomplete(batch, required)
        if time is not None:
            times.add(batch.column(time))
            if task.since_epoch and times.earliest is not None and times.earliest <= 0:
                since_epoch = _since_epoch(batch, time)
                counts["early"] = counts.get("early", 0) + batch.num_rows - since_epoch.num_rows
                batch = since_epoch
        no_control = pa.nulls(batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays([*batch.columns, no_control], names=[*schema.names, CONTROL])
    closing = {task.time_column: records.replica.closing_time} if task.time_column else {}
    yield _control_row(schema, counts | times.note() | records.note(), closing)


def _since_epoch(batch: pa.RecordBatch, time: int) -> pa.RecordBatch:
    """Return the records without those whose event time is not after the beginning of 1970, like Spark's joins."""
    is_early = pc.less_equal(batch.column(time).cast(pa.int64()), 0).fill_null(False)
    return batch.filter(pc.invert(is_early))


def _control_row(schema: pa.Schema, content: dict[str, Any], values: dict[str, Any] | None = None) -> pa.RecordBatch:
    known = {name.lower(): value for name, value in (values or {}).items()}  # as in Spark, the case does not count
    arrays = [pa.array([known.get(field.name.lower())], field.type) for field in schema]
    return pa.RecordBatch.from_arrays([*arrays, pa.array([json.dumps(content)])], names=[*schema.names, CONTROL])
