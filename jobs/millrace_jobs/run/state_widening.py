"""Aggregates that a changed query has beside those of its state: before the query starts, the state takes them up.

Records of before the change are gone. So an added aggregate has values only in windows of which the state has no
group yet, those that start after the newest window in the state, and is NULL in the others: ``BuiltinAggregate.after``.
A window that starts later has had no record that counts: each record is in the newest window that holds its time.

Spark compares the columns of a query's state with those in the checkpoint, and reads its rows by their places. Added
aggregates come last (``aggregation_of``). In a copy of Spark's part, each row of the state gets their columns, as they
are in Spark for a group without records. As after a repartition, the copy is one batch further than the original. It
takes the place of the original in one step, with its layout (``Checkpoint.adopt_spark``).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.evolution import check_layout
from millrace_jobs.checkpoint.spark_folder import make_copy, plainly_named, remove_outdated
from millrace_jobs.checkpoint.unsafe_rows import Joiner, RowShape, row_of_zeros
from millrace_jobs.checkpoint.value_schema import StateSchema, state_schema
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.routed.merge import in_order_of_parts, merge_partials, window_from_start
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.queries.state_layout import AFTER, AGGREGATES, COLUMNS, TYPES, recorded_aggregates, windows_after
from millrace_jobs.run.failures import explain_failure, jvm_gone
from millrace_jobs.time_texts import time_text

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_REWRITER = "org.apache.spark.sql.execution.streaming.state.StateRewriter"
_VALUE = "value_bytes"


@dataclass(frozen=True)
class _Buffer:
    """The columns of an aggregate function in the state, as Spark describes them, and their row without records.

    ``row`` is None if Spark has none that it could go on from.
    """

    fields: tuple[Mapping[str, Any], ...]
    row: bytes | None

    @property
    def shape(self) -> RowShape:
        return RowShape.of([field["type"] for field in self.fields])

    def joined(self, other: _Buffer) -> _Buffer:
        if self.row is None or other.row is None:
            return replace(self, row=None)
        row = Joiner(self.shape, other.shape, other.row)(self.row)
        return _Buffer((*self.fields, *other.fields), row)


def added_aggregates(compiled: CompiledQuery, layout: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the aggregates that a state of this layout has to take up, where it can; the others are last."""
    query = compiled.execution
    if layout is None or COLUMNS not in layout or not isinstance(query, Routed) or query.ahead:
        return ()
    if query.aggregation is None or query.window is None:
        return ()
    return tuple(each.call for each in query.aggregation.aggregates[len(recorded_aggregates(layout)) :])


