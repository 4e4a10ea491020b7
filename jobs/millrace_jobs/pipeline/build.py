"""Construction of a compiled query's streaming DataFrame, and of what its sink has to know about the results.

The DataFrame has one of two forms. *Routed*: route -> shuffle to workers -> combine -> shuffle by key -> merge.
*Native*: no routing; a SQL query runs by Spark's own plan. The merge is the same operator over the same state in both
forms, so a query can change its form between two batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.sources import FileFormat
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.dialect import parse_query
from millrace_api.sql.groups import Group, filters_groups
from millrace_api.validation.results import Grouping, result_groups, row_key
from millrace_jobs.aggregates.python_reducing import PythonReduction
from millrace_jobs.lookups.keys import KeyColumn
from millrace_jobs.pipeline import blocks
from millrace_jobs.pipeline.aggregation import Native
from millrace_jobs.pipeline.combine import REPORT, Combiner
from millrace_jobs.pipeline.compile import CompiledQuery, Routed, sql_problem
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.incomplete import required_columns
from millrace_jobs.pipeline.merge import (
    finish,
    merge_changes,
    merge_partials,
    merge_states,
    observe_notes,
    single_record_partials,
    window_from_start,
)
from millrace_jobs.pipeline.native_joins import with_joins_of_sql
from millrace_jobs.pipeline.projection import KEEP, ArrowProjection, SparkProjection
from millrace_jobs.pipeline.reader import ReaderConfig, SourceTask, data_source
from millrace_jobs.pipeline.route import CONTROL, Router, SparkRouteTask
from millrace_jobs.pipeline.table_build import build_tables
from millrace_jobs.pipeline.table_compile import timed_sources
from millrace_jobs.pipeline.table_relations import TableQuery, lag_of
from millrace_jobs.sinks.base import ResultKeys, WindowColumn
from millrace_jobs.sinks.csv_text import require_csv
from millrace_jobs.sinks.kafka.messages import require_json
from millrace_jobs.sources.base import Source
from millrace_jobs.tables.changes import CHANGE, WEIGHT
from millrace_jobs.tables.emission import OUTPUT
from millrace_jobs.tables.join_side import Contents
from millrace_jobs.windows import AT


@dataclass(frozen=True)
class RunContext:
    """Environment that a query runs in: its sources, and the files it shares with them.

    ``sources`` are those that stream. A static table is a view of the session, with the source's name.
    ``everything``: the run reads what its sources have when it starts, and then ends.
    """

    spark: SparkSession
    sources: Mapping[str, Source]
    control: Path
    checkpoint: Path
    policies: Path
    everything: bool


def build(query: CompiledQuery, spec: Spec, context: RunContext, *, routed: bool) -> DataFrame:
    """Return the streaming DataFrame of a query's results; ``routed`` chooses the form if the query can be routed."""
    execution = query.execution
    if isinstance(execution, Native):
        for name in context.sources:
            records(name, spec, context).createOrReplaceTempView(name)
        return with_joins_of_sql(context.spark.sql(execution.sql))
    if isinstance(execution, TableQuery):
        return _table_results(execution, query, spec, context, splits=routed)
    partials = _routed_partials(execution, spec, context) if routed else _native_partials(execution, spec, context)
    if isinstance(execution.reduction, PythonReduction):
        on_close, closes = spec.emit is Emit.ON_WINDOW_CLOSE, _closing_watermark(execution, spec) is not None
        return merge_states(partials, execution.reduction, on_close=on_close, closes=closes)
    assert execution.aggregation is not None
    if routed and execution.window is not None:
        partials = partials.withColumn("window", window_from_start(partials, execution.window))
    if execution.ahead:
        changes = merge_changes(partials, execution.aggregation, execution.ahead, execution.partitions)
        marks = _marks(query, spec)
        changes = changes if marks else _added(changes)
        return finish(changes, execution.aggregation, query.result, marks=marks)
    merged = merge_partials(partials, execution.aggregation)
    return finish(merged, execution.aggregation, query.result, retracts=retracts(query, spec))


