"""The choice of what runs the SQL of a query: workers, operators on tables, or Spark's own plan; and what none can run.

A run asks Spark for types. ``millrace validate`` goes by the declared ones, so that it says what a run would say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from sqlglot.optimizer.scope import traverse_scope

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.dialect import parse_query
from millrace_api.sql.event_times import mixed_semi_joins, unclosed_groups
from millrace_api.sql.schema_ddl import Column
from millrace_api.sql.source_table import SourceTable
from millrace_jobs.pipeline.aggregation import Aggregation, Native, compile_sql
from millrace_jobs.pipeline.expression_types import ExpressionTypes
from millrace_jobs.pipeline.table_compile import compile_tables, not_held_back, times_ahead
from millrace_jobs.pipeline.table_grouping import merge_of
from millrace_jobs.pipeline.table_needs import holds_back, needs_tables
from millrace_jobs.pipeline.table_relations import TableQuery
from millrace_jobs.pipeline.table_scopes import NotATableQueryError


def choose_execution(
    spec: Spec, sql: str, schemas: Mapping[str, pa.Schema], types: ExpressionTypes, partitions: int
) -> Aggregation | TableQuery | Native:
    """Return what runs the SQL of a query.

    Args:
        spec: the query's spec.
        sql: its SQL, which Spark accepts.
        schemas: schema of each source, by name.
        types: gives the types of expressions.
        partitions: number of state partitions.

    Raises:
        MillraceError: nothing can run it.
    """
    if needs_tables(spec, sql):
        chosen = compile_tables(spec, sql, schemas, types.of, partitions)
        if isinstance(chosen, Native):
            _require_event_times(spec, sql, schemas)
        return chosen
    compiled = compile_sql(sql, schemas, lambda expression: types.in_source(next(iter(schemas)), expression))
    if isinstance(compiled, Native):
        return compile_tables(spec, sql, schemas, types.of, partitions) if holds_back(spec) else compiled
    ahead_of(compiled, spec)
    return compiled


def _require_event_times(spec: Spec, sql: str, schemas: Mapping[str, pa.Schema]) -> None:
    """Raise MillraceError for groups that Spark's own plan would never close, and for joins by two event times."""
    tables = {
        name.lower(): SourceTable(
            tuple(Column(column, "") for column in schema.names),
            source.watermark.column if (source := spec.sources[name]).watermark else None,
            static=source.is_static,
        )
        for name, schema in schemas.items()
    }
    scopes = traverse_scope(parse_query(sql))
    problems = list(mixed_semi_joins(sql, scopes, tables))
    if spec.emit is Emit.ON_WINDOW_CLOSE:
        problems += unclosed_groups(sql, scopes, tables)
    if problems:
        raise MillraceError(*(replace(problem, line=None, field="spec.query.sql") for problem in problems))


def ahead_of(query: Aggregation, spec: Spec) -> tuple[int | None, ...]:
    """Return ``Routed.ahead``; raises MillraceError if the groups cannot be merged so that they are held back."""
    if not holds_back(spec):
        return ()
    watermark = spec.sources[query.source].watermark
    if query.window is None or watermark is None or query.window.column.lower() != watermark.column.lower():
        raise not_held_back("it has no window on the column of the watermark", spec)
    try:
        for aggregate in query.aggregates:
            for part in aggregate.parts:
                merge_of(part, aggregate)
    except NotATableQueryError as reason:
        raise not_held_back(str(reason), spec) from None
    return times_ahead(spec, lag=0)
