"""The names of a result's columns, with the stars of its SELECT list written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.sql.dialect import StreamingSql
from millrace_api.sql.groups import is_any_window

_MOST = 10_000
"""Names of a result: each level of stars of the level below, twice, has twice as many."""


def output_names(select: exp.Query) -> list[str]:
    """Return the column names of a SELECT, without stars; Spark names a column without an alias by its text."""
    return [
        call.name.lower() if is_any_window(call) else call.alias_or_name or call.sql(dialect=StreamingSql)
        for call in select.selects
        if not call.is_star
    ]


def expanded_names(scope: Scope, columns: Mapping[str, Sequence[str] | None]) -> list[str] | None:
    """Return the names of a SELECT's result, some perhaps twice; None if only Spark knows them, or there are too many.

    An expression without an alias is here by its text, which is not always the name that Spark gives it.

    Args:
        scope: the scope of the SELECT, or of a UNION and the like.
        columns: column names of the sources, which are in lower case; None where they are unknown.
    """
    if scope.outer_columns:
        return list(scope.outer_columns)
    if scope.set_operation_scopes:
        return expanded_names(scope.set_operation_scopes[0], columns)
    select = scope.expression
    if not isinstance(select, exp.Select) or select.args.get("laterals"):
        return None
    names: list[str] = []
    for item in select.expressions:
        found = _starred(item, scope, columns) if item.is_star else _named(item)
        if found is None or len(names) + len(found) > _MOST:
            return None
        names += found
    return names


def _named(item: exp.Expr) -> list[str] | None:
    if is_any_window(item):
        return [item.name.lower()]
    if not item.alias_or_name and isinstance(item, exp.Literal | exp.Boolean | exp.Null | exp.RawString):
        return None  # Spark names it by its value
    return [item.alias_or_name or item.sql(dialect="spark")]


def _starred(item: exp.Expr, scope: Scope, columns: Mapping[str, Sequence[str] | None]) -> list[str] | None:
    star = item if isinstance(item, exp.Star) else item.this
    if not isinstance(star, exp.Star) or star.args.get("except_") or star.args.get("replace"):
        return None
    joins = scope.expression.args.get("joins") or ()
    if any(join.method for join in joins):
        return None  # a NATURAL JOIN
    left_out = {join.this.alias_or_name.lower() for join in joins if join.kind in ("SEMI", "ANTI")}
    merged = {name.name.lower() for join in joins for name in join.args.get("using") or ()}
    table = item.table.lower() if isinstance(item, exp.Column) else ""
    names: list[str] = []
    for name, (_, source) in scope.selected_sources.items():
        if table not in ("", name.lower()) or (not table and name.lower() in left_out):
            continue
        found = expanded_names(source, columns) if isinstance(source, Scope) else columns.get(source.name.lower())
        if found is None:
            return None
        if len(names) + len(found) > _MOST:
            return None
        names += [each for each in found if table or each.lower() not in merged or each not in names]
    return names or None