def _table_results(
    tables: TableQuery, query: CompiledQuery, spec: Spec, context: RunContext, *, splits: bool
) -> DataFrame:
    """Return the results of the operators on tables; their weights, where rows can be taken back."""
    timed = timed_sources(spec)
    names = {name.lower(): name for name in spec.sources}

    @cache  # Spark takes the notes of a source that is read twice for one, if they are of the same DataFrame
    def read(source: str) -> DataFrame:
        if spec.sources[names[source]].is_static:
            return context.spark.table(source)
        name = names[source]
        since_epoch = name in timed and spec.sources[name].table is None
        return records(name, spec, context, has_watermark=name in timed, since_epoch=since_epoch)

    changes = build_tables(tables, read, context.spark, has_watermark=bool(timed), splits=splits)
    columns = [
        F.expr(item).cast(field.dataType).alias(field.name)
        for item, field in zip(tables.items, query.result, strict=True)
    ]
    marks = _marks(query, spec)
    if not marks and tables.contents is not Contents.RECORDS:
        changes = _added(changes)
    return changes.select(*columns, *marks)


def _marks(query: CompiledQuery, spec: Spec) -> list[str]:
    """Return the columns that the sink needs beside the results: weights, and the output that a result is for."""
    if spec.additional_outputs is not None:
        return [OUTPUT, WEIGHT]
    if isinstance(query.execution, TableQuery) and query.execution.versions:
        return list(CHANGE.names)
    return [WEIGHT] if _is_weighted(query, spec) else []


def _added(changes: DataFrame) -> DataFrame:
    """Return the changes that a sink without keys shows: every row that is new or replaces another."""
    return changes.where(F.col(WEIGHT) > 0)


def _is_weighted(query: CompiledQuery, spec: Spec) -> bool:
    """Whether results can be taken back, so that the sink has to know their weights."""
    execution = query.execution
    changes = isinstance(execution, TableQuery) and execution.contents is not Contents.RECORDS
    return spec.sink.table is not None and (changes or _is_held_back(query))


def _is_held_back(query: CompiledQuery) -> bool:
    """Whether operators on tables decide when the groups of the result are emitted."""
    return isinstance(query.execution, Routed | TableQuery) and bool(query.execution.ahead)


def is_per_record(query: CompiledQuery, context: RunContext, *, routed: bool) -> bool:
    """Whether Spark's own operators process single records, rather than what Millrace has made of many."""
    execution = query.execution
    if isinstance(execution, Native | TableQuery):
        return True
    if routed:
        return isinstance(compile_projection(execution.projection, context.sources[execution.source].schema), str)
    return execution.aggregation is not None


def records(
    name: str, spec: Spec, context: RunContext, *, has_watermark: bool = True, since_epoch: bool = False
) -> DataFrame:
    """Return a source as a table with its watermark, if wanted; its control rows are observed and dropped.

    ``since_epoch``: records before 1970 are late, as they are for Spark's own operators.
    """
    watermark = _watermark(spec, name) if has_watermark else None
    return observe_notes(_rows(name, spec, context, since_epoch=since_epoch), name, CONTROL, watermark)


def _rows(
    name: str, spec: Spec, context: RunContext, *, own_watermark: bool = False, since_epoch: bool = False
) -> DataFrame:
    watermark = spec.sources[name].watermark
    time_column = watermark.column if watermark else None
    task = SourceTask("rows", time_column, None, None, own_watermark, since_epoch, required_columns(spec, name))
    schema = context.sources[name].schema.append(pa.field(CONTROL, pa.string()))
    return _read(name, task, schema, context)


def _watermark(spec: Spec, name: str, column: str | None = None) -> tuple[str, str] | None:
    watermark = spec.sources[name].watermark
    if watermark is None:
        return None
    return column or watermark.column, f"{watermark.delay.microseconds} microseconds"


def _routed_partials(query: Routed, spec: Spec, context: RunContext) -> DataFrame:
    """Return the partial results of the workers that the records are routed to."""
    router = _router(query, spec, context)
    combiner = Combiner(query.projection.schema, query.reduction)
    if context.sources[query.source].is_placed:
        task = SourceTask("partials", None, router, combiner, own_watermark=bool(query.ahead))
        return _partials(_read(query.source, task, combiner.schema, context), query, spec)
    if isinstance(router.project, ArrowProjection):
        task = SourceTask("blocks", None, router, own_watermark=bool(query.ahead))
        stream = _read(query.source, task, blocks.ARROW_SCHEMA, context)
    else:
        projected = _projected(query, spec, context)
        stream = projected.mapInArrow(SparkRouteTask(router), from_arrow_schema(blocks.ARROW_SCHEMA))
    placed = stream.repartition(F.col("shuffle_key"))  # as many tasks as the run loop has set for the batch
    return _partials(placed.mapInArrow(combiner, from_arrow_schema(combiner.schema)), query, spec)


