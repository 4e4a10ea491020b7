"""Operators on tables as stages of a Spark plan: rows in buckets -> shuffle -> ``transformWithState`` -> rows.

A bucket's rows travel as few Arrow blocks, and its state is a map of Arrow tables by name, so that neither side handles
single rows. The buckets are grouping keys that Spark's hash partitioning spreads evenly over the tasks.

A join can have a second shuffle, after its state: to the workers that match the rows of hot keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from millrace_jobs.changes import BEGINNING, CHANGE, values_of
from millrace_jobs.partitioners.hot_key_units import UnitPlacement
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.partitioners.registry import is_routed
from millrace_jobs.pipeline.blocks import STAGE, partitions_of, shuffle_keys
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.tables.operators.interface import BUCKETS, OperatorResult, TableOperator
from millrace_jobs.queries.tables.operators.join import Kept, TemporalJoin
from millrace_jobs.queries.tables.operators.splitting import NOT_SPLIT

MAX_ROWS = 1 << 16
"""Maximum number of rows in one block."""

_BUCKET, _INPUT, _PLACE, _BLOCK = "bucket", "input", "place", "block"
_BLOCKS = pa.schema([(_BUCKET, pa.int32()), (_INPUT, pa.int32()), (_PLACE, pa.int64()), (_BLOCK, pa.binary())])

_SHUFFLE_KEY, _LEFT, _RIGHT, _NOTE = "shuffle_key", "left", "right", "note"
_RESULT = StructType(
    [
        StructField(_SHUFFLE_KEY, IntegerType()),
        StructField(_BLOCK, BinaryType()),
        StructField(_LEFT, BinaryType()),
        StructField(_RIGHT, BinaryType()),
        StructField(_NOTE, StringType()),
    ]
)
"""A block of results, or the two blocks of a unit of a join, or a note."""


_PIN = "millrace.pin"
"""Local property of Spark's jobs with the pin of their batch."""

_WATERMARK = "millrace.watermark"
"""Local property of Spark's jobs with the watermark of their batch, in milliseconds since 1970."""


def announce(pin: Pin | None, watermark: int, context: SparkContext) -> None:
    """Let the tasks of the jobs that this thread runs know the plan and the watermark of their batch."""
    if pin is not None:
        context.setLocalProperty(_PIN, json.dumps(pin.to_json()))
    context.setLocalProperty(_WATERMARK, str(watermark))


def watermark_of_task() -> int:
    """Return the watermark of the running task's batch, in milliseconds since 1970; 0 without one."""
    context = TaskContext.get()
    text = context.getLocalProperty(_WATERMARK) if context is not None else None
    assert text is not None, "the task's job was not announced"
    return int(text)


def placement_of_task(tasks: int) -> UnitPlacement | None:
    """Return the placement of the running task, one of ``tasks``; None if its batch has no plan that places units."""
    context = TaskContext.get()
    text = context.getLocalProperty(_PIN) if context is not None else None
    if context is None or text is None:
        return None
    pin = Pin.from_json(json.loads(text))
    if not is_routed(pin.algorithm):
        return None
    return UnitPlacement(
        pin.algorithm,
        workers=pin.workers,
        task=context.partitionId() % tasks,
        tasks=tasks,
        seed=pin.seed,
        parameters=pin.parameters,
    )


