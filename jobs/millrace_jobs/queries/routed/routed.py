"""A query whose records are placed on workers.

Its DataFrame has one of two forms. *Routed*: route -> shuffle to workers -> combine -> shuffle by key -> merge.
*Native*: no routing; Spark combines by its own plan, or each replica its slice. The merge is the same operator over the
same state in both forms, so a query can change its form between two batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from millrace_api.errors import Problem
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.groups import Group
from millrace_jobs.aggregates.python_reducing import PythonReduction
from millrace_jobs.aggregates.reducing import ReducerFactory
from millrace_jobs.changes import WEIGHT
from millrace_jobs.partitioners.registry import NATIVE, is_routed
from millrace_jobs.pipeline import blocks
from millrace_jobs.pipeline.combine import REPORT, Combiner
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.projection import KEEP, ArrowProjection, Projection, SparkProjection
from millrace_jobs.pipeline.reader import SourceTask
from millrace_jobs.pipeline.route import CONTROL, Router, SparkCombineTask, SparkRouteTask
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.dedicated_needs import expression_problem, own_function_problem, source_problem
from millrace_jobs.queries.execution import AlgorithmChoice, Execution, ResultTraits, outputs, seconds
from millrace_jobs.queries.reading import RunContext, observe_notes, read, records, rows_of, watermark_of
from millrace_jobs.queries.results import keys_of_groups, updates_table
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.queries.routed.merge import (
    finish,
    in_order_of_parts,
    merge_changes,
    merge_partials,
    merge_states,
    single_record_partials,
    window_from_start,
)
from millrace_jobs.queries.state_layout import (
    AFTER,
    AGGREGATES,
    COLUMNS,
    IN_ORDER,
    KEYS,
    MERGE,
    PARTITIONS,
    STAGES,
    TYPES,
)
from millrace_jobs.queries.tables.operators.interface import BUCKETS
from millrace_jobs.queries.tables.operators.state import SLOTS
from millrace_jobs.selection.costs import Prior, Resources, python_prior, sql_prior
from millrace_jobs.selection.forecast import Forecaster, starting_algorithm
from millrace_jobs.selection.selector import CANDIDATES, Selector
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sources.base import Source
from millrace_jobs.windows import AT, Window

STATE_BUCKETS = 16
"""Number of key buckets per window in the state of a Python aggregator; part of the state's layout."""


