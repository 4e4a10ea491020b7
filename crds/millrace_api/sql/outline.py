"""The outline of a query: the parts of its SQL that decide whether it can continue from another query's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sqlglot import exp

from millrace_api.sql.dialect import to_sql
from millrace_api.sql.parsed_query import ParsedQuery

_PLAIN = frozenset({"expressions", "from", "from_", "where", "group", "having", "kind", "operation_modifiers"})
"""Clauses of a SELECT that aggregates records of one source and keeps no other state."""


@dataclass(frozen=True)
class Outline:
    """The parts of a query that decide whether it can continue from the state of another query.

    ``state`` holds the SQL of each part that determines the state, by the name of the part; it is empty if the query
    has no state. Columns of the state have no names, so the order of keys and aggregates matters. ``where`` is the
    filter.
    """

    state: Mapping[str, str]
    where: str


def outline(parsed: ParsedQuery, columns: AbstractSet[str]) -> Outline:
    """Return the outline of a query; ``columns`` are the names in its sources, in lower case."""
    query = _normal(parsed.copy())
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
    """Rewrite the query with names as Spark compares them; if it has one source, columns lose the source's name."""
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
