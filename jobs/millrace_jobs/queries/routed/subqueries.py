"""A SELECT over a subquery that only filters and projects its source, as one SELECT over that source.

So an aggregation of a CTE or of a subquery in FROM can be routed like one that reads the source itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlglot import exp

from millrace_api.sql.dialect import FUNCTIONS
from millrace_api.sql.groups import is_aggregate, is_any_window
from millrace_api.sql.varying import VARYING, function_name

_CLAUSES = {"expressions", "from_", "where", "kind", "operation_modifiers"}
"""Clauses of a subquery that can be merged with the SELECT around it."""

_PARTS = ("this", "table", "db", "catalog")
"""The parts of a column of sqlglot, the last one first; a fifth part is a ``Dot`` around it."""

_MAKES_ROWS = frozenset(
    {"explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "stack"}
)


def without_subqueries(query: exp.Query, columns: Collection[str]) -> exp.Query:
    """Return the query over its source in place of such a subquery; as it is if there is none.

    Args:
        query: the query, which is changed.
        columns: the columns of the source, in lower case.
    """
    while isinstance(query, exp.Select) and not query.args.get("joins"):
        source = query.args["from_"].this if query.args.get("from_") else None
        inner = _filter_of(source)
        if source is None or inner is None or not _merged(query, source.alias.lower(), inner, columns):
            break
    return query


def _filter_of(subquery: exp.Expr | None) -> exp.Select | None:
    """Return the SELECT in a subquery that neither drops nor makes rows but by WHERE; None if it does more."""
    if not isinstance(subquery, exp.Subquery) or subquery.alias_column_names:
        return None
    if any(value for part, value in subquery.args.items() if part not in ("this", "alias")):
        return None
    inner = subquery.this
    if not isinstance(inner, exp.Select) or {part for part, value in inner.args.items() if value} - _CLAUSES:
        return None
    own = [*inner.expressions, *filter(None, [inner.args.get("where")])]
    return inner if inner.args.get("from_") and all(map(_is_plain, own)) else None


def _is_plain(expression: exp.Expr) -> bool:
    """Whether an expression of one record has one value, however often it is computed."""
    for node in expression.walk():
        if isinstance(node, exp.Query | exp.Window | exp.UDTF) or is_any_window(node) or is_aggregate(node):
            return False
        if isinstance(node, exp.Func):
            name = function_name(node)
            if name in VARYING | _MAKES_ROWS or (isinstance(node, exp.Anonymous) and name not in FUNCTIONS):
                return False
    return True


def _merged(query: exp.Select, alias: str, inner: exp.Select, columns: Collection[str]) -> bool:
    """Merge a SELECT with the one that it reads, unless a name would then mean another thing; return whether."""
    items = {item.alias_or_name.lower(): item.unalias() for item in inner.expressions if not item.is_star}
    stars = [item for item in inner.expressions if item.is_star]
    if len(items) + len(stars) < len(inner.expressions) or any(map(_leaves_out, stars)):
        return False
    replaced: list[tuple[exp.Column, exp.Expr]] = []
    for column in query.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is not query:
            continue
        parts = list(column.parts)
        if len(parts) > 1 and parts[0].name.lower() == alias:
            parts = parts[1:]
        found = items.get(parts[0].name.lower())
        if found is None and stars:
            replaced.append((column, _field(exp.column(parts[0].copy()), parts[1:])))
        elif found is not None:
            replaced.append((column, _field(found.copy(), parts[1:])))
        elif parts[0].name.lower() in columns:
            return False  # an alias of this SELECT, which a column of the source would hide
    for column, value in replaced:
        is_item = isinstance(column.parent, exp.Select) and column.arg_key == "expressions"
        column.replace(exp.alias_(value, column.name, quoted=True) if is_item else value)
    wheres = [each.args["where"].this for each in (inner, query) if each.args.get("where")]
    query.set("from_", inner.args["from_"].copy())
    query.set("where", exp.Where(this=exp.and_(*(each.copy() for each in wheres))) if wheres else None)
    return True


def _leaves_out(star: exp.Expr) -> bool:
    found = star if isinstance(star, exp.Star) else star.this
    return bool(found.args.get("except_") or found.args.get("replace") or found.args.get("rename"))


def _field(value: exp.Expr, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return a field of a value, in parentheses unless it is a name or a call."""
    if isinstance(value, exp.Column):
        names = [part.copy() for part in (*value.parts, *parts)]
        value, parts = exp.Column(**dict(zip(_PARTS, reversed(names[:4]), strict=False))), names[4:]
    elif not isinstance(value, exp.Func | exp.Literal | exp.Paren):
        value = exp.paren(value, copy=False)
    for part in parts:
        value = exp.Dot(this=value, expression=part.copy())
    return value
