"""What in a query needs operators of our own beside Spark's: tables, joins, versions, and rows that are held back.

Nothing here imports Spark, so that a file can be checked fast.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millrace_api.model.sources import Watermark
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.groups import is_aggregate, is_session
from millrace_api.sql.parsed_query import ParsedQuery
from millrace_api.sql.top_rows import row_numbers


def needs_tables(spec: Spec, query: ParsedQuery) -> bool:
    """Whether a query joins, reads or keeps tables, counts or numbers rows of streams, or has groups that change."""
    of_tables = reads_tables(spec) or query.has_joins or keeps_times(spec)
    counts = counts_distinct(spec, query) or subtracts_streams(spec, query) or numbers_rows(spec, query)
    counts = counts or asks_of_streams(spec, query)
    return of_tables or counts or aggregates_changing_groups(spec, query) or changes_sessions(spec, query)


def counts_distinct(spec: Spec, query: ParsedQuery) -> bool:
    """Whether a query counts or sums distinct values of rows that stream, which Spark's own plan does not do."""
    calls = query.tree.find_all(exp.Count, exp.Sum, exp.Avg)
    counts = (call for call in calls if isinstance(call.this, exp.Distinct))
    selects = (call.find_ancestor(exp.Select) for call in counts)
    return any(select is not None and _reads_stream(spec, select) for select in selects)


def _reads_stream(spec: Spec, query: exp.Expr) -> bool:
    streams = {name.lower() for name, source in spec.sources.items() if not source.is_static}
    return any(table.name.lower() in streams for table in query.find_all(exp.Table))


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
    if spec.emit is Emit.ON_WINDOW_CLOSE:  # Spark aggregates closed windows itself
        return False
    return any(_groupings(part) > 1 for part in _united(query.tree))


def _united(query: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a UNION ALL, none of which aggregates the rows of another; any other query is its own part."""
    inner = query.unnest()
    if not isinstance(inner, exp.Union) or inner.args.get("distinct"):
        yield inner
        return
    yield from _united(inner.this)
    yield from _united(inner.expression)


def _groupings(query: exp.Expr) -> int:
    selects = list(query.find_all(exp.Select))
    grouped = sum(select.args.get("group") is not None or bool(own_aggregates(select)) for select in selects)
    return grouped + sum(bool(each.args.get("distinct")) for each in (*selects, *query.find_all(exp.SetOperation)))


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
    operations = query.tree.find_all(exp.Except, exp.Intersect)
    return any(_reads_stream(spec, each.this) and _reads_stream(spec, each.expression) for each in operations)


def numbers_rows(spec: Spec, query: ParsedQuery) -> bool:
    """Whether a query has ``row_number()`` over rows that stream, which Spark's own plan does not have."""
    return any(row_numbers(select) and _reads_stream(spec, select) for select in query.tree.find_all(exp.Select))


def asks_of_streams(spec: Spec, query: ParsedQuery) -> bool:
    """Whether a query asks if a stream has a record: by EXISTS or IN, or by an ANTI JOIN, which Spark's plan lacks."""
    asked = (each for each in query.tree.find_all(exp.Exists, exp.In) if each.find(exp.Query) is not None)
    lacking = (join.this for join in query.tree.find_all(exp.Join) if join.kind.upper() == "ANTI")
    return any(_reads_stream(spec, each) for each in (*asked, *lacking))


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
