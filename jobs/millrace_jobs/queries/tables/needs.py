"""What in a query needs operators of our own beside Spark's: tables, joins, versions, and rows that are held back.

Nothing here imports Spark, so that a file can be checked fast.
"""

from __future__ import annotations

from sqlglot import exp

from millrace_api.model.sources import Watermark
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.groups import is_aggregate, is_session
from millrace_api.sql.parsed_query import ParsedQuery


def needs_tables(spec: Spec, query: ParsedQuery) -> bool:
    """Whether a query joins, reads or keeps tables, counts rows or values of streams, or has groups that change."""
    of_tables = reads_tables(spec) or query.has_joins or keeps_times(spec)
    counts = counts_distinct(query) or subtracts_streams(spec, query)
    return of_tables or counts or aggregates_changing_groups(spec, query) or changes_sessions(spec, query)


def counts_distinct(query: ParsedQuery) -> bool:
    """Whether a query has a ``count(DISTINCT ...)``, which Spark does not run on streams."""
    return any(isinstance(call.this, exp.Distinct) for call in query.tree.find_all(exp.Count))


def keeps_times(spec: Spec) -> bool:
    """Whether the sink has to know from when each row is valid: for its history, or for a changelog in files."""
    is_changelog = spec.sink.has_changelog and spec.emit is Emit.ON_UPDATE and spec.additional_outputs is None
    return spec.sink.has_history or is_changelog


def holds_back(spec: Spec) -> bool:
    """Whether rows of groups are held back, as a strategy or several of them on one computation require."""
    return spec.additional_outputs is not None or spec.emit is Emit.ON_WINDOW_END


def may_retract(spec: Spec, query: ParsedQuery) -> bool:
    """Whether rows of a table can cease to pass a filter, so that what runs the query has to take them back."""
    updates = any(output.sink.replaces_rows and output.emit is Emit.ON_UPDATE for output in spec.outputs.values())
    return updates and query.filters_groups


def reads_tables(spec: Spec) -> bool:
    """Whether a source is a table that changes while the query runs."""
    return any(source.is_evolving for source in spec.sources.values())


def aggregates_changing_groups(spec: Spec, query: ParsedQuery) -> bool:
    """Whether groups, or rows without duplicates, are aggregated again before they are final."""
    selects = list(query.tree.find_all(exp.Select))
    grouped = sum(select.args.get("group") is not None or bool(own_aggregates(select)) for select in selects)
    grouped += sum(bool(each.args.get("distinct")) for each in (*selects, *query.tree.find_all(exp.SetOperation)))
    return grouped > 1 and spec.emit is not Emit.ON_WINDOW_CLOSE  # Spark aggregates closed windows itself


def changes_sessions(spec: Spec, query: ParsedQuery) -> bool:
    """Whether sessions are emitted before they are final, which Spark does not do."""
    closes = all(output.emit is Emit.ON_WINDOW_CLOSE for output in spec.outputs.values())
    return not closes and any(map(own_sessions, query.tree.find_all(exp.Select)))


def own_sessions(select: exp.Select) -> list[exp.Expr]:
    """Return the sessions of a SELECT without those of its subqueries."""
    return [
        call for call in select.find_all(exp.Anonymous) if is_session(call) and call.find_ancestor(exp.Select) is select
    ]


def subtracts_streams(spec: Spec, query: ParsedQuery) -> bool:
    """Whether a query has EXCEPT or INTERSECT with two sides that stream; Spark's own plan has neither."""
    streams = {name.lower() for name, source in spec.sources.items() if not source.is_static}

    def reads_stream(side: exp.Expr) -> bool:
        return any(table.name.lower() in streams for table in side.find_all(exp.Table))

    operations = query.tree.find_all(exp.Except, exp.Intersect)
    return any(reads_stream(each.this) and reads_stream(each.expression) for each in operations)


def aggregates_twice(query: ParsedQuery) -> bool:
    """Whether groups or rows without duplicates are aggregated again, or joined with others."""
    selects = query.tree.find_all(exp.Select, exp.SetOperation)
    return sum(bool(each.args.get("group") or each.args.get("distinct") or _aggregates(each)) for each in selects) > 1


def _aggregates(query: exp.Query) -> bool:
    return isinstance(query, exp.Select) and bool(own_aggregates(query))


def own_aggregates(select: exp.Select) -> list[exp.Expr]:
    """Return the aggregate calls of a SELECT without those of its subqueries."""
    calls = select.find_all(exp.Func)
    return [call for call in calls if is_aggregate(call) and call.find_ancestor(exp.Select) is select]


def timed_sources(spec: Spec) -> dict[str, Watermark]:
    """Return the watermarks that count, by source: those of streams, or those of tables if there is no stream."""
    streams = {name: source for name, source in spec.sources.items() if source.table is None}
    sources = streams or spec.sources
    return {name: source.watermark for name, source in sources.items() if source.watermark is not None}


def shortest_delay(spec: Spec) -> int:
    """Return how far event time is ahead of the watermark, in microseconds."""
    return min(watermark.delay.microseconds for watermark in timed_sources(spec).values())


def times_ahead(spec: Spec, lag: int) -> tuple[int | None, ...]:
    """Return how long before its group closes each output of a query emits a row first; see ``operators.emission``.

    ``lag`` is how long after the end of its window a group closes, in microseconds.
    """
    ahead = {Emit.ON_UPDATE: None, Emit.ON_WINDOW_END: lag + shortest_delay(spec), Emit.ON_WINDOW_CLOSE: 0}
    return tuple(ahead[output.emit] for output in spec.outputs.values())
