"""Limits on the shape of a query's SQL, so that no text of the longest length takes the operator more than seconds."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millrace_api.errors import Problem

MAX_DEPTH, MAX_SELECTS, MAX_JOINS = 400, 100, 100
"""Levels of an expression, where each operator of a chain like ``a OR b OR c`` is one; SELECTs; joins."""


def size_problems(query: exp.Expr) -> Iterator[Problem]:
    """Yield what of a parsed query is too large to check: the checks take time by the square of these numbers."""
    levels: dict[int, int] = {}
    deepest = selects = joins = 0
    for node in query.walk():  # each node comes after the one that holds it
        level = levels[id(node)] = levels.get(id(node.parent), 0) + 1
        deepest = max(deepest, level)
        selects += isinstance(node, exp.Select)
        joins += isinstance(node, exp.Join)
    if deepest > MAX_DEPTH:
        message = f"the SQL is {deepest} levels deep, where each operator of a chain is one; the limit is {MAX_DEPTH}"
        yield Problem(message, "split it, or write x IN (1, 2, 3) for x = 1 OR x = 2 OR x = 3")
    if selects > MAX_SELECTS:
        yield Problem(f"the SQL has {selects} SELECTs; the limit is {MAX_SELECTS}", "split it into several queries")
    if joins > MAX_JOINS:
        yield Problem(f"the SQL has {joins} joins; the limit is {MAX_JOINS}", "split it into several queries")
