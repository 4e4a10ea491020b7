"""The functions of a query's own: those that its spec declares, their calls, and their registration in Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from sqlglot import exp

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.query import Query
from millrace_api.sql.dialect import problem_at
from millrace_api.sql.own_functions import own_calls, own_name
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.own_code.functions import ScalarFunction, imported
from millrace_jobs.sources.formats.column_types import declared_schema


def functions_of(query: Query) -> tuple[ScalarFunction, ...]:
    """Return the functions that a query declares, none of which is imported yet."""
    return tuple(
        ScalarFunction(name, function.python, declared_schema(f"value {function.returns}").field(0).type)
        for name, function in (query.functions or {}).items()
    )


def check_own_functions(query: Query) -> None:
    """Import a query's functions, and compare the calls in its SQL with their parameters.

    Raises:
        MillraceError: a function cannot be used, or is called with a wrong number of arguments.
    """
    functions = {function.name: function for function in functions_of(query)}
    problems: list[Problem] = []
    for function in functions.values():
        try:
            imported(function.name, function.path)
        except MillraceError as error:
            problems += error.problems
    if not problems and query.sql is not None:
        problems += _call_problems(query.sql, functions)
    if problems:
        raise MillraceError(*problems)


def _call_problems(sql: str, functions: dict[str, ScalarFunction]) -> Iterator[Problem]:
    for call in own_calls(parsed_query(sql).tree, functions):
        name = own_name(call)
        if any(isinstance(argument, exp.Kwarg | exp.PropertyEQ) for argument in call.expressions):
            found: tuple[str, str] | None = (f'"{name}" is called with arguments by name', "write them in order")
        else:
            found = functions[name].arity_problem(len(call.expressions))
        if found is not None:
            problem = problem_at(sql, call.meta.get("start"), *found)
            yield replace(problem, line=None, field="spec.query.sql")


def register(spark: SparkSession, functions: tuple[ScalarFunction, ...]) -> None:
    """Register the functions in Spark, whose Python workers import them and call for the arrays of a batch."""
    for function in functions:
        # by its annotations, which PySpark prefers, and which the overloads in its stubs leave out
        udf = arrow_udf(_calls(function), from_arrow_type(function.type))  # type: ignore[call-overload]
        spark.udf.register(function.name, udf)


def _calls(function: ScalarFunction) -> Callable[..., pa.Array]:
    """Return a function of the form by whose annotations Spark knows an Arrow UDF."""

    def call(*arguments: pa.Array) -> pa.Array:
        return function(*arguments)

    return call
