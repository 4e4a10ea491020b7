"""Conditions of WHERE on whether a subquery has rows: EXISTS, NOT EXISTS and IN, which are semi and anti joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from millrace_api.sql.dialect import to_sql
from millrace_jobs.queries.tables.scopes import NotATableQueryError, Scope, Scopes


@dataclass(frozen=True)
class Existence:
    """The condition that a subquery has a row, or none if ``negated``; for IN, one that equals ``value``."""

    query: exp.Select
    negated: bool
    value: exp.Expr | None = None


def existence_of(condition: exp.Expr) -> Existence | None:
    """Return a conjunct of WHERE as what it says of a subquery; None if it has no subquery.

    Raises:
        NotATableQueryError: the subquery is not a conjunct of its own, or NOT IN.
    """
    inner, negated = condition.unnest(), False
    while isinstance(inner, exp.Not):
        inner, negated = inner.this.unnest(), not negated
    if isinstance(inner, exp.Exists):
        return Existence(_select(inner.this), negated)
    if isinstance(inner, exp.In) and inner.args.get("query") is not None:
        if negated:
            raise NotATableQueryError(
                "it has NOT IN with a subquery, which holds for no row once the subquery has a NULL",
                "write NOT EXISTS (SELECT 1 FROM t WHERE t.key = a.key)",
            )
        return Existence(_select(inner.args["query"]), negated, inner.this)
    if condition.find(exp.Query) is not None:
        raise NotATableQueryError(
            f"it has a subquery in {to_sql(condition)}",
            "write EXISTS, NOT EXISTS or IN as a condition of its own, beside others with AND",
        )
    return None


def correlated(part: exp.Expr, outer: Scope, inner: Scope) -> exp.Expr:
    """Return a condition of a subquery over internal columns: those of the subquery, or else of the query around it."""
    own, around = Scopes(inner), Scopes(outer)

    def resolved(node: exp.Expr) -> exp.Expr:
        return (own if own.knows(node) else around).resolved(node) if isinstance(node, exp.Column) else node

    return part.copy().transform(resolved)


def equalities(existence: Existence, outer: Scope, items: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return what IN says: that its value, or each one in parentheses, equals an item of the subquery.

    ``items`` are over internal columns.
    """
    if existence.value is None:
        return []
    values = existence.value.expressions if isinstance(existence.value, exp.Tuple) else [existence.value]
    if len(values) != len(items):
        raise NotATableQueryError(
            f"its IN compares {len(values)} with {len(items)} columns of a subquery: {to_sql(existence.query)}"
        )
    around = Scopes(outer)
    pairs = zip(values, items, strict=True)
    return [exp.EQ(this=around.resolved(value.unnest()), expression=item) for value, item in pairs]


def _select(query: exp.Expr) -> exp.Select:
    query = query.unnest()
    if not isinstance(query, exp.Select):
        reason = f"it has EXISTS or IN of {to_sql(query)}, which is not one SELECT"
        raise NotATableQueryError(reason, "write SELECT ... FROM (the query) u")
    query = query.copy()
    query.set("distinct", None)  # how often a row is there does not matter
    return query
