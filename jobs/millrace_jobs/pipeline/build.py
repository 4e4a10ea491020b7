"""Build the streaming DataFrame of a compiled query, in one of two forms.

*Routed*: route -> shuffle to workers -> combine -> shuffle by key -> merge. *Native*: no routing; a SQL query runs by
Spark's own plan. The merge is the same operator over the same state in both forms, so a query can change its form
between two batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs.aggregates.python_reducing import PythonReduction
from millrace_jobs.pipeline import blocks
from millrace_jobs.pipeline.analysis import CompiledQuery, Routed
from millrace_jobs.pipeline.combine import REPORT, Combiner
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.front_end import Native
from millrace_jobs.pipeline.merge import finish, merge_partials, single_record_partials, started_window, watched
from millrace_jobs.pipeline.merge_states import merge_states
from millrace_jobs.pipeline.projection import KEEP, ArrowProjection, SparkProjection
from millrace_jobs.pipeline.reader import ReaderConfig, SourceTask, data_source
from millrace_jobs.pipeline.result_keys import retracts
from millrace_jobs.pipeline.route import CONTROL, Router, SparkRouteTask
from millrace_jobs.sources.base import Source
from millrace_jobs.windows import AT


@dataclass(frozen=True)
class RunContext:
    """Environment that a query runs in: its sources, and the files it shares with them."""

    spark: SparkSession
    sources: Mapping[str, Source]
    control: Path
    checkpoint: Path
    policies: Path
    everything: bool


def build(query: CompiledQuery, spec: Spec, around: RunContext, *, routed: bool) -> DataFrame:
    """Return the streaming DataFrame of a query's results."""
    plan = query.plan
    if isinstance(plan, Native):
        for name in spec.sources:
            records(name, spec, around).createOrReplaceTempView(name)
        return around.spark.sql(plan.sql)
    partials = _routed_partials(plan, spec, around) if routed else _native_partials(plan, spec, around)
    if isinstance(plan.reduction, PythonReduction):
        on_close, closes = spec.emit is Emit.ON_WINDOW_CLOSE, _closing_watermark(plan, spec) is not None
        return merge_states(partials, plan.reduction, on_close=on_close, closes=closes)
    assert plan.aggregation is not None
    if routed and plan.window is not None:
        partials = partials.withColumn("window", started_window(partials, plan.window))
    merged = merge_partials(partials, plan.aggregation)
    return finish(merged, plan.aggregation, query.result, retracts=retracts(query, spec))


def is_per_record(query: CompiledQuery, around: RunContext, *, routed: bool) -> bool:
    """Whether Spark's own operators process single records, rather than what Millrace has made of many."""
    plan = query.plan
    if isinstance(plan, Native):
        return True
    return isinstance(_router(plan, around).project, SparkProjection) if routed else plan.aggregation is not None


def records(name: str, spec: Spec, around: RunContext) -> DataFrame:
    """Return a source as a table with its watermark; its control rows are observed and dropped."""
    return watched(_rows(name, spec, around), name, CONTROL, _watermark(spec, name))


def _rows(name: str, spec: Spec, around: RunContext) -> DataFrame:
    watermark = spec.sources[name].watermark
    schema = around.sources[name].schema.append(pa.field(CONTROL, pa.string()))
    return _read(name, SourceTask("rows", watermark.column if watermark else None), schema, around)


def _watermark(spec: Spec, name: str, column: str | None = None) -> tuple[str, str] | None:
    watermark = spec.sources[name].watermark
    if watermark is None:
        return None
    return column or watermark.column, f"{watermark.delay.microseconds} microseconds"


def _routed_partials(plan: Routed, spec: Spec, around: RunContext) -> DataFrame:
    """Return the partial results of the workers that the records are routed to."""
    router = _router(plan, around)
    if isinstance(router.project, ArrowProjection):
        stream = _read(plan.source, SourceTask("blocks", None, router), blocks.ARROW_SCHEMA, around)
    else:
        task = SparkRouteTask(router)
        stream = _projected(plan, spec, around).mapInArrow(task, from_arrow_schema(blocks.ARROW_SCHEMA))
    combiner = _combiner(plan)
    placed = stream.repartition(F.col("place"))  # as many tasks as the run loop has set for the batch
    return _partials(placed.mapInArrow(combiner, from_arrow_schema(combiner.schema)), plan, spec)


def _native_partials(plan: Routed, spec: Spec, around: RunContext) -> DataFrame:
    """Return partial results without routing: of single records, or of each replica's slice."""
    if plan.aggregation is not None:
        types = from_arrow_schema(plan.reduction.schema)
        return single_record_partials(records(plan.source, spec, around), plan.aggregation, types)
    router, combiner = _router(plan, around), _combiner(plan)
    task = SourceTask("partials", None, router, combiner)
    return _partials(_read(plan.source, task, combiner.schema, around), plan, spec)


def _partials(stream: DataFrame, plan: Routed, spec: Spec) -> DataFrame:
    return watched(stream, plan.source, REPORT, _closing_watermark(plan, spec))


def _closing_watermark(plan: Routed, spec: Spec) -> tuple[str, str] | None:
    """Return the watermark on partial results; None unless the source's is on the column of the window."""
    declared = spec.sources[plan.source].watermark
    on_window = plan.window and declared and plan.window.column.lower() == declared.column.lower()
    return _watermark(spec, plan.source, AT) if on_window else None


def _projected(plan: Routed, spec: Spec, around: RunContext) -> DataFrame:
    """Return the block columns and the filter as computed by Spark, for expressions that Arrow lacks."""
    keep = f"({CONTROL} IS NULL) AND coalesce({plan.projection.where or 'true'}, false) AS {KEEP}"
    columns = [f"{_filtered(name, sql, plan.projection.where)} AS `{name}`" for name, sql in plan.projection.columns]
    return _rows(plan.source, spec, around).selectExpr(*columns, keep, CONTROL)


def _filtered(name: str, sql: str, where: str) -> str:
    """Return a column's SQL that is not evaluated for records that the filter drops, where it may be an error.

    Event time is read from all records, because all of them move the watermark.
    """
    return sql if name == AT or not where else f"CASE WHEN {where} THEN {sql} END"


def _router(plan: Routed, around: RunContext) -> Router:
    compiled = compile_projection(plan.projection, around.sources[plan.source].schema)
    time = plan.window.column if plan.window else ""
    if isinstance(compiled, str):
        return Router(SparkProjection(plan.projection.schema), plan.projection.keys, plan.window, time and AT)
    return Router(compiled, plan.projection.keys, plan.window, time)


def _combiner(plan: Routed) -> Combiner:
    return Combiner(plan.projection.schema, plan.reduction)


def _read(name: str, task: SourceTask, schema: pa.Schema, around: RunContext) -> DataFrame:
    config = ReaderConfig(
        name=name,
        source=around.sources[name],
        task=task,
        spark_schema=from_arrow_schema(schema),
        control=around.control,
        checkpoint=around.checkpoint,
        policies=around.policies,
        everything=around.everything,
    )
    made = data_source(config)
    around.spark.dataSource.register(made)
    return around.spark.readStream.format(made.name()).load()