@dataclass(frozen=True)
class Routed(Execution):
    """Work of replicas and workers for a query that can be routed.

    ``ahead``: how long before its window closes a group's row is emitted first, for each output, as in
    ``operators.emission``; empty if Spark's own operators merge and emit. ``partitions``: see ``TableQuery``.
    ``in_order``: whether Spark's state has the columns of all parts in their order; see ``merge.in_order_of_parts``.
    """

    source: str
    window: Window | None
    projection: Projection
    reduction: ReducerFactory
    aggregation: Aggregation | None
    ahead: tuple[int | None, ...] = ()
    partitions: int = 0
    in_order: bool = True

    def build(self, result: StructType, spec: Spec, context: RunContext, *, routed: bool) -> DataFrame:
        """Return the merged and finished groups."""
        partials = self._routed_partials(spec, context) if routed else self._native_partials(spec, context)
        if isinstance(self.reduction, PythonReduction):
            on_close, closes = spec.emit is Emit.ON_WINDOW_CLOSE, self._closing_watermark(spec) is not None
            return merge_states(partials, self.reduction, on_close=on_close, closes=closes)
        assert self.aggregation is not None
        if (routed or self._combines_natively) and self.window is not None:
            partials = partials.withColumn("window", window_from_start(partials, self.window))
        if self.ahead:
            closes, marks = self._closing_watermark(spec) is not None, self.marks(spec)
            changes = merge_changes(partials, self.aggregation, self.ahead, self.partitions, closes=closes)
            if not marks:  # a sink without keys shows every row that is new or replaces another
                changes = changes.where(F.col(WEIGHT) > 0)
            return finish(changes, self.aggregation, result, marks=marks)
        merged = merge_partials(partials, self.aggregation)
        if self.in_order:
            merged = in_order_of_parts(merged, self.aggregation)
        return finish(merged, self.aggregation, result, retracts=self._retracts(spec))

    def _routed_partials(self, spec: Spec, context: RunContext) -> DataFrame:
        """Return the partial results of the workers that the records are routed to."""
        router = self._router(spec, context)
        combiner = Combiner(self.projection.schema, self.reduction)
        if context.sources[self.source].is_placed:
            task = SourceTask("partials", None, router, combiner, own_watermark=bool(self.ahead))
            return self._observed(read(self.source, task, combiner.schema, context), spec)
        if isinstance(router.project, ArrowProjection):
            task = SourceTask("blocks", None, router, own_watermark=bool(self.ahead))
            stream = read(self.source, task, blocks.ARROW_SCHEMA, context)
        else:
            projected = self._projected(spec, context)
            stream = projected.mapInArrow(SparkRouteTask(router), from_arrow_schema(blocks.ARROW_SCHEMA))
        placed = stream.repartition(F.col("shuffle_key"))  # as many tasks as the run loop has set for the batch
        return self._observed(placed.mapInArrow(combiner, from_arrow_schema(combiner.schema)), spec)

    def _native_partials(self, spec: Spec, context: RunContext) -> DataFrame:
        """Return partial results without routing: of single records, or of each replica's slice."""
        if not self._combines_natively:
            assert self.aggregation is not None
            types = from_arrow_schema(self.reduction.schema)
            return single_record_partials(records(self.source, spec, context), self.aggregation, types)
        router = self._router(spec, context)
        combiner = Combiner(self.projection.schema, self.reduction)
        if isinstance(router.project, ArrowProjection):
            task = SourceTask("partials", None, router, combiner, own_watermark=bool(self.ahead))
            return self._observed(read(self.source, task, combiner.schema, context), spec)
        task_of_slice = SparkCombineTask(router, combiner)
        partials = self._projected(spec, context).mapInArrow(task_of_slice, from_arrow_schema(combiner.schema))
        return self._observed(partials, spec)

    @property
    def _combines_natively(self) -> bool:
        """Whether each replica combines its slice where nothing is routed, as Spark's plan cannot run aggregators."""
        return self.aggregation is None or self.aggregation.has_states

    def _observed(self, partials: DataFrame, spec: Spec) -> DataFrame:
        return observe_notes(partials, self.source, REPORT, self._closing_watermark(spec))

    def _closing_watermark(self, spec: Spec) -> tuple[str, str] | None:
        """Return the watermark on partial results; None unless the source's is on the column of the window."""
        declared = spec.sources[self.source].watermark
        on_window = self.window and declared and self.window.column.lower() == declared.column.lower()
        return watermark_of(spec, self.source, AT) if on_window else None

    def _projected(self, spec: Spec, context: RunContext) -> DataFrame:
        """Return the block columns and the filter as computed by Spark, for expressions that Arrow lacks.

        A column is not computed for records that the filter drops, where it may be an error. But event time is read
        from all records, because all of them move the watermark.
        """
        where = self.projection.where
        columns = [
            f"{sql if name == AT or not where else f'CASE WHEN {where} THEN {sql} END'} AS `{name}`"
            for name, sql in self.projection.columns
        ]
        keep = f"({CONTROL} IS NULL) AND coalesce({where or 'true'}, false) AS {KEEP}"
        rows = rows_of(self.source, spec, context, own_watermark=bool(self.ahead))
        return rows.selectExpr(*columns, keep, CONTROL)

    def _router(self, spec: Spec, context: RunContext) -> Router:
        compiled = compile_projection(self.projection, context.sources[self.source].schema)
        time_column = self.window.column if self.window else ""
        since_epoch = self._closing_watermark(spec) is not None and not self.ahead
        if isinstance(compiled, str):
            projection = SparkProjection(self.projection.schema)
            return Router(projection, self.projection.keys, self.window, time_column and AT, since_epoch)
        return Router(compiled, self.projection.keys, self.window, time_column, since_epoch)

    def explain(
        self, result: StructType, spec: Spec, sources: Mapping[str, Source], pin: Pin, partitions: int | None
    ) -> tuple[str, list[str]]:
        """Return the way of a record from its source to its group."""
        if pin.algorithm == NATIVE:
            why = "can be routed, and runs natively: the plan's algorithm is native"
            how = "each replica combines its own slice" if self._combines_natively else "Spark combines by its own plan"
            steps = [f"combine  {how}"]
        else:
            why = f"is routed by {pin.algorithm}{', before the batch' if pin.is_dedicated else ''}"
            packs = ["packs    through a topic with a partition for each worker"] if pin.is_dedicated else []
            route = f"{pin.algorithm} on {self._keys}, m={pin.replicas} replicas to n={pin.workers} workers"
            steps = [f"route    {route}", *packs, f"combine  {self._combining}"]
        return why, [*self._source_steps(spec, sources, pin), *steps, *self._merge_steps(result, spec, partitions)]

    def _source_steps(self, spec: Spec, sources: Mapping[str, Source], pin: Pin) -> list[str]:
        evaluated = compile_projection(self.projection, sources[self.source].schema)
        if pin.algorithm == NATIVE and not self._combines_natively:
            where = "by Spark"
        else:
            where = f"by Spark, because of {evaluated}" if isinstance(evaluated, str) else "by the replicas (Arrow)"
        columns = ", ".join(sql for _, sql in self.projection.columns)
        slices = f"shared by {pin.replicas} processes" if pin.is_dedicated else f"{pin.replicas} slices a batch"
        steps = [
            f"source   {self.source} ({spec.sources[self.source].kind}), {slices}",
            f"decode   to {columns}; expressions {where}",
        ]
        return [*steps, f"filter   {self.projection.where}"] if self.projection.where else steps

    @property
    def _keys(self) -> str:
        return ", ".join(sql for _, sql in self.projection.columns[: self.projection.keys]) or "nothing (one group)"

    @property
    def _combining(self) -> str:
        what = self._keys if self.window is None else f"{self._keys} and pane of {seconds(self.window.pane)}"
        if isinstance(self.reduction, PythonReduction):
            return f"{type(self.reduction.aggregator).__name__} by {what}"
        assert self.aggregation is not None
        if self._windows > 1:
            what += ", then by window"
        return f"{', '.join(aggregate.call for aggregate in self.aggregation.aggregates)} by {what}"

    def _merge_steps(self, result: StructType, spec: Spec, partitions: int | None) -> list[str]:
        watermark = spec.sources[self.source].watermark
        if self.window is None:
            state = "state forever"
        elif watermark is None:
            state = "state forever, as the source has no watermark"
        elif watermark.column.lower() != self.window.column.lower():
            state = f"state forever, as the watermark is on {watermark.column} and the window on {self.window.column}"
        else:
            state = f"state until the watermark, {watermark.delay} behind, passes the window"
        windows = f"{self._windows} window{'s' * (self._windows > 1)}"
        window = f", {windows} of {seconds(self.window.size)} per pane" if self.window else ""
        where = "by the operators on tables" if self.ahead else "in Spark's state store"
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in result)
        return [
            f"merge    by key {where}{window}; {state}",
            *(f"emit     {when}: {columns} -> {sink}" for when, sink in outputs(spec, partitions)),
        ]

    def layout(self) -> dict[str, Any]:
        """Return the keys, the window, and what is stored for each group."""
        window = [self.window.size, self.window.slide, self.window.offset] if self.window else None
        if isinstance(self.reduction, PythonReduction):
            keys, states = _types(self.reduction.keys), _types(self.reduction.aggregator.state_schema)
            return {"keys": keys, "window": window, "states": states, "buckets": STATE_BUCKETS}
        assert self.aggregation is not None
        merge = {MERGE: STAGES, "buckets": BUCKETS, "slots": SLOTS, PARTITIONS: self.partitions}
        own = [part.aggregator for part in self.aggregation.parts if part.aggregator is not None]
        held = own and not self.aggregation.emits_at_once(self.ahead)  # emitted rows, and those held back, are state
        after = [aggregate.after for aggregate in self.aggregation.aggregates]
        return {
            KEYS: [key.sql for key in self.aggregation.keys],
            "window": window,
            AGGREGATES: [aggregate.call for aggregate in self.aggregation.aggregates],
            TYPES: [str(field.type) for field in self.reduction.schema],
            **({AFTER: after} if any(start is not None for start in after) else {}),
            **(merge if self.ahead else {COLUMNS: IN_ORDER} if self.in_order else {}),
            **({"results": [str(aggregator.type) for aggregator in own]} if held else {}),
        }

    def continued(self, before: Mapping[str, Any]) -> Routed:
        """Return the query with the state partitions that its state began in, and the order of its columns."""
        return replace(self, partitions=before.get(PARTITIONS, self.partitions), in_order=COLUMNS in before)

    def result_keys(
        self, columns: tuple[str, ...] | None, names: Sequence[str], groups: Sequence[Group], spec: Spec
    ) -> ResultKeys:
        """Return the keys of the groups; a table retracts what HAVING no longer admits."""
        weighted = self.is_weighted(spec)
        retracts = self._retracts(spec) and not weighted
        return keys_of_groups(columns, names, groups, spec, retracts=retracts, weighted=weighted)

    def _retracts(self, spec: Spec) -> bool:
        """Whether HAVING marks the rows that it does not admit, for a table to retract, instead of dropping them."""
        return self.aggregation is not None and bool(self.aggregation.having) and updates_table(spec)

    def result_partitions(self, state: int) -> int:
        """Return the number of partitions of the state; 1 for one group over all records that Spark's plan merges."""
        query = self.aggregation
        return 1 if query is not None and not (query.keys or query.window or self.ahead) else state

    @property
    def results(self) -> ResultTraits:
        """Whether groups are emitted ahead of their end by operators on tables, or by Spark's aggregation."""
        if self.ahead:
            waits = any(ahead is not None for ahead in self.ahead)
            return ResultTraits(emits_changes=True, takes_back=True, waits=waits)
        # the states of a Python aggregator are emitted by timers
        return ResultTraits(closing_window=self.window if self.aggregation is not None else None)

    def is_routed(self, algorithm: str) -> bool:
        """Whether the algorithm places records."""
        return is_routed(algorithm)

    def is_per_record(self, sources: Mapping[str, Source], *, routed: bool) -> bool:
        """Whether Spark computes the columns of blocks, or combines by its own plan."""
        if routed or self._combines_natively:
            return isinstance(compile_projection(self.projection, sources[self.source].schema), str)
        return True

    @property
    def can_be_native(self) -> bool:
        """Whether it is SQL without aggregators of the query's own."""
        return not self._combines_natively

    @property
    def _windows(self) -> int:
        """Number of windows that a record is in."""
        return self.window.per_record if self.window is not None else 1

    @property
    def choice(self) -> PlacingChoice:
        """The algorithms that place records."""
        return PlacingChoice(not self._combines_natively, self._windows, self.projection.keys > 0)

    def dedicated_problem(self, spec: Spec, schemas: Mapping[str, pa.Schema]) -> Problem | None:
        """Return what of the source or of its expressions they cannot do."""
        if (problem := source_problem(spec.sources[self.source])) is not None:
            return problem
        compiled = compile_projection(self.projection, schemas[self.source])
        if isinstance(compiled, str):
            return expression_problem(compiled)
        calling = compile_projection(replace(self.projection, functions=()), schemas[self.source])
        return own_function_problem(calling) if isinstance(calling, str) else None


