"""Functions of SQL that return another value with each call, or when a batch is computed again."""

from __future__ import annotations

from sqlglot import exp

VARYING = frozenset({"monotonically_increasing_id", "rand", "randn", "random", "randstr", "shuffle", "uniform", "uuid"})
"""The names of the functions that return another value with each call."""

_CLOCKS = frozenset(
    {"curdate", "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "now"}
)
_OF_THE_RUN = VARYING | _CLOCKS | {"spark_partition_id"}


def function_name(call: exp.Func) -> str:
    """Return the name of the function that is called, in lower case."""
    return (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()


def calls_varying(query: exp.Expr) -> bool:
    """Return whether a query calls one of these functions."""
    return any(function_name(call) in VARYING for call in query.find_all(exp.Func))


def call_of_the_run(query: exp.Expr) -> str | None:
    """Return a call whose value depends on when and how a batch is computed, or None.

    Spark also calls ``localtimestamp`` where it is written without parentheses, which is a column here.
    """
    for call in query.find_all(exp.Func):
        name, has_arguments = function_name(call), any(call.iter_expressions())
        if name in _OF_THE_RUN or (name == "unix_timestamp" and not has_arguments):
            return name
    columns = (each for each in query.find_all(exp.Column) if not each.table and not each.this.quoted)
    return next((name for each in columns if (name := each.name.lower()) == "localtimestamp"), None)