def _native_partials(query: Routed, spec: Spec, context: RunContext) -> DataFrame:
    """Return partial results without routing: of single records, or of each replica's slice."""
    if query.aggregation is not None:
        types = from_arrow_schema(query.reduction.schema)
        return single_record_partials(records(query.source, spec, context), query.aggregation, types)
    combiner = Combiner(query.projection.schema, query.reduction)
    task = SourceTask("partials", None, _router(query, spec, context), combiner)
    return _partials(_read(query.source, task, combiner.schema, context), query, spec)


def _partials(stream: DataFrame, query: Routed, spec: Spec) -> DataFrame:
    return observe_notes(stream, query.source, REPORT, _closing_watermark(query, spec))


def _closing_watermark(query: Routed, spec: Spec) -> tuple[str, str] | None:
    """Return the watermark on partial results; None unless the source's is on the column of the window."""
    declared = spec.sources[query.source].watermark
    on_window = query.window and declared and query.window.column.lower() == declared.column.lower()
    return _watermark(spec, query.source, AT) if on_window else None


def _projected(query: Routed, spec: Spec, context: RunContext) -> DataFrame:
    """Return the block columns and the filter as computed by Spark, for expressions that Arrow lacks."""
    keep = f"({CONTROL} IS NULL) AND coalesce({query.projection.where or 'true'}, false) AS {KEEP}"
    columns = [f"{_filtered(name, sql, query.projection.where)} AS `{name}`" for name, sql in query.projection.columns]
    rows = _rows(query.source, spec, context, own_watermark=bool(query.ahead))
    return rows.selectExpr(*columns, keep, CONTROL)


def _filtered(name: str, sql: str, where: str) -> str:
    """Return a column's SQL that is not evaluated for records that the filter drops, where it may be an error.

    Event time is read from all records, because all of them move the watermark.
    """
    return sql if name == AT or not where else f"CASE WHEN {where} THEN {sql} END"


def _router(query: Routed, spec: Spec, context: RunContext) -> Router:
    compiled = compile_projection(query.projection, context.sources[query.source].schema)
    time_column = query.window.column if query.window else ""
    since_epoch = _closing_watermark(query, spec) is not None and not query.ahead
    if isinstance(compiled, str):
        projection = SparkProjection(query.projection.schema)
        return Router(projection, query.projection.keys, query.window, time_column and AT, since_epoch)
    return Router(compiled, query.projection.keys, query.window, time_column, since_epoch)


def _read(name: str, task: SourceTask, schema: pa.Schema, context: RunContext) -> DataFrame:
    config = ReaderConfig(
        name=name,
        source=context.sources[name],
        task=task,
        spark_schema=from_arrow_schema(schema),
        control=context.control,
        checkpoint=context.checkpoint,
        policies=context.policies,
        everything=context.everything,
    )
    registered = data_source(config)
    context.spark.dataSource.register(registered)
    return context.spark.readStream.format(registered.name()).load()


def output_mode(query: CompiledQuery, spec: Spec) -> Literal["update", "append"]:
    """Return the Spark output mode that matches when the results of a query are emitted."""
    if isinstance(query.execution, TableQuery) or _is_held_back(query):
        return "append"  # of changes
    return "update" if spec.emit is Emit.ON_UPDATE and query.aggregates else "append"


def check_streaming(query: CompiledQuery, spec: Spec, spark: SparkSession, sources: Mapping[str, Source]) -> None:
    """Run the plan check with which Spark starts every stream; nothing is started or written.

    A query that can be routed is not checked: Spark's part of it is always the same, and is known to run.

    Raises:
        MillraceError: Spark supports the query on tables, but not on streams.
    """
    checks = spark.conf.get("spark.sql.streaming.unsupportedOperationCheck") == "true"
    if not isinstance(query.execution, Native) or not checks:
        return
    nowhere = Path("nowhere")  # no folder is read before the first batch
    context = RunContext(spark, sources, nowhere, nowhere, nowhere, everything=True)
    jvm = spark._jvm
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = modes.Update() if output_mode(query, spec) == "update" else modes.Append()
    try:
        plan = build(query, spec, context, routed=False)._jdf.queryExecution().analyzed()
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
    except AnalysisException as error:
        raise MillraceError(sql_problem(error)) from None


