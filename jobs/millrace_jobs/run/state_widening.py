"""What a state has to take up before a changed query starts: aggregates that it lacks, and wider types of values.

Records of before the change are gone. So an added aggregate has values only in windows of which the state has no
group yet, those that start after the newest window in the state, and is NULL in the others: ``BuiltinAggregate.after``.
A window that starts later has had no record that counts: each record is in the newest window that holds its time.

Where a column of the source has a wider type than before (``validation.widened_types``), so have the values that the
state keeps of some aggregates, such as a maximum.

Spark compares the columns of a query's state with those in the checkpoint, and reads its rows by their places. Added
aggregates come last (``aggregation_of``). In a copy of Spark's part, each row of the state gets their columns, as they
are in Spark for a group without records, and values of the new types. As after a repartition, the copy is one batch
further than the original. It takes the place of the original in one step, with its layout (``Checkpoint.adopt_spark``).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
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
from millrace_api.validation.widened_types import is_wider
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.evolution import check_layout, require_finished_batch
from millrace_jobs.checkpoint.spark_folder import make_copy, plainly_named, remove_outdated
from millrace_jobs.checkpoint.unsafe_rows import Joiner, RowShape, retyped_word, row_of_zeros
from millrace_jobs.checkpoint.value_schema import StateSchema, state_schema
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.routed.merge import in_order_of_parts, merge_partials, window_from_start
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.queries.state_layout import (
    AFTER,
    AGGREGATES,
    COLUMNS,
    KEYS,
    TYPES,
    recorded_aggregates,
    windows_after,
)
from millrace_jobs.run.failures import explain_failure, jvm_gone
from millrace_jobs.time_texts import time_text

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_REWRITER = "org.apache.spark.sql.execution.streaming.state.StateRewriter"
_VALUE = "value_bytes"
_SPARK_TYPES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
}


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


def has_other_types(compiled: CompiledQuery, layout: Mapping[str, Any] | None) -> bool:
    """Return whether the query has wider types of values than its state, in columns that can be found.

    Or narrower ones: a version with wider types may have failed before its first batch, so that the one before follows.
    """
    query = compiled.execution
    if layout is None or COLUMNS not in layout or not isinstance(query, Routed) or query.ahead:
        return False
    return bool(_with_types_of_now(layout, query.layout()) != layout[TYPES])


def _with_types_of_now(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the types in one layout, those of partial results as in another one where the state can have these."""
    keys, pairs = len(before[KEYS]), list(zip_longest(before[TYPES], now[TYPES][: len(before[TYPES])], fillvalue=""))
    return [
        new if place >= keys and (_is_wider(old, new) or _is_wider(new, old)) else old
        for place, (old, new) in enumerate(pairs)
    ]


def _is_wider(old: str, new: str) -> bool:
    """Whether one of Arrow's types is wider than another one, both as text."""
    one, other = (
        _SPARK_TYPES.get(kind) or kind.replace("decimal128", "DECIMAL").replace(" ", "") for kind in (old, new)
    )
    return is_wider(one, other)


