"""Construction of a compiled query's streaming DataFrame.

The DataFrame has one of two forms. *Routed*: route -> shuffle to workers -> combine -> shuffle by key -> merge.
*Native*: no routing; a SQL query runs by Spark's own plan. The merge is the same operator over the same state in both
forms, so a query can change its form between two batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs.aggregates.python_reducing import PythonReduction
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
from millrace_jobs.pipeline.result_keys import is_held_back, is_weighted, retracts
from millrace_jobs.pipeline.route import CONTROL, Router, SparkRouteTask
from millrace_jobs.pipeline.sql_scope import check_functions
from millrace_jobs.pipeline.table_build import build_tables
from millrace_jobs.pipeline.table_compile import timed_sources
from millrace_jobs.pipeline.table_relations import TableQuery
from millrace_jobs.places import Place
from millrace_jobs.sources.base import Source
from millrace_jobs.tables.changes import CHANGE, WEIGHT
from millrace_jobs.tables.emission import OUTPUT
from millrace_jobs.tables.join_side import Contents
from millrace_jobs.windows import AT

SLICE_RECORDS = 1024
"""Least number of records of a slice where a query reads several sources, which are slices of a batch already.

A slice costs as much as a thousand records and more, whatever it has.
"""


@dataclass(frozen=True)
class RunContext:
    """Environment that a query runs in: its sources, and the files it shares with them.

    ``sources`` are those that stream. A static table is a view of the session, with the source's name.
    ``everything``: the run reads what its sources have when it starts, and then ends.
    """

    spark: SparkSession
    sources: Mapping[str, Source]
    control: Path
    checkpoint: Place
    policies: Place
    everything: bool


def build(query: CompiledQuery, spec: Spec, context: RunContext, *, routed: bool) -> DataFrame:
    """Return the streaming DataFrame of a query's results; ``routed`` chooses the form if the query can be routed."""
    results = _results(query, spec, context, routed=routed)
    check_functions(results)
    return results


def _results(query: CompiledQuery, spec: Spec, context: RunContext, *, routed: bool) -> DataFrame:
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
    return [WEIGHT] if is_weighted(query, spec) else []


def _added(changes: DataFrame) -> DataFrame:
    """Return the changes that a sink without keys shows: every row that is new or replaces another."""
    return changes.where(F.col(WEIGHT) > 0)


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
    required, least = required_columns(spec, name), SLICE_RECORDS if len(context.sources) > 1 else 0
    task = SourceTask("rows", time_column, None, None, own_watermark, since_epoch, required, least)
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
    if isinstance(query.execution, TableQuery) or is_held_back(query):
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
