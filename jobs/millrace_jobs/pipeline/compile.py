"""Compilation of a query: Spark analyzes its types, from which the work of replicas and workers follows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem, suggest
from millrace_api.model.streamquery import PythonQuery, Spec
from millrace_jobs.aggregates.builtin import part_type
from millrace_jobs.aggregates.protocol import Aggregator, load_aggregator
from millrace_jobs.aggregates.python_reducing import PythonReduction, input_column, key_column
from millrace_jobs.aggregates.reducing import ColumnarReduction, PartColumn, ReducerFactory
from millrace_jobs.partitioners.hash import Hash
from millrace_jobs.partitioners.registry import is_routed
from millrace_jobs.pipeline.aggregation import Aggregation, Native, has_groups
from millrace_jobs.pipeline.execution import ahead_of, choose_execution
from millrace_jobs.pipeline.expression_types import SparkTypes
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.pipeline.sql_scope import check_scope
from millrace_jobs.pipeline.table_relations import TableQuery
from millrace_jobs.pipeline.table_stages import state_partitions
from millrace_jobs.plan.control import Pin
from millrace_jobs.windows import AT, Window

_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\] ")
_POSITION = re.compile(r"line (\d+)[, ]+pos(?:ition)? (\d+)")

STATE_BUCKETS = 16
"""Number of key buckets per window in the state of a Python aggregator; part of the state's layout."""

_ASSUMED_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""Spark settings that the meaning of an expression depends on, with the values that compiled expressions assume."""


class RoutingMode(Enum):
    """The forms of a query in Spark; it changes from one to another between two batches."""

    NATIVE = auto()
    """Nothing is routed."""
    INLINE = auto()
    """The batch's own tasks route its records."""
    DEDICATED = auto()
    """Replicas in processes of their own have routed the records before the batch."""


@dataclass(frozen=True)
class Routed:
    """Work of replicas and workers for a query that can be routed.

    ``ahead``: how long before its window closes a group's row is emitted first, for each output, as in
    ``tables.emission``; empty if Spark's own operators merge and emit. ``partitions``: see ``TableQuery``.
    """

    source: str
    window: Window | None
    projection: Projection
    reduction: ReducerFactory
    aggregation: Aggregation | None
    ahead: tuple[int | None, ...] = ()
    partitions: int = 0


@dataclass(frozen=True)
class CompiledQuery:
    """A query ready to be built: ``Routed``, by the operators on tables, or ``Native``.

    ``result`` is the schema of its results. ``aggregates`` is whether it has groups.
    """

    execution: Routed | Native | TableQuery
    result: StructType
    aggregates: bool

    def is_routed(self, algorithm: str) -> bool:
        """Whether the algorithm places parts of a batch on workers: records, or the units of a join's hot keys.

        Raises ValueError on an unknown name.
        """
        if isinstance(self.execution, TableQuery):
            return self.execution.has_join and is_routed(algorithm) and algorithm != Hash.NAME
        return isinstance(self.execution, Routed) and is_routed(algorithm)

    def mode(self, pin: Pin) -> RoutingMode:
        """Return the form in which the query runs under a plan."""
        if not self.is_routed(pin.algorithm):
            return RoutingMode.NATIVE
        return RoutingMode.DEDICATED if pin.is_dedicated else RoutingMode.INLINE

    @property
    def waits(self) -> bool:
        """Whether results wait for the watermark, even if every change is to be emitted."""
        if isinstance(self.execution, Routed):
            return any(ahead is not None for ahead in self.execution.ahead)
        return isinstance(self.execution, TableQuery) and self.execution.waits


def compile_query(spark: SparkSession, spec: Spec, schemas: Mapping[str, pa.Schema]) -> CompiledQuery:
    """Compile the query of a spec over sources with these schemas.

    Raises:
        MillraceError: Spark does not accept the SQL, or the aggregator cannot be used.
    """
    for name, schema in schemas.items():
        spark.createDataFrame([], from_arrow_schema(schema)).createOrReplaceTempView(name)
    if spec.query.python is not None:
        return compile_aggregator(spec.query.python, schemas)
    assert spec.query.sql is not None
    return _compile_sql(spark, spec, spec.query.sql, schemas)


def _compile_sql(spark: SparkSession, spec: Spec, sql: str, schemas: Mapping[str, pa.Schema]) -> CompiledQuery:
    try:
        check_scope(spark, sql)
        result = spark.sql(sql).schema
    except (AnalysisException, ParseException) as error:
        raise MillraceError(sql_problem(error)) from None
    chosen = choose_execution(spec, sql, schemas, SparkTypes(spark), state_partitions(spark))
    if isinstance(chosen, Aggregation):
        return CompiledQuery(_routed(spark, chosen, ahead_of(chosen, spec)), result, has_groups(sql))
    return CompiledQuery(chosen, result, has_groups(sql))


