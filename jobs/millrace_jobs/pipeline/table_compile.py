"""The decision whether a query is run by the operators on tables, and the refusal of what no plan can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from sqlglot import exp

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import Algorithm
from millrace_api.model.sources import SourceSpec, Watermark
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.dialect import parse_query
from millrace_jobs.pipeline.aggregation import Native
from millrace_jobs.pipeline.table_grouping import TypesOf
from millrace_jobs.pipeline.table_needs import aggregates_changing_groups, holds_back, reads_tables
from millrace_jobs.pipeline.table_query import translate
from millrace_jobs.pipeline.table_relations import (
    Join,
    Relation,
    Selection,
    TableQuery,
    groups_of,
    lag_of,
    wrong_in_spark,
)
from millrace_jobs.pipeline.table_scopes import InputTraits, NotATableQueryError
from millrace_jobs.tables.join_side import Contents

_CHOSEN = "the algorithm is native"
_HISTORY = "spec.sink.table.history"


def compile_tables(
    spec: Spec, sql: str, schemas: Mapping[str, pa.Schema], types_of: TypesOf, partitions: int
) -> TableQuery | Native:
    """Translate a query to operators on tables; a query of streams alone that they do not run stays with Spark.

    Args:
        spec: the query's spec.
        sql: its SQL, which Spark accepts.
        schemas: schema of each source, by name.
        types_of: gives the types of expressions.
        partitions: number of state partitions.

    Raises:
        MillraceError: the query reads a table, or its results change, and this cannot be done.
    """
    held = holds_back(spec)
    beyond_spark = held or spec.sink.has_history
    is_native = spec.partitioner.algorithm is Algorithm.NATIVE and not beyond_spark and not reads_tables(spec)
    if not beyond_spark and _joins_only_static_tables(spec, sql):
        return Native(sql, "it joins one stream with static tables only (stream-static join)")
    eager = [output for output in spec.outputs.values() if output.emit is not Emit.ON_WINDOW_CLOSE]
    closes = not eager
    sources = {name.lower(): _traits(spec.sources[name], schema) for name, schema in schemas.items()}
    final_joins = closes or any(not output.sink.replaces_rows for output in eager)
    try:
        query = translate(
            sql, sources, types_of, partitions=partitions, final_joins=final_joins, final_groups=closes and not held
        )
        if held:
            query = _held_back(query, spec)
        if spec.sink.has_history:
            query = _with_versions(query)
    except NotATableQueryError as reason:
        if held:
            raise not_held_back(str(reason), spec) from None
        if spec.sink.has_history:
            problem = Problem(f"the result can have no history: {reason}", "leave history out", field=_HISTORY)
            raise MillraceError(problem) from None
        if not reads_tables(spec):
            return Native(sql, _CHOSEN if is_native else str(reason))
        hint = "leave that out, or read the source as a stream, without table"
        raise MillraceError(Problem(f"the query reads a table, and {reason}", hint, field="spec.query.sql")) from None
    if is_native and wrong_in_spark(query.relation) is None:
        return Native(sql, _CHOSEN)
    if closes and not held and not reads_tables(spec) and _joins_only_groups(query.relation):
        return Native(sql, "it joins closed windows, in which no key is hot")
    if query.contents is Contents.TABLE and closes and not held:
        message = "the result is a table of the latest rows, which is never final"
        raise MillraceError(Problem(message, "write emit: OnUpdate", field="spec.emit"))
    shown = [output.sink.kind for output in eager if not output.sink.replaces_rows]
    if query.contents is Contents.TABLE and shown and not query.replaces:
        message = f"the rows of the result change, which {shown[0]} cannot show"
        hint = "write the results to sink.table, or to sink.postgres, sink.mysql, sink.delta or sink.iceberg with a key"
        raise MillraceError(Problem(message, hint, field="spec.sink"))
    return query


def times_ahead(spec: Spec, lag: int) -> tuple[int | None, ...]:
    """Return how long before its group closes each output of a query emits a row first; see ``tables.emission``.

    ``lag`` is how long after the end of its window a group closes, in microseconds.
    """
    delay = min(watermark.delay.microseconds for watermark in timed_sources(spec).values())
    ahead = {Emit.ON_UPDATE: None, Emit.ON_WINDOW_END: lag + delay, Emit.ON_WINDOW_CLOSE: 0}
    return tuple(ahead[output.emit] for output in spec.outputs.values())


def _held_back(query: TableQuery, spec: Spec) -> TableQuery:
    """Return the query with the groups of its result held back until event time reaches the end of their window."""
    if query.groups is None:
        raise NotATableQueryError("its rows are no groups")
    if query.groups.closing is None:
        raise NotATableQueryError("its groups have no window, and no event time in their key")
    ahead = times_ahead(spec, query.groups.closing.lag)
    return replace(query, ahead=ahead, waits=query.waits or any(each is not None for each in ahead))


def _with_versions(query: TableQuery) -> TableQuery:
    """Return the query with all versions of its rows."""
    if query.contents is not Contents.TABLE:
        raise NotATableQueryError("its rows are records of a stream, which have no versions")
    if lag_of(query.relation) is None:
        raise NotATableQueryError("nothing limits how far behind the watermark its rows can still change")
    return replace(query, versions=True)


def not_held_back(reason: str, spec: Spec) -> MillraceError:
    """Return the error for a query whose results cannot be held back."""
    if spec.additional_outputs is None:
        message = f"the query cannot be run with emit OnWindowEnd: {reason}"
        return MillraceError(Problem(message, "write emit: OnUpdate or OnWindowClose", field="spec.emit"))
    message = f"the query cannot have several outputs: {reason}"
    return MillraceError(Problem(message, "leave additionalOutputs out", field="spec.additionalOutputs"))


def timed_sources(spec: Spec) -> dict[str, Watermark]:
    """Return the watermarks that count, by source: those of streams, or those of tables if there is no stream."""
    streams = {name: source for name, source in spec.sources.items() if source.table is None}
    sources = streams or spec.sources
    return {name: source.watermark for name, source in sources.items() if source.watermark is not None}


def _joins_only_groups(relation: Relation) -> bool:
    """Whether both sides of the last join are groups: one row for each key, which Spark joins faster."""
    if isinstance(relation, Selection):
        return _joins_only_groups(relation.input)
    return isinstance(relation, Join) and groups_of(relation.left) is not None and groups_of(relation.right) is not None


def _traits(source: SourceSpec, schema: pa.Schema) -> InputTraits:
    time = source.watermark.column if source.watermark is not None else None
    columns = {field.name: field.dataType for field in from_arrow_schema(schema)}
    return InputTraits(columns, time, source.table.keys if source.table is not None else (), source.is_static)


def _joins_only_static_tables(spec: Spec, sql: str) -> bool:
    """Whether a query needs no operator on tables: it reads static tables beside one stream, which it reads once."""
    query = parse_query(sql)
    read = [spec.sources.get(table.name.lower()) for table in query.find_all(exp.Table)]
    sources = [source for source in read if source is not None]
    others = [source for source in sources if not source.is_static]
    stateless = len(others) == 1 < len(sources) and not others[0].is_evolving
    return stateless and not aggregates_changing_groups(spec, query)