def result_keys(query: CompiledQuery, spec: Spec) -> ResultKeys:
    """Return the columns that identify the result rows of a query, as its sink needs them.

    ``spec`` is that of one output.

    Raises:
        MillraceError: the key does not identify rows, results cannot be written as JSON or CSV, or rows that HAVING no
            longer admits could not be retracted.
    """
    if spec.sink.files is not None and spec.sink.files.format is not FileFormat.PARQUET:
        require = require_csv if spec.sink.files.format is FileFormat.CSV else require_json
        require(query.result, "spec.sink.files")
    sink = spec.sink.table or spec.sink.kafka
    if sink is None:
        return ResultKeys()
    require_json(query.result, f"spec.sink.{spec.sink.kind}")
    names = query.result.names
    groups = result_groups(spec)
    known = None if groups is None else [group.known_by(names) for group in groups]
    if known is None and not sink.key:
        known = _identified_by(query, names)
    columns = row_key(spec.sink, names, known)
    if isinstance(query.execution, TableQuery):
        weighted = _is_weighted(query, spec)
        if query.execution.versions:  # rows end where the operators end them
            return ResultKeys(columns, weighted=True, versioned=True, lag=lag_of(query.execution.relation) or 0)
        expires = weighted and spec.emit is Emit.ON_UPDATE
        windows = _open_windows(query.execution, groups or (), names) if expires else ()
        return ResultKeys(columns, _in_key(windows, columns), weighted=weighted)
    weighted = _is_weighted(query, spec)
    if columns is None or not _updates_table(spec):
        return ResultKeys(columns, weighted=weighted)
    _require_retractable(query, spec)
    windows = _closing_windows(groups or (), names, spec)
    return ResultKeys(columns, _in_key(windows, columns), retracts(query, spec) and not weighted, weighted)


def _identified_by(query: CompiledQuery, names: list[str]) -> list[Grouping] | None:
    """Return the columns that identify the rows of a result, as if it were grouped by them; None if none do."""
    key = query.execution.key if isinstance(query.execution, TableQuery) else None
    return None if key is None else [(names[place], (names[place],)) for place in key]


def _in_key(windows: Iterable[WindowColumn], columns: tuple[str, ...] | None) -> WindowColumn | None:
    return next((window for window in windows if window.name in (columns or ())), None)


def lookup_columns(query: CompiledQuery, keys: ResultKeys, spec: Spec) -> tuple[KeyColumn, ...]:
    """Return the key columns of a result table with their types, and which of them identify a window."""
    names = query.result.names
    windows = {
        names[column.position]: (column.part, group.size)
        for group in result_groups(spec) or ()
        if group.size
        for column in group.columns
    }
    return tuple(
        KeyColumn(name, query.result[name].dataType.simpleString(), *windows.get(name, (None, 0)))
        for name in keys.columns or ()
    )


def retracts(query: CompiledQuery, spec: Spec) -> bool:
    """Whether HAVING marks the rows that it does not admit, for a table to retract, instead of dropping them."""
    routed = query.execution
    having = isinstance(routed, Routed) and routed.aggregation is not None and routed.aggregation.having
    return bool(having) and _updates_table(spec)


def _updates_table(spec: Spec) -> bool:
    return spec.sink.table is not None and spec.emit is Emit.ON_UPDATE


def _closing_windows(groups: tuple[Group, ...], names: list[str], spec: Spec) -> Iterator[WindowColumn]:
    """Yield the columns that identify a window whose state is removed once the watermark has passed it."""
    event_times = {source.watermark.column.lower() for source in spec.sources.values() if source.watermark}
    for group in groups:
        if group.event_time.lower() in event_times:
            for column in group.columns:
                if column.part:
                    yield WindowColumn(names[column.position], column.part, group.size)


def _open_windows(tables: TableQuery, groups: tuple[Group, ...], names: list[str]) -> Iterator[WindowColumn]:
    """Yield the columns that identify a window of groups whose state is removed once the watermark has passed it."""
    grouping = tables.groups
    if grouping is None or grouping.window is None or grouping.closing is None:
        return
    for group in groups:
        for column in group.columns:
            if column.part:
                yield WindowColumn(names[column.position], column.part, group.size, grouping.closing.lag)


def _require_retractable(query: CompiledQuery, spec: Spec) -> None:
    """Reject HAVING in Spark's own plan, which keeps no record of the rows that were admitted before."""
    if isinstance(query.execution, Native) and filters_groups(parse_query(query.execution.sql)):
        why = f"because the query is not routed: {query.execution.reason}"
        message = f"a table cannot take back rows that HAVING no longer admits, {why}"
        hint = "leave HAVING to the readers of the table, or write emit: OnWindowClose"
        raise MillraceError(Problem(message, hint, field="spec.query.sql"))