@dataclass(frozen=True)
class PlacingChoice(AlgorithmChoice):
    """The choice among algorithms that place records.

    Args:
        sql: whether Spark can combine by its own plan.
        windows: number of windows that a record is in.
        grouped: whether there are keys to group by.
    """

    sql: bool
    windows: int
    grouped: bool

    def candidates(self, placement: Placement) -> tuple[str, ...]:
        """Return all candidates; Dedicated replicas always place, so ``native`` is no choice beside them."""
        return tuple(name for name in CANDIDATES if placement is Placement.INLINE or name != NATIVE)

    def first(self, placement: Placement, *, slices_fill_cores: bool = False) -> Algorithm:
        """Return the choice of a rule, by what is known of a query before its first batch."""
        inline = placement is Placement.INLINE
        fills = slices_fill_cores and inline
        sql = self.sql and inline
        return Algorithm(
            starting_algorithm(sql=sql, windows=self.windows, grouped=self.grouped, slices_fill_cores=fills)
        )

    def selector(self, resources: Resources, first: str, placement: Placement) -> Selector:
        """Return a selector that begins with the assumed costs."""
        return Selector(Forecaster(self.prior, self.candidates(placement)), resources, first)

    @property
    def prior(self) -> Prior:
        """The costs that are assumed of the query before they are measured."""
        return sql_prior(self.windows) if self.sql else python_prior()


def _types(schema: pa.Schema) -> list[str]:
    return [f"{field.name}: {field.type}" for field in schema]
