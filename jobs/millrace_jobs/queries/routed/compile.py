"""Compilation of what replicas and workers do, for an aggregation in SQL and for a Python class.

The result is a ``routed.Routed``, which builds the DataFrame of a query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from millrace_api.errors import MillraceError, Problem, suggest
from millrace_api.model.python_query import PythonQuery
from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs.aggregates.builtin import part_type
from millrace_jobs.aggregates.protocol import Aggregator, load_aggregator
from millrace_jobs.aggregates.python_reducing import PythonReduction, input_column, key_column
from millrace_jobs.aggregates.reducing import ColumnarReduction, PartColumn
from millrace_jobs.pipeline.projection import Projection, deviating_setting
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.own_aggregates import own_call_problem
from millrace_jobs.queries.own_functions import functions_of
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.queries.routed.routed import STATE_BUCKETS, Routed
from millrace_jobs.queries.tables.compile import not_held_back
from millrace_jobs.queries.tables.grouping import merge_of
from millrace_jobs.queries.tables.needs import holds_back, times_ahead
from millrace_jobs.queries.tables.scopes import NotATableQueryError
from millrace_jobs.queries.tables.stages import state_partitions
from millrace_jobs.windows import AT, Window


def compile_aggregation(spark: SparkSession, query: Aggregation, spec: Spec) -> Routed:
    """Compile an aggregation, for whose columns Spark knows the types.

    Raises:
        MillraceError: its groups cannot be merged so that they are held back.
    """
    window = query.window
    inputs = query.inputs
    columns = query.block_columns
    table = spark.table(query.source)
    computed = table.selectExpr(*(f"{sql} AS {name}" for name, sql in columns)).schema
    # A report row has NULL in every column, even if Spark infers that an expression is never NULL.
    schema = pa.schema([field.with_nullable(True) for field in to_arrow_schema(computed, timezone="UTC")])
    parts = []
    for part in query.parts:
        if part.aggregator is not None:
            arguments = tuple(f"i{inputs.index(sql)}" for sql in part.arguments)
            kind = part.aggregator.state_type
            parts.append(PartColumn(part.name, part.reduce, "", kind, part.aggregator, arguments))
            continue
        column = f"i{inputs.index(part.input)}" if part.input else ""
        kind = schema.field(column).type if column else pa.int64()
        parts.append(PartColumn(part.name, part.reduce, column, part_type(part.reduce, kind)))
    keys = tuple(schema.field(key.name) for key in query.keys)
    return Routed(
        source=query.source,
        window=window,
        projection=Projection(
            query.block_filter,
            columns,
            schema,
            len(keys),
            deviating_setting(spark.conf.get),
            functions_of(spec.query),
        ),
        reduction=ColumnarReduction(keys, window, tuple(parts)),
        aggregation=query,
        ahead=ahead_of(query, spec),
        partitions=state_partitions(spark),
    )


def ahead_of(query: Aggregation, spec: Spec) -> tuple[int | None, ...]:
    """Return ``Routed.ahead``.

    Raises:
        MillraceError: the groups cannot be merged by the operators on tables, which rows that are held back and
            aggregators of the query's own need.
    """
    held = holds_back(spec)
    if not held and not query.has_states:
        return ()
    window, watermark = query.window, spec.sources[query.source].watermark
    closes = window is not None and watermark is not None and window.column.lower() == watermark.column.lower()
    at_once = all(output.emit is Emit.ON_UPDATE for output in spec.outputs.values())
    if held and not (closes or at_once):
        raise not_held_back("it has no window on the column of the watermark", spec)
    if spec.emit is Emit.ON_WINDOW_CLOSE and not closes:
        problem = own_call_problem("its groups have no window on the column of the watermark", "write emit: OnUpdate")
        raise MillraceError(problem)
    try:
        for aggregate in query.aggregates:
            for part in aggregate.parts:
                if part.aggregator is None:
                    merge_of(part, aggregate)
    except NotATableQueryError as reason:
        if held:
            raise not_held_back(str(reason), spec) from None
        hint = "leave that out, or write another query for it"
        raise MillraceError(own_call_problem(str(reason), hint)) from None
    return times_ahead(spec, lag=0) if closes else (None,) * len(spec.outputs)


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
