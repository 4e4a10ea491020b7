"""The clauses of a SELECT and of a set operation that no operator on tables runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sqlglot import exp

from millrace_api.sql.dialect import start_of
from millrace_jobs.queries.tables.needs import own_aggregates
from millrace_jobs.queries.tables.scopes import NotATableQueryError

Difference = Literal["EXCEPT", "INTERSECT"]

_CLAUSES = {
    "with_": "a recursive WITH",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
}
_ORDER = "add ORDER BY, which says which rows these are, and LIMIT with a number up to 100"
_OF_SELECTS = {"laterals": "a LATERAL VIEW", "pivots": "PIVOT", "windows": "a WINDOW clause"}


def within_parentheses(query: exp.Expr) -> exp.Expr:
    """Return the query in parentheses. Raises NotATableQueryError if they have LIMIT, ORDER BY or another clause."""
    while isinstance(query, exp.Subquery):
        _refuse(query, _CLAUSES)
        query = query.this
    return query


def plain_select(query: exp.Expr) -> exp.Select:
    """Return the query if it is one SELECT with none of these clauses; raises NotATableQueryError otherwise."""
    if not isinstance(query, exp.Select):
        raise NotATableQueryError(f"it is a {query.key.upper()}, not one SELECT")
    _refuse(query, {**_CLAUSES, **_OF_SELECTS})
    if query.args.get("having") and not query.args.get("group") and not own_aggregates(query):
        raise NotATableQueryError("it has HAVING without groups", "write WHERE")
    if query.args.get("from_") is None:
        raise NotATableQueryError("it has no FROM")
    return query


def set_operation(query: exp.SetOperation) -> Literal["UNION"] | Difference:
    """Return which operation it is, with or without ALL; raises NotATableQueryError for what no operator runs."""
    _refuse(query, _CLAUSES)
    if query.args.get("by_name"):
        reason, hint = f"it has {query.key.upper()} BY NAME", "list the columns of both sides in one order"
        raise NotATableQueryError(reason, hint)
    if isinstance(query, exp.Union):
        return "UNION"
    return "EXCEPT" if isinstance(query, exp.Except) else "INTERSECT"


def _refuse(query: exp.Expr, clauses: Mapping[str, str]) -> None:
    for clause, name in clauses.items():
        if found := query.args.get(clause):
            start = start_of(found) if isinstance(found, exp.Expr) else None
            hint = _ORDER if clause in ("limit", "offset") and not query.args.get("order") else ""
            raise NotATableQueryError(f"it has {name}", hint, start)
