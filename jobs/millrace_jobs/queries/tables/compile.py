"""The decision whether a query is run by the operators on tables, and the refusal of what no plan can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from sqlglot import exp

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import Algorithm
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.ctes import cte_of
from millrace_api.sql.dialect import problem_at
from millrace_api.sql.event_times import mixed_semi_joins, unclosed_groups, untimed_outer_joins
from millrace_api.sql.own_functions import own_calls, own_name
from millrace_api.sql.parsed_query import ParsedQuery
from millrace_api.sql.schema_ddl import EVENT_TIME, Column
from millrace_api.sql.source_table import SourceTable
from millrace_api.sql.stream_checks import stream_problems
from millrace_api.validation.checking import spark_checks_streams
from millrace_jobs.queries.execution import Execution
from millrace_jobs.queries.native.native import Native
from millrace_jobs.queries.tables.grouping import TypesOf
from millrace_jobs.queries.tables.needs import (
    aggregates_changing_groups,
    asks_of_streams,
    changes_sessions,
    counts_distinct,
    holds_back,
    keeps_times,
    numbers_rows,
    reads_tables,
    shortest_delay,
    subtracts_streams,
    times_ahead,
)
from millrace_jobs.queries.tables.operators.closing import CLOSING, LONELY_UNTIL
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.operators.result_emission import Hold
from millrace_jobs.queries.tables.relations import (
    Enriched,
    Join,
    Relation,
    Selection,
    Union,
    groups_of,
    lag_of,
    wrong_in_spark,
)
from millrace_jobs.queries.tables.scopes import InputTraits, NotATableQueryError
from millrace_jobs.queries.tables.table_query import TableQuery
from millrace_jobs.queries.tables.translation import translate

_CHOSEN = "the algorithm is native"
_HISTORY, _SQL = "spec.sink.table.history", "spec.query.sql"
_CHANGELOG = "spec.sink.files.key"


def compile_tables(
    spec: Spec, parsed: ParsedQuery, schemas: Mapping[str, pa.Schema], types_of: TypesOf, partitions: int
) -> Execution:
    """Translate a query to operators on tables; a query of streams alone that they do not run stays with Spark.

    Args:
        spec: the query's spec.
        parsed: its SQL, which Spark accepts.
        schemas: schema of each source, by name.
        types_of: gives the types of expressions.
        partitions: number of state partitions.

    Raises:
        MillraceError: the query reads a table, or its results change, and this cannot be done.
    """
    held = holds_back(spec)
    meant = parsed.written_out
    counts, sessions = counts_distinct(spec, meant), changes_sessions(spec, meant)
    numbers, asks = numbers_rows(spec, meant), asks_of_streams(spec, meant)
    beyond_spark = held or keeps_times(spec) or counts or sessions or numbers or asks
    is_native = spec.partitioner.algorithm is Algorithm.NATIVE and not beyond_spark and not reads_tables(spec)
    if not beyond_spark and _joins_only_static_tables(spec, meant):
        return compile_native(spec, parsed, schemas, "it joins one stream with static tables only (stream-static join)")
    eager = [output for output in spec.outputs.values() if output.emit is not Emit.ON_WINDOW_CLOSE]
    closes = not eager
    sources = {name.lower(): _traits(spec.sources[name], schema) for name, schema in schemas.items()}
    final_joins = closes or any(not output.sink.replaces_rows for output in eager)
    translated = partial(
        translate, meant, sources, types_of, partitions=partitions, final_groups=closes and not held,
        exact=beyond_spark or reads_tables(spec),
    )  # fmt: skip
    try:
        query = translated(final_joins=final_joins)
        if held and query.groups is None:
            holds = _holds(spec)
            eager_joins = any(hold is None or hold.until != CLOSING for hold in holds)
            query = _results_held_back(translated(final_joins=not eager_joins), holds, spec)
        elif held:
            query = _held_back(query, spec)
        query = replace(query, functions=_own_types(spec, meant)).with_reads_by_cost()
        if spec.sink.has_history:
            query = _with_versions(query)
        elif keeps_times(spec):
            query = _with_times(query)
    except NotATableQueryError as reason:
        refused, line = _placed(reason, parsed, spec)
        if held:
            raise not_held_back(refused, spec) from None
        if spec.sink.has_history:
            problem = Problem(f"the result can have no history: {refused}", "leave history out", field=_HISTORY)
            raise MillraceError(problem) from None
        if keeps_times(spec):
            problem = Problem(f"the result can have no changelog: {refused}", "leave key out", field=_CHANGELOG)
            raise MillraceError(problem) from None
        if sessions and not reads_tables(spec):
            message = f"session_window is not possible under emit {eager[0].emit}: {refused}"
            raise MillraceError(Problem(message, "write emit: OnWindowClose", line=line, field=_SQL)) from None
        if counts and not reads_tables(spec):
            message = f"the query counts distinct values, and {refused}"
            hint = reason.hint or "leave that out, or write approx_count_distinct"
            raise MillraceError(Problem(message, hint, line=line, field=_SQL)) from None
        if numbers and not reads_tables(spec):
            message = f"the query has row_number(), and {refused}"
            raise MillraceError(Problem(message, reason.hint or "leave that out", line=line, field=_SQL)) from None
        if asks and not reads_tables(spec):
            message = f"the query asks whether a stream has a record, and {refused}"
            raise MillraceError(Problem(message, reason.hint or "leave that out", line=line, field=_SQL)) from None
        if not reads_tables(spec) and not subtracts_streams(spec, meant):
            return compile_native(spec, parsed, schemas, _CHOSEN if is_native else str(reason))
        if not reads_tables(spec):
            message = f"the query has EXCEPT or INTERSECT of streams, and {refused}"
            raise MillraceError(Problem(message, reason.hint or "leave that out", line=line, field=_SQL)) from None
        hint = reason.hint or "leave that out, or read the source as a stream, without table"
        raise MillraceError(Problem(f"the query reads a table, and {refused}", hint, line=line, field=_SQL)) from None
    if is_native and wrong_in_spark(query.relation) is None:
        return compile_native(spec, parsed, schemas, _CHOSEN)
    by_spark = not (held or counts or numbers or asks or reads_tables(spec))
    if closes and by_spark and _joins_only_groups(query.relation):
        return compile_native(spec, parsed, schemas, "it joins closed windows, in which no key is hot")
    if query.contents is Contents.TABLE and closes and not held:
        message = "the result is a table of the latest rows, which is never final"
        raise MillraceError(Problem(message, "write emit: OnUpdate", field="spec.emit"))
    shown = [output.sink.kind for output in eager if not output.sink.replaces_rows]
    if query.contents is Contents.TABLE and shown and not query.replaces:
        message = f"the rows of the result change, which {shown[0]} cannot show"
        hint = (
            "write the results to sink.table, or to sink.postgres, sink.mysql, sink.delta, sink.iceberg or sink.files "
            "with a key"
        )
        raise MillraceError(Problem(message, hint, field="spec.sink"))
    return query


def _own_types(spec: Spec, query: ParsedQuery) -> Mapping[str, str]:
    """Return the types that the spec declares for the user's own functions that the SQL calls."""
    declared = spec.query.functions or {}
    return {name: declared[name].returns for name in sorted(set(map(own_name, own_calls(query.tree, declared))))}