def layout_with(spark: SparkSession, checkpoint: Checkpoint, added: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the layout of the state with more aggregates, with which the query is compiled.

    Raises:
        MillraceError: a batch is unfinished, or Spark cannot read the state.
    """
    layout = checkpoint.layout
    assert layout is not None
    require_finished_batch(checkpoint, f"without {', '.join(added)}", "spec.query.sql")
    newest = _newest_window(spark, checkpoint)
    held = recorded_aggregates(layout)
    after = [start for _, start in zip_longest(held, windows_after(layout))]
    return {**layout, AGGREGATES: [*held, *added], AFTER: [*after, *(newest for _ in added)]}


def widen_state(spark: SparkSession, checkpoint: Checkpoint, query: Routed) -> str:
    """Let the state of a stopped query take up the aggregates that it lacks and wider types; return what has happened.

    Raises:
        MillraceError: the state is another one than that of the query's other aggregates, Spark cannot rewrite it, it
            cannot be replaced, or the lease is lost. The checkpoint is then unchanged.
    """
    before, now = checkpoint.layout, query.layout()
    assert before is not None
    number, types = len(recorded_aggregates(before)), len(before[TYPES])
    check_layout(
        {name: entry for name, entry in before.items() if name != AFTER} | {TYPES: _with_types_of_now(before, now)},
        {name: entry for name, entry in now.items() if name != AFTER}
        | {AGGREGATES: now[AGGREGATES][:number], TYPES: now[TYPES][:types]},
        checkpoint,
    )
    require_finished_batch(checkpoint, "as it was", "spec.sources")
    original = checkpoint.spark
    if not isinstance(original, Path):
        message = f"the state in {checkpoint.root} would have to be rewritten, and one in an object store is not"
        raise MillraceError(Problem(message, "write spec.sources as it was", field="spec.sources"))
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
    return _what_counts(before, now)


def _what_counts(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    held = len(recorded_aggregates(before))
    calls, start = ", ".join(now[AGGREGATES][held:]), next(iter(now.get(AFTER, ())[held:]), None)
    if not calls:
        return "the state has the types of the query's aggregates now"
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
    change = _change(schema, buffers) if schema is not None else None
    if schema is None or change is None:
        message = "the state does not have the columns that Spark gives the query's aggregates"
        raise MillraceError(Problem(message, "run the query as it was", field="spec.query.sql"))
    schema.write(change.fields)
    for log in ("offsets", "commits"):
        for name in ("{}", ".{}.crc"):
            if (copy / log / name.format(batch)).exists():
                shutil.copyfile(copy / log / name.format(batch), copy / log / name.format(batch + 1))
    gateway: Any = spark.sparkContext._gateway
    jvm: Any = spark._jvm
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    with _explained(), plainly_named(original) as source, plainly_named(copy) as target:
        option, configuration = jvm.scala.Option, spark._jsparkSession.sessionState().newHadoopConf()
        rows, path = _RowChange(spark, partial(_joined, joined=change.rows)), f"file:{target}"
        rewriter = getattr(jvm, _REWRITER)(
            spark._jsparkSession, batch, batch + 1, path, configuration,
            option.apply(f"file:{source}"), option.apply(rows), option.empty(),
        )  # fmt: skip
        rewriter.run()


@dataclass(frozen=True)
class _ColumnChange:
    """The columns that a state is to have, and how its rows get them."""

    fields: tuple[Mapping[str, Any], ...]
    rows: Joiner


def _change(schema: StateSchema, buffers: tuple[_Buffer, ...]) -> _ColumnChange | None:
    """Return the change to a state with the columns of these aggregates; None if its own ones are others."""
    fields, retyped = list(schema.fields), {}
    place = 0
    while buffers and place < len(fields):
        first, *rest = buffers
        for own in first.fields:
            held = fields[place]["type"] if place < len(fields) else None
            if held != own["type"]:
                word = retyped_word(held, own["type"])
                if word is None:
                    return None
                retyped[place], fields[place] = word, {**fields[place], "type": own["type"]}
            place += 1
        buffers = tuple(rest)
    if place != len(fields):
        return None
    added = reduce(_Buffer.joined, buffers, _Buffer((), b""))
    if added.row is None:
        return None
    rows = Joiner(RowShape.of(schema.types), added.shape, added.row, retyped)
    return _ColumnChange((*fields, *({**each, "nullable": True} for each in added.fields)), rows)


def _joined(batches: Iterable[pa.RecordBatch], *, joined: Joiner) -> Iterator[pa.RecordBatch]:
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
    partials = spark.createDataFrame(spark.sparkContext.emptyRDD(), from_arrow_schema(query.reduction.schema))
    if query.window is not None:
        partials = partials.withColumn("window", window_from_start(partials, query.window))
    merged: Any = in_order_of_parts(merge_partials(partials, query.aggregation), query.aggregation)
    plans = list(_tree(merged._jdf.queryExecution().sparkPlan()))
    merging = next(plan for plan in reversed(plans) if plan.nodeName().endswith("Aggregate"))
    functions = [each.aggregateFunction() for each in _items(merging.aggregateExpressions())]
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
