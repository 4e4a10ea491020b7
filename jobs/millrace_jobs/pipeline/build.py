"""Build the streaming DataFrame of a compiled query, in one of two forms.

*Routed*: route -> shuffle to workers -> combine -> shuffle by key -> merge. *Native*: no routing; a SQL query runs by
Spark's own plan. The merge is the same operator over the same state in both forms, so a query can change its form
between two batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.dialect import parse_query
from millrace_api.sql.groups import Group, filters_groups
from millrace_api.validation.results import result_groups, row_key
from millrace_jobs.aggregates.python_reducing import PythonReduction
from millrace_jobs.pipeline import blocks
from millrace_jobs.pipeline.aggregation import Native
from millrace_jobs.pipeline.combine import REPORT, Combiner
from millrace_jobs.pipeline.compile import CompiledQuery, Routed, sql_problem
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.merge import (
    finish,
    merge_partials,
    merge_states,
    single_record_partials,
    started_window,
    watched,
)
from millrace_jobs.pipeline.projection import KEEP, ArrowProjection, SparkProjection
from millrace_jobs.pipeline.reader import ReaderConfig, SourceTask, data_source
from millrace_jobs.pipeline.route import CONTROL, Router, SparkRouteTask
from millrace_jobs.sinks.base import ResultKeys, WindowColumn
from millrace_jobs.sinks.kafka.messages import require_json
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


_CHECKED = "spark.sql.streaming.unsupportedOperationCheck"


def output_mode(query: CompiledQuery, spec: Spec) -> Literal["update", "append"]:
    """Return the Spark output mode that matches when the results of a query are emitted."""
    return "update" if spec.emit is Emit.ON_UPDATE and query.aggregates else "append"


def check_streaming(query: CompiledQuery, spec: Spec, spark: SparkSession, sources: Mapping[str, Source]) -> None:
    """Run the plan check with which Spark starts every stream; nothing is started or written.

    A query that can be routed is not checked: Spark's part of it is always the same, and is known to run.

    Raises:
        MillraceError: Spark supports the query on tables, but not on streams.
    """
    if not isinstance(query.plan, Native) or spark.conf.get(_CHECKED) != "true":
        return
    nowhere = Path("nowhere")  # no folder is read before the first batch
    around = RunContext(spark, sources, nowhere, nowhere, nowhere, everything=True)
    jvm = spark._jvm
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = modes.Update() if output_mode(query, spec) == "update" else modes.Append()
    try:
        plan = build(query, spec, around, routed=False)._jdf.queryExecution().analyzed()
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
    except AnalysisException as error:
        raise MillraceError(sql_problem(error)) from None


def result_keys(planned: CompiledQuery, spec: Spec) -> ResultKeys:
    """Return what the sink of a spec has to know about its results.

    Raises:
        MillraceError: the key does not identify rows, results cannot be written as JSON, or rows that HAVING no
            longer admits could not be retracted.
    """
    if spec.sink.kafka is None and spec.sink.table is None:
        return ResultKeys()
    require_json(planned.result, f"spec.sink.{spec.sink.kind}")
    names = planned.result.names
    groups = result_groups(spec)
    columns = row_key(spec.sink, names, None if groups is None else [group.known_by(names) for group in groups])
    if columns is None or not _updates_table(spec):
        return ResultKeys(columns)
    _require_retractable(planned, spec)
    windows = (window for window in _closing_windows(groups or (), names, spec) if window.name in columns)
    return ResultKeys(columns, next(windows, None), retracts(planned, spec))


def retracts(planned: CompiledQuery, spec: Spec) -> bool:
    """Whether HAVING marks the rows that it does not admit, for a table to retract, instead of dropping them."""
    plan = planned.plan
    having = isinstance(plan, Routed) and plan.aggregation is not None and plan.aggregation.having
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


def _require_retractable(planned: CompiledQuery, spec: Spec) -> None:
    """Reject HAVING in Spark's own plan, which keeps no record of the rows that were admitted before."""
    if isinstance(planned.plan, Native) and filters_groups(parse_query(planned.plan.sql)):
        message = f"a table cannot take back rows that HAVING no longer admits, since {planned.plan.reason}"
        hint = "leave HAVING to the readers of the table, or write emit: OnWindowClose"
        raise MillraceError(Problem(message, hint, field="spec.query.sql"))