@lru_cache(maxsize=8)
def bucket_keys(partitions: int, least: int) -> NDArray[np.int32]:
    """Return the grouping keys of at least so many buckets, of which Spark places equally many in each partition."""
    if least == 2 * partitions < BUCKETS:  # one in each of twice as many partitions, so that the state can be spread
        partitions = least
    each = -(-least // partitions)
    candidates = np.arange(64 * each * partitions, dtype=np.int32)
    places = partitions_of(candidates, partitions)
    order = np.argsort(places, kind="stable")
    starts = np.searchsorted(places[order], np.arange(partitions))
    keys: NDArray[np.int32] = candidates[order[(starts[:, np.newaxis] + np.arange(each)).ravel()]]
    return keys


@dataclass(frozen=True)
class InBuckets:
    """Function that cuts rows into blocks, one for each bucket.

    Each block has a place by its task and its number there. A shuffle does not keep the order of blocks, and a batch
    that runs again after a crash must not decide otherwise which of two upserts was the last one.

    Args:
        schema: schema of the rows.
        keys: the columns by which rows are cut.
        number: number of the input that the rows are for.
        partitions: number of state partitions when the state began.
        buckets: least number of buckets.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    number: int
    partitions: int
    buckets: int = BUCKETS

    def __call__(self, stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of every batch."""
        for place, batch in enumerate(stream, start=_first_place()):
            if batch.num_rows:
                yield self.cut(batch, place)

    def cut(self, batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
        """Return the blocks of a batch that has rows, with their place."""
        names = bucket_keys(self.partitions, self.buckets)
        batch = batch.cast(self.schema)
        hashes = hash_columns([batch.column(name) for name in self.keys], batch.num_rows)
        buckets = ((hashes & np.uint64(0xFFFFFFFF)) % np.uint64(len(names))).astype(np.uint16)
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=len(names))
        busy = np.flatnonzero(counts)
        ends = np.cumsum(counts)[busy]
        batch = batch.take(pa.array(order))
        blocks = [batch.slice(end - count, count).serialize().to_pybytes()
                  for end, count in zip(ends.tolist(), counts[busy].tolist(), strict=True)]  # fmt: skip
        numbers, places = np.full(len(busy), self.number, np.int32), np.full(len(busy), place)
        columns = [pa.array(names[busy]), pa.array(numbers), pa.array(places), pa.array(blocks, pa.binary())]
        return pa.RecordBatch.from_arrays(columns, schema=_BLOCKS)


def _first_place() -> int:
    """Return the place of the first block of the running task."""
    task = TaskContext.get()
    return task.partitionId() << 32 if task is not None else 0


@dataclass(frozen=True)
class ForkInput:
    """An input of a stage in rows that other inputs read, too.

    ``keeps`` is the BOOLEAN column of its rows, and ``columns`` are those that have its own, by their names in it.
    """

    keeps: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Fork:
    """Rows of which each can be in several inputs of a stage, so that what they come from is computed once."""

    rows: DataFrame
    inputs: tuple[ForkInput, ...]

    def values(self, number: int) -> pa.Schema:
        """Return the schema of the values of an input."""
        names = self.inputs[number].columns
        schema = values_schema(self.rows)
        own = ((name, column) for name, column in names.items() if name not in CHANGE.names)
        return pa.schema([schema.field(column).with_name(name) for name, column in own])


Inputs = Sequence[DataFrame] | Fork
"""The rows of the inputs of a stage, each alone, or all of them together."""


@dataclass(frozen=True)
class ForkInBuckets:
    """Function that cuts the rows of a fork into blocks, for each input its own."""

    inputs: tuple[tuple[ForkInput, InBuckets], ...]

    def __call__(self, stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the blocks of every batch."""
        for place, batch in enumerate(stream, start=_first_place()):
            for own, buckets in self.inputs:
                kept = batch.filter(batch.column(own.keeps))
                if kept.num_rows:
                    columns = [kept.column(own.columns[name]) for name in buckets.schema.names]
                    yield buckets.cut(pa.RecordBatch.from_arrays(columns, buckets.schema.names), place)


@dataclass(frozen=True)
class Unpacked:
    """Function that turns blocks into rows, and units of a join into their results."""

    operator: TableOperator

    def __call__(self, stream: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of every block and unit."""
        for batch in stream:
            for block in batch.column(_BLOCK).drop_null():
                yield pa.ipc.read_record_batch(block.as_buffer(), self.operator.output)
            if isinstance(self.operator, TemporalJoin):
                units = (batch.column(_LEFT).drop_null(), batch.column(_RIGHT).drop_null())
                for unit in zip(*units, strict=True):
                    left, right = (
                        pa.Table.from_batches([pa.ipc.read_record_batch(block.as_buffer(), schema)])
                        for block, schema in zip(unit, self.operator.inputs, strict=True)
                    )
                    for table in self.operator.matched(left, right):
                        yield from table.combine_chunks().to_batches(max_chunksize=MAX_ROWS)


def state_partitions(spark: SparkSession) -> int:
    """Return the number of state partitions of the session's queries."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def values_schema(rows: DataFrame) -> pa.Schema:
    """Return the schema of the values of rows with changes; every column can be NULL."""
    schema = to_arrow_schema(rows.schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in values_of(schema)])


def run_stage(
    operator: TableOperator,
    inputs: Inputs,
    keys: Sequence[Sequence[str]],
    partitions: int,
    *,
    number: int,
    has_watermark: bool,
    splits: bool,
    buckets: int = BUCKETS,
    wakes: bool = True,
) -> DataFrame:
    """Return the changes that an operator makes of its inputs, as rows with its output's columns.

    Args:
        operator: the operator.
        inputs: rows with the columns of the operator's inputs, in any order.
        keys: for each input, the columns that bring rows together; the n-th ones have the same type.
        partitions: number of state partitions when the state began.
        number: number of the stage in the query.
        has_watermark: whether an input has a watermark.
        splits: whether the hot keys of a join are matched by the workers of the plan.
        buckets: least number of buckets.
        wakes: whether buckets are processed without input when the operator waits for the watermark.
    """
    cuts = [
        InBuckets(schema, tuple(key), place, partitions, buckets)
        for place, (schema, key) in enumerate(zip(operator.inputs, keys, strict=True))
    ]
    if isinstance(inputs, Fork):
        read = dict.fromkeys(name for own in inputs.inputs for name in (own.keeps, *own.columns.values()))
        cut = ForkInBuckets(tuple(zip(inputs.inputs, cuts, strict=True)))
        blocks = [inputs.rows.select(*read).mapInArrow(cut, from_arrow_schema(_BLOCKS))]
    else:
        blocks = [
            rows.select(*cut.schema.names).mapInArrow(cut, from_arrow_schema(_BLOCKS))
            for rows, cut in zip(inputs, cuts, strict=True)
        ]
    processed = (
        reduce(DataFrame.union, blocks)
        .groupBy(_BUCKET)
        .transformWithState(
            TableStage(operator, partitions, splits=splits, wakes=wakes),
            _RESULT,
            outputMode="append",
            timeMode="eventTime" if has_watermark and wakes else "none",
        )
    )
    processed = processed.observe(f"{STAGE}{number}", F.collect_list(_NOTE).alias("notes"))
    if splits and _leaves_units(operator):
        processed = processed.repartition(F.col(_SHUFFLE_KEY))  # as many tasks as the run loop has set for the batch
    return processed.mapInArrow(Unpacked(operator), from_arrow_schema(operator.output))


def _leaves_units(operator: TableOperator) -> TypeGuard[TemporalJoin]:
    """Whether an operator can leave the pairs of hot keys to workers."""
    return isinstance(operator, TemporalJoin) and operator.kept is Kept.PAIRS


class TableStage(StatefulProcessor):
    """Stateful processor that runs an operator in the buckets of one task.

    Spark's timers cost more than their calls: it makes new encoders for them with each copy of its plan, and in each
    task. Without ``wakes`` there are none, and the watermark is that of the batch.
    """

    def __init__(self, operator: TableOperator, partitions: int, *, splits: bool, wakes: bool = True) -> None:
        self._operator = operator
        self._partitions = partitions
        self._splits = splits
        self._wakes = wakes
        self._placement: UnitPlacement | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state; called by Spark."""
        self._handle = handle
        name, block = StructType([StructField("name", StringType())]), StructType([StructField(_BLOCK, BinaryType())])
        self._tables = handle.getMapState("tables", name, block)
        if self._wakes:
            self._wake = handle.getValueState("wake", StructType([StructField("milliseconds", LongType())]))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """Process the blocks of a batch; called by Spark."""
        batches: list[list[pa.RecordBatch]] = [[] for _ in self._operator.inputs]
        for row in sorted(rows, key=lambda row: row[_PLACE]):
            schema = self._operator.inputs[row[_INPUT]]
            batches[row[_INPUT]].append(pa.ipc.read_record_batch(pa.py_buffer(row[_BLOCK]), schema))
        changes = [pa.Table.from_batches(own, s) for own, s in zip(batches, self._operator.inputs, strict=True)]
        return self._process(key[0], changes, timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """Process a watermark that the operator waited for; called by Spark."""
        self._wake.clear()  # Spark has removed the timer
        return self._process(key[0], [schema.empty_table() for schema in self._operator.inputs], timerValues)

    def close(self) -> None:
        """Release nothing; called by Spark."""

    def _process(self, bucket: int, changes: Sequence[pa.Table], timers: TimerValues) -> Iterator[Row]:
        now = timers.getCurrentWatermarkInMs() if self._wakes else watermark_of_task()
        self._begin_task()
        outcome = self._operator.process(_SparkStore(self._tables), changes, max(now, 0) * 1000 or BEGINNING)
        if self._wakes:
            self._wake_at(outcome.wake, after=now)
        placement, shuffle_key = self._placement, bucket
        if placement is not None:
            shuffle_key = _shuffle_key(placement, placement.place_bucket(bucket))
        yield _row(shuffle_key, note=_note(bucket, sum(table.num_rows for table in changes), outcome))
        for table in outcome.changes:
            for batch in table.combine_chunks().to_batches(max_chunksize=MAX_ROWS):
                yield _row(shuffle_key, block=batch.serialize().to_pybytes())
        for unit in outcome.units:
            assert placement is not None
            shuffle_key = _shuffle_key(placement, unit.worker)
            yield _row(shuffle_key, left=_packed(unit.left), right=_packed(unit.right))

    def _begin_task(self) -> None:
        """Read the plan, in the first bucket of a task."""
        if self._splits and self._placement is None and _leaves_units(self._operator):
            self._placement = placement_of_task(self._partitions)
            if self._placement is not None:
                self._operator = replace(self._operator, split=replace(NOT_SPLIT, place=self._placement.place))

    def _wake_at(self, watermark: int | None, *, after: int) -> None:
        """Let this bucket be processed at a watermark in microseconds, which is after ``after``, that of the batch.

        A timer that has already expired is replaced: it would fire in this batch, and Spark would remove the one that
        follows with it. One that fires earlier than needed stays: with a stream, that time moves in each batch.
        """
        held = self._wake.get()
        before = held[0] if held else None
        timer = None if watermark is None else max(-(-watermark // 1000), after + 1)
        if before == timer or (before is not None and timer is not None and after < before < timer):
            return
        if before is not None:
            self._handle.deleteTimer(before)
        if timer is None:
            self._wake.clear()
        else:
            self._handle.registerTimer(timer)
            self._wake.update((timer,))


class _SparkStore:
    """The state of one bucket in Spark's state store; a ``BucketStore``."""

    def __init__(self, tables: Any) -> None:
        self._tables = tables

    def get(self, name: str, schema: pa.Schema) -> pa.Table | None:
        """Return the table with this name, or None."""
        held = self._tables.getValue((name,))
        if held is None:
            return None
        return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(bytes(held[0])), schema)])

    def put(self, name: str, rows: pa.Table) -> None:
        """Store a table."""
        self._tables.updateValue((name,), (_packed(rows),))

    def remove(self, name: str) -> None:
        """Remove a table."""
        self._tables.removeKey((name,))


def _packed(rows: pa.Table) -> bytes:
    batches = rows.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in rows.schema], schema=rows.schema
    )  # fmt: skip
    packed: bytes = batch.serialize().to_pybytes()
    return packed


def _shuffle_key(placement: UnitPlacement, worker: int) -> int:
    return int(shuffle_keys(placement.workers)[worker])


def _row(shuffle_key: int, **values: bytes | str) -> Row:
    return Row(**{**dict.fromkeys(_RESULT.names), _SHUFFLE_KEY: shuffle_key, **values})


def _note(bucket: int, rows: int, outcome: OperatorResult) -> str:
    note: dict[str, Any] = {"bucket": bucket, "late": outcome.late, "kept": outcome.kept}
    context = TaskContext.get()
    if outcome.pairs and context is not None:
        note |= {"task": context.partitionId(), "rows": rows, "pairs": outcome.pairs, "hot": outcome.hot}
    return json.dumps(note)
