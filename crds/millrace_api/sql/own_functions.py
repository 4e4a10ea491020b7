"""The names, types and calls of functions that a query defines in Python."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlglot import exp
from sqlglot.errors import SqlglotError

from millrace_api.errors import MillraceError
from millrace_api.sql.dialect import FUNCTIONS, parse_expression
from millrace_api.sql.schema_ddl import parse_schema, type_problem


def name_problem(name: str) -> tuple[str, str] | None:
    """Return why no function may have a name, and the remedy; None if one may."""
    if name in FUNCTIONS:
        return f'"{name}" is a function of Spark SQL', f"write another name, such as my_{name}"
    try:
        call = parse_expression(f"{name}(1)")
    except (SqlglotError, MillraceError):
        call = None
    if not isinstance(call, exp.Anonymous) or call.name != name:
        return f'"{name}" is a word of SQL', f"write another name, such as my_{name}"
    return None


def returns_problem(text: str) -> tuple[str, str] | None:
    """Return why a function may not return values of a type, and the remedy; None if it may."""
    try:
        columns = parse_schema(f"value {text}")
    except MillraceError:
        columns = ()
    if len(columns) != 1 or not columns[0].is_scalar or type_problem(columns[0]) is not None:
        hint = "write the type of a single value, such as STRING, BIGINT, DOUBLE, DECIMAL(10, 2) or TIMESTAMP"
        return f'"{text}" is no type of a function\'s values', hint
    return None


def own_calls(tree: exp.Expr, names: Collection[str]) -> Iterator[exp.Anonymous]:
    """Yield the calls of these functions, whose names are in lower case; ``own_name`` gives which each calls."""
    for call in tree.find_all(exp.Anonymous) if names else ():
        if own_name(call) in names:
            yield call


def own_name(call: exp.Anonymous) -> str:
    """Return the name of the function that is called, in lower case."""
    return str(call.name).lower()
