"""The layout of a query's state, by which a new version of the query is checked against a checkpoint.

``millrace_api.sql.outline`` derives from the SQL text alone what decides it; ``Execution.layout`` has all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlglot.errors import SqlglotError

from millrace_api.model.deployment import ANOTHER_CHECKPOINT, Algorithm
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import parse_expression, to_sql
from millrace_api.sql.outline import aggregate_text
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native

_NATIVE = frozenset({"text", "GROUP BY"})
"""Entries that mark the state layout of a native query: it has one of them, and a routed query's has neither."""

STAGES = "operators on tables"
"""Entry of the state layout of a query by operators on tables."""

PARTITIONS = "first number of partitions"
"""Entry of the state layout of a query by operators on tables: the state stays in the buckets that it began in."""

MERGE, KEYS, AGGREGATES, TYPES = "merge", "keys", "aggregates", "types"
"""Entries of the state layout of a routed query: what merges, the keys, the aggregates in the order of their parts, and
the types of partial results.
"""

AFTER = "windows after"
"""Entry of the state layout of a routed query whose state lacks records for some aggregates.

For each aggregate, it is the start of the last window of which records are lacking, in microseconds since 1970, or
None; see ``BuiltinAggregate.after``.
"""

COLUMNS, IN_ORDER = "columns", "in the order of the aggregates"
"""Entry of the state layout of a routed query that Spark merges, and its value.

Older checkpoints lack it: their columns are in the order in which Spark found them in the SQL.
"""


def held_aggregates(layout: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the aggregates whose columns a changed query finds in a state; none where it finds no columns."""
    if layout is None or not (COLUMNS in layout or layout.get(MERGE) == STAGES):
        return ()
    return recorded_aggregates(layout)


def recorded_aggregates(layout: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the aggregates of a routed query that built a state, as often as its layout has them.

    The query is compiled with all of them. An earlier version split each spelling of a call into parts of its own.
    """
    return () if layout is None else tuple(layout.get(AGGREGATES, ()))


def windows_after(layout: Mapping[str, Any] | None) -> tuple[int | None, ...]:
    """Return, for each of ``recorded_aggregates``, the start of the last window of which the state lacks records."""
    return () if layout is None else tuple(layout.get(AFTER, ()))


def spec_to_continue(spec: Spec, before: Mapping[str, Any] | None) -> Spec:
    """Return the spec with which the query is compiled for a state of layout ``before``.

    ``algorithm: native`` is ignored if operators on tables built the state, which Spark's own plan cannot read.
    """
    if not before or STAGES not in before or spec.partitioner.algorithm is not Algorithm.NATIVE:
        return spec
    partitioner = spec.partitioner.model_copy(update={"algorithm": Algorithm.AUTO})
    return spec.model_copy(update={"partitioner": partitioner})


def continue_from(
    query: CompiledQuery, sql: str | None, before: Mapping[str, Any] | None
) -> tuple[CompiledQuery, str | None]:
    """Return the query in the form that can read a state of layout ``before``: native if Spark's own plan built it.

    A query that was not routable can become so with a new version, or when it is written differently. Neither kind of
    plan can read the state of the other. The second part is a note to the user about a query that becomes native.
    """
    if sql is None or not before:
        return query, None
    execution = query.execution
    beyond_spark = execution.results.versions or not execution.can_be_native
    if _NATIVE.intersection(before) and not (execution.is_spark_plan or beyond_spark):
        native = Native(parsed_query(sql), "the state in its checkpoint was built by Spark's own plan")
        why = f"the query runs natively, though it can be routed: {native.reason}"
        return replace(query, execution=native), f"{why}: choose {ANOTHER_CHECKPOINT} to have it routed"
    return replace(query, execution=execution.continued(before)), None


def same_entry(name: str, one: Any, other: Any) -> bool:
    """Whether two values of a layout's entry are the same, however the SQL in them is written.

    Keys and aggregates are SQL over columns, whose names count without case and quotes.
    """
    canonical = aggregate_text if name in (KEYS, AGGREGATES) else _without_layout
    return bool(_canonical(one, canonical) == _canonical(other, canonical))


def _canonical(value: Any, canonical: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return [_canonical(item, canonical) for item in value]
    if not isinstance(value, str):
        return value
    for text in (value, f"SELECT {value}"):  # an expression or a query, otherwise a list of expressions
        with suppress(SqlglotError):
            return canonical(text)
    return value


def _without_layout(text: str) -> str:
    return to_sql(parse_expression(text))