def compile_native(spec: Spec, query: ParsedQuery, schemas: Mapping[str, pa.Schema], reason: str) -> Native:
    """Return Spark's own plan, which runs a query for a reason.

    Raises:
        MillraceError: its groups would never close or cannot be updated, or its joins would wait forever or are by two
            event times.
    """
    tables = {
        name.lower(): SourceTable(
            tuple(Column(column, "") for column in schema.names),
            source.watermark.column if (source := spec.sources[name]).watermark else None,
            static=source.is_static,
        )
        for name, schema in schemas.items()
    }
    meant = query.written_out
    scopes = meant.scopes()
    problems = list(_not_materialized(meant, reason))
    problems += list(mixed_semi_joins(query.text, scopes, tables))
    if spark_checks_streams(spec.spark_conf):
        problems += untimed_outer_joins(query.text, scopes, tables)
        problems += () if problems else _not_updated(spec, meant, tables, reason)
    if spec.emit is Emit.ON_WINDOW_CLOSE:
        problems += unclosed_groups(query.text, scopes, tables)
    if problems:
        raise MillraceError(*(replace(problem, field=_SQL) for problem in problems))
    return Native(query, reason)


def _not_materialized(query: ParsedQuery, reason: str) -> Iterator[Problem]:
    """Yield the CTEs that the SQL asks to compute once, and that Spark's own plan computes for each reader."""
    read = Counter(map(cte_of, (subquery.this for subquery in query.tree.find_all(exp.Subquery))))
    for cte, times in read.items():
        if cte is not None and cte.materialized and times > 1:
            plan = f"Spark's own plan, which runs the query because {reason},"
            message = f"{cte.name} is AS MATERIALIZED, and {plan} computes it for each reader"
            yield Problem(message, "leave MATERIALIZED out")


def _not_updated(spec: Spec, query: ParsedQuery, tables: Mapping[str, SourceTable], reason: str) -> Iterator[Problem]:
    """Yield what Spark's own plan cannot update, in a query that operators on tables do not run for a reason."""
    watermarks = {name: table.watermark for name, table in tables.items() if not table.static}
    for problem in stream_problems(query.text, query.tree, query.scopes(), watermarks, emit=spec.emit):
        message = f"only Spark's own plan can run the query, because {reason}, and there {problem.message}"
        yield replace(problem, message=message, hint="write emit: OnWindowClose, and group by windows")


