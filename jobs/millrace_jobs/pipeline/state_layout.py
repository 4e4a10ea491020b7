"""The layout of a compiled query's state, by which a new version of the query is checked against a checkpoint.

``millrace_api.sql.outline`` derives from the SQL text alone what decides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlglot.errors import SqlglotError

from millrace_api.model.deployment import Algorithm
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import parse_expression, to_sql
from millrace_api.sql.outline import outline
from millrace_jobs.aggregates.python_reducing import PythonReduction
from millrace_jobs.pipeline.aggregation import Native
from millrace_jobs.pipeline.compile import STATE_BUCKETS, CompiledQuery, Routed
from millrace_jobs.pipeline.table_relations import TableQuery, below, joins_streams
from millrace_jobs.tables.operator import BUCKETS
from millrace_jobs.tables.state import SLOTS

_NATIVE = frozenset({"text", "GROUP BY"})
"""Entries that mark the state layout of a native query: it has one of them, and a routed query's has neither."""


_STAGES = "operators on tables"
"""Entry of the state layout of a query by operators on tables."""

_PARTITIONS = "first number of partitions"
"""Entry of the state layout of a query by operators on tables: the state stays in the buckets that it began in."""

_STREAM_JOIN_BUCKETS = "buckets of joins of streams"
"""Entry of the state layout of a query with such a join; earlier checkpoints have as many of them as other stages."""

_WAKES = "timers"
"""Entry of the state layout of a query by operators on tables that has none; earlier checkpoints have some."""


def layout(query: CompiledQuery) -> dict[str, Any]:
    """Return how a compiled query lays out its state, as plain values that can be stored and compared."""
    routed = query.execution
    if isinstance(routed, TableQuery):
        return {
            _STAGES: routed.sql,
            "columns": list(routed.columns),
            "waits for the watermark": routed.waits,
            "buckets": BUCKETS,
            "slots": SLOTS,
            _PARTITIONS: routed.partitions,
            **_stream_join_layout(routed),
            **({} if routed.wakes else {_WAKES: False}),
            **({"versions": "kept for the table's history"} if routed.versions else {}),
        }
    if isinstance(routed, Native):
        return dict(outline(routed.sql, frozenset()).state)
    reduction = routed.reduction
    window = [routed.window.size, routed.window.slide, routed.window.offset] if routed.window else None
    if isinstance(reduction, PythonReduction):
        keys, states = reduction.keys, reduction.aggregator.state_schema
        return {"keys": _types(keys), "window": window, "states": _types(states), "buckets": STATE_BUCKETS}
    assert routed.aggregation is not None
    return {
        "keys": [key.sql for key in routed.aggregation.keys],
        "window": window,
        "aggregates": [aggregate.call for aggregate in routed.aggregation.aggregates],
        "types": [str(field.type) for field in reduction.schema],
        **(_merge_layout(routed) if routed.ahead else {}),
    }


def _stream_join_layout(query: TableQuery) -> dict[str, Any]:
    differs = query.stream_join_buckets != BUCKETS and any(map(joins_streams, below(query.relation)))
    return {_STREAM_JOIN_BUCKETS: query.stream_join_buckets} if differs else {}


def _merge_layout(routed: Routed) -> dict[str, Any]:
    return {"merge": _STAGES, "buckets": BUCKETS, "slots": SLOTS, _PARTITIONS: routed.partitions}


def spec_to_continue(spec: Spec, before: Mapping[str, Any] | None) -> Spec:
    """Return the spec with which the query is compiled for a state of layout ``before``.

    ``algorithm: native`` is ignored if operators on tables built the state, which Spark's own plan cannot read.
    """
    if not before or _STAGES not in before or spec.partitioner.algorithm is not Algorithm.NATIVE:
        return spec
    partitioner = spec.partitioner.model_copy(update={"algorithm": Algorithm.AUTO})
    return spec.model_copy(update={"partitioner": partitioner})


def continue_from(query: CompiledQuery, sql: str | None, before: Mapping[str, Any] | None) -> CompiledQuery:
    """Return the query in the form that can read a state of layout ``before``: native if Spark's own plan built it.

    A query that was not routable can become so with a new version, or when it is written differently. Neither kind of
    plan can read the state of the other.
    """
    if sql is None or not before or isinstance(query.execution, Native):
        return query
    has_versions = isinstance(query.execution, TableQuery) and query.execution.versions
    if _NATIVE.intersection(before) and not has_versions:  # of which Spark's own plan has none
        return replace(query, execution=Native(sql, "the state in its checkpoint was built by Spark's own plan"))
    if isinstance(query.execution, Routed) and _PARTITIONS in before:
        return replace(query, execution=replace(query.execution, partitions=before[_PARTITIONS]))
    if isinstance(query.execution, TableQuery) and _PARTITIONS in before:
        began = replace(
            query.execution,
            partitions=before[_PARTITIONS],
            stream_join_buckets=before.get(_STREAM_JOIN_BUCKETS, BUCKETS),
            wakes=before.get(_WAKES, True),
        )
        return replace(query, execution=began)
    return query


def same_sql(one: Any, other: Any) -> bool:
    """Whether two layout values are the same, however the SQL in them is written."""
    return bool(_canonical(one) == _canonical(other))


def _canonical(value: Any) -> Any:
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if not isinstance(value, str):
        return value
    for text in (value, f"SELECT {value}"):  # an expression or a query, otherwise a list of expressions
        with suppress(SqlglotError):
            return to_sql(parse_expression(text))
    return value


def _types(schema: Any) -> list[str]:
    return [f"{field.name}: {field.type}" for field in schema]
