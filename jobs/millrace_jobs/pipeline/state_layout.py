"""What the state of a query depends on: by its text alone, and as it was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from millrace_api.sql.parsing import parse_expression, parse_query, to_sql
from millrace_jobs.aggregates.python_reducing import PythonReduction
from millrace_jobs.pipeline.analysis import STATE_BUCKETS, CompiledQuery, Routed
from millrace_jobs.pipeline.front_end import Native

_PLAIN = frozenset({"expressions", "from", "from_", "where", "group", "having", "kind", "operation_modifiers"})
"""Clauses of a SELECT that aggregates records of one source, and keeps no state besides."""

_NATIVE = frozenset({"text", "GROUP BY"})
"""Either is in the layout of a native query's state, and neither in that of a routed one."""


@dataclass(frozen=True)
class Outline:
    """What stays the same in a query that can go on from the state of another one.

    ``state`` is the text of all that its state is built by, in the order of the state, which has no names; it is
    empty where the query keeps none. ``where`` is its filter.
    """

    state: Mapping[str, str]
    where: str


def outline(sql: str, columns: AbstractSet[str]) -> Outline:
    """The outline of a query; ``columns`` are the names in its sources, in lower case."""
    query = _normal(parse_query(sql))
    if not _is_plain(query):
        return Outline({"text": to_sql(query)}, "")
    assert isinstance(query, exp.Select)
    source = query.args.get("from_") or query.args.get("from")
    where = query.args.get("where")
    aliases = {item.alias: item.this for item in query.expressions if isinstance(item, exp.Alias)}
    keys = [_meant(node, query.expressions, {k: v for k, v in aliases.items() if k not in columns})
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
    """How a planned query lays out its state, as plain values to be kept and compared."""
    plan = query.plan
    if not isinstance(plan, Routed):
        return dict(outline(plan.sql, frozenset()).state)
    reduction = plan.reduction
    window = [plan.window.size, plan.window.slide, plan.window.offset] if plan.window else None
    if isinstance(reduction, PythonReduction):
        keys, states = reduction.keys, reduction.aggregator.state_schema
        return {"keys": _types(keys), "window": window, "states": _types(states), "buckets": STATE_BUCKETS}
    assert plan.aggregation is not None
    return {
        "keys": [key.sql for key in plan.aggregation.keys],
        "window": window,
        "aggregates": [aggregate.call for aggregate in plan.aggregation.aggregates],
        "types": [str(field.type) for field in reduction.schema],
    }


def as_before(query: CompiledQuery, sql: str | None, before: Mapping[str, Any] | None) -> CompiledQuery:
    """Return the query as it goes on from a state of layout ``before``: natively if Spark's own plan has built that.

    What can be routed grows with each version, and with a query that is written in another way. Neither kind of
    plan can read the state of the other.
    """
    if sql is None or not before or not isinstance(query.plan, Routed) or not _NATIVE.intersection(before):
        return query
    return replace(query, plan=Native(sql, "the state in its checkpoint was built by Spark's own plan"))


def same_sql(one: Any, other: Any) -> bool:
    """Whether two values of layouts are the same, however SQL in them is written."""
    return bool(_canonical(one) == _canonical(other))


def _canonical(value: Any) -> Any:
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if not isinstance(value, str):
        return value
    for text in (value, f"SELECT {value}"):  # an expression or a query, else a list of expressions
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


def _meant(node: exp.Expr, items: Sequence[exp.Expr], aliases: dict[str, exp.Expr]) -> exp.Expr:
    """A key with ordinals and aliases of the SELECT list put in."""
    if isinstance(node, exp.Literal) and node.is_int and 0 < int(node.name) <= len(items):
        return items[int(node.name) - 1].unalias()
    if isinstance(node, exp.Column):
        return aliases.get(node.name, node)
    return node


def _aggregates(places: Sequence[exp.Expr]) -> list[str]:
    """The different aggregate calls in order, each with its FILTER."""
    found = (node for place in places for node in place.find_all(exp.AggFunc, exp.Filter))
    return list(dict.fromkeys(to_sql(node) for node in found if not isinstance(node.parent, exp.Filter)))


def _normal(query: exp.Query) -> exp.Query:
    """The query with names as Spark compares them; with one source, columns without its name."""
    tables = list(query.find_all(exp.Table))
    for name in query.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", False)
    if len(tables) == 1:
        called = (tables[0].name, tables[0].alias_or_name)
        for column in query.find_all(exp.Column):
            if column.table in called:
                column.set("table", None)
        tables[0].set("alias", None)
    return query


def _types(schema: Any) -> list[str]:
    return [f"{field.name}: {field.type}" for field in schema]
