"""Functions of SQL that return another value with each call."""

from __future__ import annotations

from sqlglot import exp

VARYING = frozenset({"monotonically_increasing_id", "rand", "randn", "random", "randstr", "shuffle", "uniform", "uuid"})
"""The names of the functions."""


def function_name(call: exp.Func) -> str:
    """Return the name of the function that is called, in lower case."""
    return (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()


def calls_varying(query: exp.Expr) -> bool:
    """Return whether a query calls one of these functions."""
    return any(function_name(call) in VARYING for call in query.find_all(exp.Func))
