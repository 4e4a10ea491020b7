"""Compilation of a query: Spark analyzes its SQL, and one kind of execution is chosen to run it.

Its kind compiles it further (``routed.compile``, ``tables.compile``). The others use it as ``execution.CompiledQuery``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    DataType,
    StructField,
    StructType,
)

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec
from millrace_api.sql.parsed_query import ParsedQuery, parsed_sql
from millrace_jobs.queries.execution import CompiledQuery, Execution
from millrace_jobs.queries.own_aggregates import (
    Aggregators,
    aggregators_of,
    check_own_aggregates,
    own_aggregates,
    own_call_problem,
    register_aggregates,
)
from millrace_jobs.queries.own_functions import check_own_functions, functions_of, register
from millrace_jobs.queries.routed.aggregation import Aggregation, aggregation_of
from millrace_jobs.queries.routed.compile import ahead_of, compile_aggregation, compile_aggregator
from millrace_jobs.queries.sql_aggregates import NotRoutableError
from millrace_jobs.queries.sql_scope import check_scope, sql_problem
from millrace_jobs.queries.tables.compile import compile_native, compile_tables
from millrace_jobs.queries.tables.grouping import is_mergeable
from millrace_jobs.queries.tables.needs import holds_back, needs_tables
from millrace_jobs.queries.tables.stages import state_partitions


class ExpressionTypes(Protocol):
    """What the compilation of a query asks about types."""

    def of(self, columns: Mapping[str, DataType], expressions: Sequence[str]) -> list[DataType]:
        """Return the types of expressions over columns of these types."""

    def in_source(self, source: str, expression: str) -> str:
        """Return the type, as text, of an expression over a source, which may be a call of an aggregate."""


class SparkTypes:
    """The types that Spark's analyzer gives; the sources are views of its session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._found: dict[tuple[str, str], str] = {}

    def of(self, columns: Mapping[str, DataType], expressions: Sequence[str]) -> list[DataType]:
        """Return the types of expressions over columns of these types."""
        rows = self._spark.createDataFrame([], StructType([StructField(*column) for column in columns.items()]))
        return [field.dataType for field in rows.selectExpr(*expressions).schema]

    def in_source(self, source: str, expression: str) -> str:
        """Return the type, as text, of an expression over a source."""
        if (source, expression) not in self._found:
            kind = self._spark.sql(f"SELECT {expression} FROM {source}").schema[0].dataType
            self._found[source, expression] = kind.simpleString()
        return self._found[source, expression]


def compile_query(
    spark: SparkSession,
    spec: Spec,
    schemas: Mapping[str, pa.Schema],
    held: Sequence[str] = (),
    after: Sequence[int | None] = (),
) -> CompiledQuery:
    """Compile the query of a spec over sources with these schemas.

    ``held`` and ``after``: see ``routed.aggregation.aggregation_of``.

    Raises:
        MillraceError: Spark does not accept the SQL, the aggregator cannot be used, or an aggregate that only the state
            has can no longer be computed.
    """
    if spec.query.python is not None:
        return compile_aggregator(spec.query.python, schemas)
    for name, schema in schemas.items():
        spark.createDataFrame([], from_arrow_schema(schema)).createOrReplaceTempView(name)
    query = parsed_sql(spec)
    if spec.query.functions is not None:
        check_own_functions(spec.query)
        register(spark, functions_of(spec.query))
    aggregators = aggregators_of(spec.query)
    check_own_aggregates(spec, aggregators)
    register_aggregates(spark, aggregators)
    try:
        check_scope(spark, query.text)
        result = spark.sql(query.text).schema
    except (AnalysisException, ParseException) as error:
        raise MillraceError(sql_problem(error)) from None
    chosen = choose_execution(
        spec, query, schemas, SparkTypes(spark), state_partitions(spark), aggregators, held, after
    )
    execution = compile_aggregation(spark, chosen, spec) if isinstance(chosen, Aggregation) else chosen
    return CompiledQuery(execution, result, query.aggregates)


def choose_execution(
    spec: Spec,
    query: ParsedQuery,
    schemas: Mapping[str, pa.Schema],
    types: ExpressionTypes,
    partitions: int,
    aggregators: Aggregators,
    held: Sequence[str] = (),
    after: Sequence[int | None] = (),
) -> Execution | Aggregation:
    """Return what runs the SQL of a query; an aggregation that can be routed is compiled once its types are known.

    A run asks Spark for types. ``millrace validate`` goes by the declared ones, so that it says what a run would say.

    Args:
        spec: the query's spec.
        query: its SQL, which Spark accepts.
        schemas: schema of each source, by name.
        types: gives the types of expressions.
        partitions: number of state partitions.
        aggregators: the query's own aggregators, by name.
        held, after: see ``routed.aggregation.aggregation_of``.

    Raises:
        MillraceError: nothing can run it.
    """
    own, meant = own_aggregates(query), query.written_out
    if needs_tables(spec, meant):
        if own:
            hint = "write one SELECT over one source that is a stream, with GROUP BY"
            reason = "joins, reads or keeps a table, counts distinct values, or aggregates groups again"
            raise MillraceError(own_call_problem(reason, hint, own[0].name))
        return compile_tables(spec, query, schemas, types.of, partitions)
    try:
        aggregation = aggregation_of(
            meant, schemas, lambda text: types.in_source(next(iter(schemas)), text), aggregators, held, after
        )
    except NotRoutableError as error:
        if own:
            hint = "leave that out: its aggregators run in routed queries only"
            raise MillraceError(own_call_problem(str(error), hint, own[0].name)) from None
        reason = str(error)
    else:
        parts = [part for aggregate in aggregation.aggregates for part in aggregate.parts]
        if holds_back(spec) and not own and not all(map(is_mergeable, parts)):
            return compile_tables(spec, query, schemas, types.of, partitions)
        ahead_of(aggregation, spec)  # refuses groups that cannot be held back
        return aggregation
    if holds_back(spec):
        return compile_tables(spec, query, schemas, types.of, partitions)
    return compile_native(spec, query, schemas, reason)