def _held_back(query: TableQuery, spec: Spec) -> TableQuery:
    """Return the query with the groups of its result held back until event time reaches the end of their window."""
    assert query.groups is not None, "other results are held back by ``_results_held_back``"
    ahead = times_ahead(spec, query.groups.closing.lag if query.groups.closing is not None else 0)
    waits = any(each is not None for each in ahead)
    if waits and query.groups.closing is None:
        raise NotATableQueryError("its groups have no window, and no event time in their key")
    return replace(query, ahead=ahead, waits=query.waits or waits)


def _holds(spec: Spec) -> tuple[Hold | None, ...]:
    """Return what each output holds back of results that are no groups.

    A sink that cannot replace rows gets those that are final, as under ``OnWindowClose``.
    """
    lazy = Hold(LONELY_UNTIL, shortest_delay(spec))
    by_strategy = {Emit.ON_UPDATE: None, Emit.ON_WINDOW_END: lazy, Emit.ON_WINDOW_CLOSE: Hold(CLOSING)}
    return tuple(
        by_strategy[output.emit] if output.sink.replaces_rows else Hold(CLOSING) for output in spec.outputs.values()
    )


def _results_held_back(query: TableQuery, holds: tuple[Hold | None, ...], spec: Spec) -> TableQuery:
    """Return the query with results of joins held back; records are final, and rows of tables never are."""
    if query.contents is Contents.RECORDS and not query.has_join:
        raise NotATableQueryError("its rows are neither groups nor results of a join")
    if query.contents is Contents.TABLE and any(output.emit is not Emit.ON_UPDATE for output in spec.outputs.values()):
        raise NotATableQueryError("its rows are those of a table, which are never final: write emit: OnUpdate")
    if query.contents is not Contents.RESULTS:
        holds = (None,) * len(holds)
    if any(hold is not None for hold in holds):
        _check_closing(query.relation)
    return replace(query, holds=holds, waits=query.waits or any(hold is not None for hold in holds))


def _check_closing(relation: Relation) -> None:
    """Raise NotATableQueryError for results of which nothing says until when they can change."""
    while isinstance(relation, Selection | Enriched):
        relation = relation.input
    if isinstance(relation, Union):
        raise NotATableQueryError("its rows are those of a UNION, and only some of them can change")
    if not isinstance(relation, Join):
        return
    if relation.keeps_versions:
        raise NotATableQueryError(f"its {relation.type.upper()} JOIN keeps rows of a table beside a stream")
    for side in (relation.left, relation.right):
        _check_closing(side)


def _with_versions(query: TableQuery) -> TableQuery:
    """Return the query with all versions of its rows."""
    if query.contents is not Contents.TABLE:
        raise NotATableQueryError("its rows are records of a stream, which have no versions")
    return replace(_with_times(query), ends=True)


def _with_times(query: TableQuery) -> TableQuery:
    """Return the query with the periods of its rows; those of records and of sessions are known without versions."""
    if query.contents is not Contents.TABLE or (query.groups is not None and query.groups.session):
        return query
    if lag_of(query.relation) is None:
        raise NotATableQueryError("nothing limits how far behind the watermark its rows can still change")
    return replace(query, versions=True)


def _placed(reason: NotATableQueryError, parsed: ParsedQuery, spec: Spec) -> tuple[str, int | None]:
    """Return a reason with its place in the SQL, and the line of that; the text that a run rewrites has no places."""
    times = [source.watermark.column for source in spec.sources.values() if source.watermark is not None]
    if reason.start is None or EVENT_TIME in times:
        return str(reason), None
    problem = problem_at(parsed.text, reason.start, str(reason), reason.hint)
    return problem.message, problem.line


def not_held_back(reason: str, spec: Spec) -> MillraceError:
    """Return the error for a query whose results cannot be held back."""
    if spec.additional_outputs is None:
        message = f"the query cannot be run with emit OnWindowEnd: {reason}"
        return MillraceError(Problem(message, "write emit: OnUpdate or OnWindowClose", field="spec.emit"))
    message = f"the query cannot have several outputs: {reason}"
    return MillraceError(Problem(message, "leave additionalOutputs out", field="spec.additionalOutputs"))


def _joins_only_groups(relation: Relation) -> bool:
    """Whether both sides of the last join are groups: one row for each key, which Spark joins faster."""
    if isinstance(relation, Selection):
        return _joins_only_groups(relation.input)
    return isinstance(relation, Join) and groups_of(relation.left) is not None and groups_of(relation.right) is not None


def _traits(source: SourceSpec, schema: pa.Schema) -> InputTraits:
    time = source.watermark.column if source.watermark is not None else None
    columns = {field.name: field.dataType for field in from_arrow_schema(schema)}
    return InputTraits(columns, time, source.table.keys if source.table is not None else (), source.is_static)


def _joins_only_static_tables(spec: Spec, query: ParsedQuery) -> bool:
    """Whether a query needs no operator on tables: it reads static tables beside one stream, which it reads once."""
    read = [spec.sources.get(table) for table in query.tables]
    sources = [source for source in read if source is not None]
    others = [source for source in sources if not source.is_static]
    stateless = len(others) == 1 < len(sources) and not others[0].is_evolving
    return stateless and not aggregates_changing_groups(spec, query)
