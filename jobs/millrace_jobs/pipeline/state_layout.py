"""The layout of a query's state, by which a new version of the query is checked against an existing checkpoint.

``outline`` derives it from the SQL text alone, ``layout`` from the compiled query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from millrace_api.model.deployment import Algorithm
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import parse_expression, parse_query, to_sql
from millrace_jobs.aggregates.python_reducing import PythonReduction
from millrace_jobs.pipeline.aggregation import Native
from millrace_jobs.pipeline.compile import STATE_BUCKETS, CompiledQuery, Routed
from millrace_jobs.pipeline.table_relations import TableQuery
from millrace_jobs.pipeline.table_stages import BUCKETS
from millrace_jobs.tables.state import SLOTS

_PLAIN = frozenset({"expressions", "from", "from_", "where", "group", "having", "kind", "operation_modifiers"})
"""Clauses of a SELECT that aggregates records of one source and keeps no other state."""

_NATIVE = frozenset({"text", "GROUP BY"})
"""Entries that mark the state layout of a native query: it has one of them, and a routed query's has neither."""


_STAGES = "operators on tables"
"""Entry of the state layout of a query by operators on tables."""

_PARTITIONS = "first number of partitions"
"""Entry of the state layout of a query by operators on tables: the state stays in the buckets that it began in."""


@dataclass(frozen=True)
class Outline:
    """The parts of a query that decide whether it can continue from the state of another query.

    ``state`` holds the SQL of each part that determines the state, by the name of the part; it is empty if the query
    has no state. Columns of the state have no names, so the order of keys and aggregates matters. ``where`` is the
    filter.
    """

    state: Mapping[str, str]
    where: str


def outline(sql: str, columns: AbstractSet[str]) -> Outline:
    """Return the outline of a query; ``columns`` are the names in its sources, in lower case."""
    query = _normal(parse_query(sql))
    if not _is_plain(query):
        return Outline({"text": to_sql(query)}, "")
    assert isinstance(query, exp.Select)
    source = query.args.get("from_") or query.args.get("from")
    where = query.args.get("where")
    aliases = {item.alias: item.this for item in query.expressions if isinstance(item, exp.Alias)}
    keys = [_resolved(node, query.expressions, {k: v for k, v in aliases.items() if k not in columns})
            for node in (query.args["group"].expressions if query.args.get("group") else [])]  # fmt: skip
    calls = _aggregates([*query.expressions, *filter(None, [query.args.get("having")])])
    if not keys and not calls:
        return Outline({}, to_sql(where) if where else "")
    state = {
        "FROM": to_sql(source.this) if source else "",
        "GROUP BY": ", ".join(map(to_sql, keys)),
        "list of aggregates": ", ".join(calls),
    }
    return Outline(state, to_sql(where) if where else "")


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
    if isinstance(query.execution, Routed | TableQuery) and _PARTITIONS in before:
        return replace(query, execution=replace(query.execution, partitions=before[_PARTITIONS]))
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


def _is_plain(query: exp.Query) -> bool:
    if not isinstance(query, exp.Select) or any(value for clause, value in query.args.items() if clause not in _PLAIN):
        return False
    if any(inner is not query for inner in query.find_all(exp.Select)) or query.find(exp.Window):
        return False
    group = query.args.get("group")
    if group is not None and (group.args.get("all") or group.find(exp.GroupingSets, exp.Cube, exp.Rollup)):
        return False
    return group is None or not any(item.is_star for item in query.expressions)


def _resolved(node: exp.Expr, items: Sequence[exp.Expr], aliases: dict[str, exp.Expr]) -> exp.Expr:
    """Return a key with ordinals and aliases of the SELECT list resolved."""
    if isinstance(node, exp.Literal) and node.is_int and 0 < int(node.name) <= len(items):
        return items[int(node.name) - 1].unalias()
    if isinstance(node, exp.Column):
        return aliases.get(node.name, node)
    return node


def _aggregates(items: Sequence[exp.Expr]) -> list[str]:
    """Return the distinct aggregate calls in order, each with its FILTER."""
    found = (node for item in items for node in item.find_all(exp.AggFunc, exp.Filter))
    return list(dict.fromkeys(to_sql(node) for node in found if not isinstance(node.parent, exp.Filter)))


def _normal(query: exp.Query) -> exp.Query:
    """Return the query with names as Spark compares them; if it has one source, columns lose the source's name."""
    tables = list(query.find_all(exp.Table))
    for name in query.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", False)
    if len(tables) == 1:
        names = (tables[0].name, tables[0].alias_or_name)
        for column in query.find_all(exp.Column):
            if column.table in names:
                column.set("table", None)
        tables[0].set("alias", None)
    return query


def _types(schema: Any) -> list[str]:
    return [f"{field.name}: {field.type}" for field in schema]