def sql_problem(error: AnalysisException | ParseException) -> Problem:
    """Return Spark's own message with its place in the SQL, but without error class, plan and stack."""
    text, _, rest = str(error).partition(" SQLSTATE:")
    message = _ERROR_CLASS.sub("", text).split("\n== SQL")[0].split(";\n")[0]
    place = _POSITION.search(rest or text)
    at = f" at line {place.group(1)}, column {int(place.group(2)) + 1}" if place else ""
    reason = " ".join(message.split()).rstrip(".;")
    return Problem(f"Spark does not accept the SQL{at}: {reason}", field="spec.query.sql")


def _routed(spark: SparkSession, query: Aggregation, ahead: tuple[int | None, ...]) -> Routed:
    window = query.window
    inputs = _inputs(query)
    columns = block_columns(query)
    table = spark.table(query.source)
    computed = table.selectExpr(*(f"{sql} AS {name}" for name, sql in columns)).schema
    # A report row has NULL in every column, even if Spark infers that an expression is never NULL.
    schema = pa.schema([field.with_nullable(True) for field in to_arrow_schema(computed, timezone="UTC")])
    parts = []
    for part in query.parts:
        column = f"i{inputs.index(part.input)}" if part.input else ""
        kind = schema.field(column).type if column else pa.int64()
        parts.append(PartColumn(part.name, part.reduce, column, part_type(part.reduce, kind)))
    keys = tuple(schema.field(key.name) for key in query.keys)
    return Routed(
        source=query.source,
        window=window,
        projection=Projection(block_filter(query), columns, schema, len(keys), deviating_setting(spark.conf.get)),
        reduction=ColumnarReduction(keys, window, tuple(parts)),
        aggregation=query,
        ahead=ahead,
        partitions=state_partitions(spark),
    )


def _inputs(query: Aggregation) -> list[str]:
    return list(dict.fromkeys(part.input for part in query.parts if part.input))


def block_columns(query: Aggregation) -> tuple[tuple[str, str], ...]:
    """Return the columns of the blocks that workers get, each with its SQL over the source."""
    columns = [(key.name, key.sql) for key in query.keys]
    if query.window is not None:
        columns.append((AT, f"`{query.window.column}`"))
    columns.extend((f"i{index}", sql) for index, sql in enumerate(_inputs(query)))
    return tuple(columns) or (("one", "1"),)


def block_filter(query: Aggregation) -> str:
    """Return the condition of the records in these blocks, as SQL over the source; empty without one."""
    if query.window is None:
        return query.where
    has_time = f"`{query.window.column}` IS NOT NULL"
    return f"({query.where}) AND {has_time}" if query.where else has_time


def deviating_setting(value_of: Callable[[str, str], str | None]) -> str:
    """Return ``name=value`` of a setting that differs from the assumed ones; empty if none does.

    ``value_of`` returns the value of a setting, or the given default.
    """
    for name, value in _ASSUMED_SETTINGS.items():
        if (value_of(name, value) or "").lower() != value.lower():
            return f"{name}={value_of(name, value)}"
    return ""


def compile_aggregator(query: PythonQuery, schemas: Mapping[str, pa.Schema]) -> CompiledQuery:
    """Compile a query by a Python class, which needs no Spark; raises MillraceError if the class cannot be used."""
    source = query.source or next(iter(schemas))
    schema = schemas[source]
    aggregator = load_aggregator(query.aggregator, query.options)
    window = None
    if query.window is not None:
        slide = query.window.slide or query.window.size
        window = Window(query.window.column, query.window.size.microseconds, slide.microseconds)
    _require_columns(query, aggregator, source, schema.names)
    inputs = tuple(schema.field(name) for name in dict.fromkeys(aggregator.columns))
    keys = tuple(pa.field(key_column(name), schema.field(name).type) for name in query.group_by)
    at = [pa.field(AT, schema.field(window.column).type)] if window else []
    block = pa.schema([*keys, *at, *(each.with_name(input_column(each.name)) for each in inputs)])
    sources = [*query.group_by, *([window.column] if window else []), *(field.name for field in inputs)]
    projection = Projection(
        where=f"`{window.column}` IS NOT NULL" if window else "",
        columns=tuple((field.name, f"`{name}`") for field, name in zip(block, sources, strict=True)),
        schema=block,
        keys=len(keys),
    )
    reduction = PythonReduction(query.group_by, pa.schema(keys), window, aggregator, STATE_BUCKETS)
    routed = Routed(source, window, projection, reduction, None)
    result = from_arrow_schema(reduction.result_schema)
    return CompiledQuery(routed, result, True)


def _require_columns(query: PythonQuery, aggregator: Aggregator, source: str, known: Sequence[str]) -> None:
    """Raise MillraceError unless the source has all columns that the query names or the aggregator reads."""
    at = "spec.query.python"
    named = [(f"{at}.groupBy", name) for name in query.group_by]
    if query.window is not None:
        named.append((f"{at}.window.column", query.window.column))
    problems = [
        Problem(f'source {source} has no column "{name}"', suggest(name, known), field=field)
        for field, name in named
        if name not in known
    ]
    hint = f"correct its columns, or {at}.options; the source has {', '.join(known)}"
    problems += [
        Problem(f'the class reads column "{name}", which source {source} does not have', hint, field=f"{at}.aggregator")
        for name in dict.fromkeys(aggregator.columns)
        if name not in known
    ]
    if problems:
        raise MillraceError(*problems)
