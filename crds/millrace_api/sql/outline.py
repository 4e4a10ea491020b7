"""The outline of a query: the parts of its SQL that decide whether it can continue from another query's state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError

from millrace_api.sql.dialect import parse_expression, to_sql
from millrace_api.sql.groups import is_aggregate
from millrace_api.sql.parsed_query import ParsedQuery

AGGREGATES = "list of aggregates"
"""Name of the part of an outline that has the aggregates."""

_Expression = TypeVar("_Expression", bound=exp.Expr)

_PLAIN = frozenset({"expressions", "from", "from_", "where", "group", "having", "kind", "operation_modifiers"})
"""Clauses of a SELECT that aggregates records of one source and keeps no other state."""


@dataclass(frozen=True)
class Outline:
    """The parts of a query that decide whether it can continue from the state of another query.

    ``state`` holds the SQL of each part that determines the state, by the name of the part; it is empty if the query
    has no state. Columns of the state have no names, so the order of keys and aggregates matters to Spark's own plan.
    ``where`` is the filter, and ``keys`` are those of GROUP BY. ``aggregates`` are the calls in that order, in the
    spelling of ``aggregate_text``; HAVING reads those in ``filtering``.

    ``layout`` has the parts that determine the state as checkpoints record them: no name has quotes, and only functions
    that sqlglot knows are aggregates. These are in the order of ``recorded``: each level of an expression before the
    next one.
    """

    state: Mapping[str, str]
    where: str
    layout: Mapping[str, str]
    keys: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()
    filtering: tuple[str, ...] = ()


def outline(parsed: ParsedQuery, columns: AbstractSet[str]) -> Outline:
    """Return the outline of a query; ``columns`` are the names in its sources, in lower case."""
    query = _normal(parsed.copy())
    if not _is_plain(query):
        return Outline({"text": to_sql(query)}, "", {"text": to_sql(_as_recorded(query))})
    assert isinstance(query, exp.Select)
    source = query.args.get("from_") or query.args.get("from")
    where = to_sql(query.args["where"]) if query.args.get("where") else ""
    aliases = {item.alias: item.this for item in query.expressions if isinstance(item, exp.Alias)}
    keys = [_resolved(node, query.expressions, {k: v for k, v in aliases.items() if k not in columns})
            for node in (query.args["group"].expressions if query.args.get("group") else [])]  # fmt: skip
    items = [*query.expressions, *filter(None, [query.args.get("having")])]
    calls, recorded = (tuple(_aggregates(items, by_level=by_level)) for by_level in (False, True))
    if not keys and not calls:
        return Outline({}, where, {})

    def parts(aggregates: Sequence[str]) -> dict[str, str]:
        clauses = {"FROM": to_sql(source.this) if source else "", "GROUP BY": ", ".join(map(to_sql, keys))}
        return {**clauses, AGGREGATES: ", ".join(aggregates)}

    state, texts = parts(calls), tuple(map(to_sql, keys))
    filtering = tuple(_aggregates(list(_read_by_having(query, aliases)), by_level=False))
    _as_recorded(query)
    known = _aggregates(items, by_level=True, known=True)
    return Outline(state, where, parts(known) if keys or known else {}, texts, calls, recorded, filtering)


def aggregate_text(call: str) -> str:
    """Return the SQL of an aggregate call in the spelling of all equal calls; comments, case, quotes do not count."""
    return to_sql(_plainly_named(parse_expression(call)))


def columns_in(call: str) -> frozenset[str]:
    """Return the names of the columns, or of the structs, that an aggregate call reads, in lower case."""
    return frozenset(column.parts[0].name.lower() for column in parse_expression(call).find_all(exp.Column))


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


def _read_by_having(query: exp.Select, aliases: Mapping[str, exp.Expr]) -> Iterator[exp.Expr]:
    """Yield HAVING, and the items of the SELECT list that it reads by their aliases."""
    read, unseen = list(filter(None, [query.args.get("having")])), dict(aliases)
    while read:
        node = read.pop()
        yield node
        names = (column.parts[0].name for column in node.find_all(exp.Column))
        read += [unseen.pop(name) for name in names if name in unseen]


def _aggregates(items: Sequence[exp.Expr], *, by_level: bool, known: bool = False) -> list[str]:
    """Return the distinct aggregate calls, each with its FILTER, as Spark's plan has them or level by level.

    ``known``: only those of functions that sqlglot knows.
    """
    found = (node for item in items for node in item.find_all(exp.Func, exp.Filter, exp.Any, bfs=by_level))
    calls = (each for each in found if isinstance(each, exp.AggFunc | exp.Filter) or (not known and _unknown(each)))
    return list(dict.fromkeys(to_sql(node) for node in calls if not isinstance(node.parent, exp.Filter)))


def _unknown(node: exp.Expr) -> bool:
    """Whether a call is of an aggregate that sqlglot does not know: ``any(flag)`` is a predicate to it."""
    return isinstance(node, exp.Any) or is_aggregate(node)


def _normal(query: exp.Query) -> exp.Query:
    """Rewrite the query with names as Spark compares them; if it has one source, columns lose the source's name."""
    tables = list(_plainly_named(query).find_all(exp.Table))
    if len(tables) == 1:
        names = (tables[0].name, tables[0].alias_or_name)
        for column in query.find_all(exp.Column):
            if column.table in names:
                column.set("table", None)
        if not tables[0].alias_column_names:
            tables[0].set("alias", None)
    return query


def _plainly_named(node: _Expression) -> _Expression:
    """Write all names in lower case, and in quotes only where they need them, in place."""
    for name in node.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", _needs_quotes(name.name))
    return node


def _as_recorded(query: exp.Query) -> exp.Query:
    """Write a query as checkpoints record it: all names without quotes, its one source without alias, in place."""
    for name in query.find_all(exp.Identifier):
        name.set("quoted", False)
    tables = list(query.find_all(exp.Table))
    if len(tables) == 1:
        tables[0].set("alias", None)
    return query


@lru_cache(maxsize=1024)
def _needs_quotes(name: str) -> bool:
    """Whether a name in lower case is read as something else without quotes, such as ``a-b`` or ``current_date``."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        return True
    try:
        return not isinstance(parse_expression(name), exp.Column)
    except SqlglotError:
        return True