def layout_with(spark: SparkSession, checkpoint: Checkpoint, added: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the layout of the state with more aggregates, with which the query is compiled.

    Raises:
        MillraceError: a batch is unfinished, or Spark cannot read the state.
    """
    layout, unfinished = checkpoint.layout, checkpoint.last_batch().unfinished
    assert layout is not None
    if unfinished is not None:  # a sink may have its results, which the changed query would compute otherwise
        message = f"batch {unfinished} of the checkpoint {checkpoint.root} was begun and is not finished"
        hint = f"run the query without {', '.join(added)} until that batch is finished, and then change it"
        raise MillraceError(Problem(message, hint, field="spec.query.sql"))
    newest = _newest_window(spark, checkpoint)
    held = recorded_aggregates(layout)
    after = [start for _, start in zip_longest(held, windows_after(layout))]
    return {**layout, AGGREGATES: [*held, *added], AFTER: [*after, *(newest for _ in added)]}


def widen_state(spark: SparkSession, checkpoint: Checkpoint, query: Routed) -> str:
    """Let the state of a stopped query take up the aggregates that it lacks, and return what has happened.

    Raises:
        MillraceError: the state is another one than that of the query's other aggregates, Spark cannot rewrite it, it
            cannot be replaced, or the lease is lost. The checkpoint is then unchanged.
    """
    before, now = checkpoint.layout, query.layout()
    assert before is not None
    number, types = len(recorded_aggregates(before)), len(before[TYPES])
    check_layout(
        {name: entry for name, entry in before.items() if name != AFTER},
        {name: entry for name, entry in now.items() if name != AFTER}
        | {AGGREGATES: now[AGGREGATES][:number], TYPES: now[TYPES][:types]},
        checkpoint,
    )
    original = checkpoint.spark
    assert isinstance(original, Path), "others are refused"
    try:
        copy = make_copy(original)
        _rewrite(spark, original, copy, checkpoint.last_batch().committed, _buffers(spark, query))
        checkpoint.require_lease()
        checkpoint.adopt_spark(copy, now)
        assert isinstance(checkpoint.spark, Path)
        remove_outdated(checkpoint.spark)
    except OSError as error:
        why = f"the changed state cannot be put in place in {checkpoint.root}: {error.strerror or error}"
        hint = "free some space there, then run the query again: nothing is lost"
        raise MillraceError(Problem(why, hint, field="spec.checkpoint")) from None
    return _what_counts(now, number)


def _what_counts(layout: Mapping[str, Any], held: int) -> str:
    calls, start = ", ".join(layout[AGGREGATES][held:]), next(iter(layout.get(AFTER, ())[held:]), None)
    since = (
        "in all windows, as the state has no group"
        if start is None
        else f"in windows that start after {time_text(start)}"
    )
    return f"the state has taken up {calls}: counted {since}"


def _newest_window(spark: SparkSession, checkpoint: Checkpoint) -> int | None:
    """Return the start of the newest window in the state, in microseconds since 1970; None if it has no group."""
    with _explained(), plainly_named(checkpoint.spark) as path:
        groups = spark.read.format("statestore").option("path", str(path)).load()
        newest = groups.agg(F.unix_micros(F.max("key.window.start").cast("timestamp"))).head()
    return None if newest is None else newest[0]


def _rewrite(spark: SparkSession, original: Path, copy: Path, batch: int | None, buffers: tuple[_Buffer, ...]) -> None:
    """Write the state of a batch to a copy, one batch further, with the columns that its rows lack."""
    assert batch is not None, "its last batch is finished"
    schema = state_schema(copy)
    added = _lacking(schema, buffers) if schema is not None else None
    if schema is None or added is None or added.row is None:
        message = "the state does not have the columns that Spark gives the query's aggregates"
        raise MillraceError(Problem(message, "run the query with the aggregates that it had", field="spec.query.sql"))
    schema.write_with(added.fields)
    for log in ("offsets", "commits"):
        for name in ("{}", ".{}.crc"):
            if (copy / log / name.format(batch)).exists():
                shutil.copyfile(copy / log / name.format(batch), copy / log / name.format(batch + 1))
    joined = Joiner(RowShape.of(schema.types), added.shape, added.row)
    gateway: Any = spark.sparkContext._gateway
    jvm: Any = spark._jvm
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    with _explained(), plainly_named(original) as source, plainly_named(copy) as target:
        option, configuration = jvm.scala.Option, spark._jsparkSession.sessionState().newHadoopConf()
        change, path = _RowChange(spark, lambda rows: _joined(rows, joined)), f"file:{target}"
        rewriter = getattr(jvm, _REWRITER)(
            spark._jsparkSession, batch, batch + 1, path, configuration,
            option.apply(f"file:{source}"), option.apply(change), option.empty(),
        )  # fmt: skip
        rewriter.run()


def _lacking(schema: StateSchema, buffers: tuple[_Buffer, ...]) -> _Buffer | None:
    """Return the columns that a state lacks; None if it has others than the first of those of the query."""
    types, place = schema.types, 0
    while buffers and place < len(types):
        first, *rest = buffers
        own = [field["type"] for field in first.fields]
        if types[place : place + len(own)] != own:
            return None
        place, buffers = place + len(own), tuple(rest)
    return reduce(_Buffer.joined, buffers) if buffers and place == len(types) else None


def _joined(batches: Iterable[pa.RecordBatch], joined: Joiner) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        place = batch.schema.get_field_index(_VALUE)
        values = pa.array([joined(row) for row in batch.column(place).to_pylist()], batch.schema.field(place).type)
        yield batch.set_column(place, batch.schema.field(place), values)


class _RowChange:
    """The change of the rows of a state store, as Spark calls it from the JVM."""

    def __init__(self, spark: SparkSession, change: Callable[[Iterable[pa.RecordBatch]], Iterator[Any]]) -> None:
        self._spark = spark
        self._change = change

    def apply(self, frame: Any) -> Any:
        """Return the Java DataFrame of the changed rows."""
        rows = DataFrame(frame, self._spark)
        changed: Any = rows.mapInArrow(self._change, rows.schema)
        return changed._jdf

    class Java:
        """The interface that py4j lets it implement."""

        implements: ClassVar[list[str]] = ["scala.Function1"]


def _buffers(spark: SparkSession, query: Routed) -> tuple[_Buffer, ...]:
    """Return the columns of each aggregate function in the state of a query, in their order, as Spark plans them."""
    assert query.aggregation is not None
    assert query.window is not None
    partials = spark.createDataFrame(spark.sparkContext.emptyRDD(), from_arrow_schema(query.reduction.schema))
    partials = partials.withColumn("window", window_from_start(partials, query.window))
    merged: Any = in_order_of_parts(merge_partials(partials, query.aggregation), query.aggregation)
    plans = list(_tree(merged._jdf.queryExecution().sparkPlan()))
    partial = next(plan for plan in reversed(plans) if plan.nodeName().endswith("Aggregate"))
    functions = [each.aggregateFunction() for each in _items(partial.aggregateExpressions())]
    return tuple(_buffer(spark, function) for function in functions)


def _buffer(spark: SparkSession, function: Any) -> _Buffer:
    jvm: Any = spark._jvm
    fields = tuple(json.loads(function.aggBufferSchema().json())["fields"])
    kinds, kind = set(), function.getClass()
    while kind is not None:
        kinds.add(kind.getSimpleName())
        kind = kind.getSuperclass()
    row = getattr(jvm, f"{_EXPRESSIONS}.GenericInternalRow")(len(fields))
    if "DeclarativeAggregate" in kinds:
        projection = getattr(jvm, f"{_EXPRESSIONS}.InterpretedUnsafeProjection")
        return _Buffer(fields, bytes(projection.createProjection(function.initialValues()).apply(row).getBytes()))
    if "HyperLogLogPlusPlus" in kinds:
        return _Buffer(fields, row_of_zeros(len(fields)))
    return _Buffer(fields, None)


def _tree(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _items(plan.children()):
        yield from _tree(child)


def _items(sequence: Any) -> Iterator[Any]:
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


@contextmanager
def _explained() -> Iterator[None]:
    """Raise errors of Spark as MillraceError."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        cause = explain_failure(str(error)).problems[0]
        raise MillraceError(Problem(f"the state is unchanged: {cause.message}", cause.hint)) from None
    except (Py4JNetworkError, ConnectionError):
        raise jvm_gone() from None
