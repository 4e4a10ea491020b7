"""The aggregators of a query's own: how they are loaded, their calls checked, and their types made known to Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from sqlglot import exp

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.functions import AggregateSpec
from millrace_api.model.query import Query
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import problem_at
from millrace_api.sql.parsed_query import ParsedQuery, parsed_sql
from millrace_jobs.aggregates import library
from millrace_jobs.aggregates.in_sql import SqlAggregator, field_of
from millrace_jobs.aggregates.protocol import load_aggregator

Aggregators = Mapping[str, SqlAggregator]
"""The aggregators of a query, by their names in the SQL."""


def aggregators_of(query: Query) -> dict[str, SqlAggregator]:
    """Load the aggregators that a query declares.

    Raises:
        MillraceError: one of them cannot be loaded, or its states or results are of types that Spark does not have.
    """
    found: dict[str, SqlAggregator] = {}
    problems: list[Problem] = []
    for name, declared in (query.aggregates or {}).items():
        try:
            found[name] = _loaded(name, declared)
        except MillraceError as error:
            field = "python" if declared.python is not None else "options"
            problems += [replace(problem, field=f"{field_of(name)}.{field}") for problem in error.problems]
    if problems:
        raise MillraceError(*problems)
    return found


def _loaded(name: str, declared: AggregateSpec) -> SqlAggregator:
    path = declared.python or f"{library.__name__}:{declared.builtin}"
    loaded = SqlAggregator(name, path, load_aggregator(path, declared.options))
    for what, schema in (("state", loaded.aggregator.state_schema), ("result", loaded.aggregator.result_schema)):
        if not isinstance(schema, pa.Schema):
            message = f"the {what}_schema of {path!r} is a {type(schema).__name__}"
            raise MillraceError(Problem(message, "write a pa.schema([...])"))
        for field in schema:
            kept = _type_in_spark(field.type)
            if kept is None:
                message = f"field {field.name} of the {what}s of {path!r} has the type {field.type}, which Spark lacks"
                raise MillraceError(Problem(message, "write another type, such as int64 or binary"))
            if kept != field.type:
                message = f"field {field.name} of the {what}s of {path!r} has the type {field.type}"
                raise MillraceError(Problem(message, f"write {_remedy(kept)}, as which Spark would keep its values"))
        if not len(schema):
            raise MillraceError(Problem(f"the {what}_schema of {path!r} has no fields", "give it at least one"))
    return loaded


def _type_in_spark(kind: pa.DataType) -> pa.DataType | None:
    """Return the Arrow type in which values of a type come back from Spark; None if Spark has no such type."""
    try:
        return to_arrow_type(from_arrow_type(kind), timezone="UTC")
    except Exception:  # PySpark raises more than its own errors for types that it does not know
        return None


def _remedy(kept: pa.DataType) -> str:
    return f"{kept}" if pa.types.is_nested(kept) or not pa.types.is_timestamp(kept) else 'timestamp("us", tz="UTC")'


def own_aggregates(query: ParsedQuery) -> list[exp.AnonymousAggFunc]:
    """Return the calls of the query's own aggregators."""
    return list(query.tree.find_all(exp.AnonymousAggFunc))


def check_own_aggregates(spec: Spec, aggregators: Aggregators) -> None:
    """Compare the calls in a query's SQL with the arguments that its aggregators take.

    Raises:
        MillraceError: one is called with another number of arguments, or by name.
    """
    query = parsed_sql(spec)
    if problems := list(_call_problems(query, aggregators)):
        raise MillraceError(*problems)


def _call_problems(query: ParsedQuery, aggregators: Aggregators) -> Iterator[Problem]:
    for call in own_aggregates(query):
        taken = aggregators[call.name].arguments
        given = len(call.expressions)
        if any(isinstance(argument, exp.Kwarg | exp.PropertyEQ) for argument in call.expressions):
            message, hint = f'"{call.name}" is called with arguments by name', "write them in order"
        elif given != len(taken):
            message = f'"{call.name}" is called with {given} argument{"" if given == 1 else "s"}'
            hint = f"write {call.name}({', '.join(taken)}), in the order of its columns"
        else:
            continue
        problem = problem_at(query.text, call.meta.get("start"), message, hint)
        yield replace(problem, line=None, field="spec.query.sql")


def own_call_problem(reason: str, hint: str, call: str = "") -> Problem:
    """Return the problem of a query that calls an aggregator of its own and cannot be routed for a reason."""
    what = f"the aggregator {call}" if call else "an aggregator"
    return Problem(f"the query calls {what}, and {reason}", hint, field="spec.query.sql")


def register_aggregates(spark: SparkSession, aggregators: Aggregators) -> None:
    """Register the aggregators in Spark, which then accepts their calls; it never runs them."""
    for name, aggregator in aggregators.items():
        # by its annotations, which PySpark prefers, and which the overloads in its stubs leave out
        udf = arrow_udf(_never_called, from_arrow_type(aggregator.type))  # type: ignore[call-overload]
        spark.udf.register(name, udf)


def _never_called(*arguments: pa.Array) -> float:
    """Have the form by whose annotations Spark knows an aggregate function over Arrow arrays."""
    raise NotImplementedError("Spark has run an aggregator that only workers can run")
