"""The compilation of a query without Spark, for ``millrace validate``: it refuses what a run would, in the same words.

The same code decides, with the declared types of columns in place of Spark's. What a type that only Spark knows would
decide is not refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.dialect import StreamingSql, parse_expression
from millrace_api.sql.nested_times import with_flat_times
from millrace_api.sql.own_functions import own_calls, own_name
from millrace_api.sql.parsed_query import parsed_sql
from millrace_api.validation.results import known_columns, result_groups
from millrace_jobs.aggregates.in_sql import SqlAggregator
from millrace_jobs.own_code.functions import ScalarFunction
from millrace_jobs.queries.compile import choose_execution
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.own_aggregates import aggregators_of, check_own_aggregates
from millrace_jobs.queries.own_functions import functions_of
from millrace_jobs.queries.results import (
    closes,
    output_keys,
    require_own_columns,
    require_partitions,
    require_rows_that_stay,
    updates_table,
)
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.sinks.outputs import errors_of
from millrace_jobs.sources.connector import schema_of

UNKNOWN = TimestampType()
"""The type of an expression whose type only Spark knows. No operator refuses a time: as a key, in a window, compared
or aggregated."""

_SIMPLE: Mapping[exp.DType, DataType] = {
    exp.DType.BOOLEAN: BooleanType(),
    exp.DType.TINYINT: ByteType(),
    exp.DType.SMALLINT: ShortType(),
    exp.DType.INT: IntegerType(),
    exp.DType.BIGINT: LongType(),
    exp.DType.FLOAT: FloatType(),
    exp.DType.DOUBLE: DoubleType(),
    exp.DType.TEXT: StringType(),
    exp.DType.BINARY: BinaryType(),
    exp.DType.DATE: DateType(),
}
_NESTED: Mapping[exp.DType, DataType] = {
    exp.DType.ARRAY: ArrayType(StringType()),
    exp.DType.MAP: MapType(StringType(), StringType()),
    exp.DType.STRUCT: StructType([StructField("field", StringType())]),
}
"""No operator asks for the types of what is in them."""

_MADE: Mapping[str, DataType] = {
    "named_struct": _NESTED[exp.DType.STRUCT],
    "struct": _NESTED[exp.DType.STRUCT],
    "map": _NESTED[exp.DType.MAP],
}
"""The types of functions that sqlglot does not know."""


class DeclaredTypes:
    """The types that follow from the declared columns of the sources; ``UNKNOWN`` for all others."""

    def __init__(
        self, schemas: Mapping[str, pa.Schema], functions: Sequence[ScalarFunction | SqlAggregator] = ()
    ) -> None:
        self._functions = {function.name: from_arrow_type(function.type) for function in functions}
        self._columns = {
            name: {field.name.lower(): field.dataType for field in from_arrow_schema(schema)}
            for name, schema in schemas.items()
        }

    def of(self, columns: Mapping[str, DataType], expressions: Sequence[str]) -> list[DataType]:
        """Return the types of expressions over columns of these types, as far as they are known."""
        return [_type_of(text, columns, self._functions) for text in expressions]

    def in_source(self, source: str, expression: str) -> str:
        """Return the type, as text, of an expression over a source, as far as it is known."""
        return _type_of(expression, self._columns[source], self._functions).simpleString()


def _type_of(text: str, columns: Mapping[str, DataType], functions: Mapping[str, DataType]) -> DataType:
    expression = parse_expression(text)
    if isinstance(expression, exp.Anonymous) and expression.name.lower() in _MADE:
        return _MADE[expression.name.lower()]
    if isinstance(expression, exp.Array):  # sqlglot does not know one of elements that it does not know
        return _NESTED[exp.DType.ARRAY]
    if isinstance(expression, exp.Column):
        return columns.get(expression.name.lower(), UNKNOWN) if not expression.table else UNKNOWN
    for call in own_calls(expression, functions):
        call.type = exp.DataType.build(functions[own_name(call)].simpleString(), StreamingSql)
    for column in expression.find_all(exp.Column):
        kind = UNKNOWN if column.table else columns.get(column.name.lower(), UNKNOWN)
        column.type = exp.DType.UNKNOWN if kind is UNKNOWN else exp.DataType.build(kind.simpleString(), StreamingSql)
    try:
        found = annotate_types(expression, dialect=StreamingSql, overwrite_types=False).type
    except (SqlglotError, KeyError):  # KeyError: a field of a struct
        return UNKNOWN
    if found is None:
        return UNKNOWN
    if found.this is exp.DType.DECIMAL:
        sizes = [int(each.name) for each in found.expressions]
        return DecimalType(*sizes) if sizes else DecimalType()
    return _SIMPLE.get(found.this) or _NESTED.get(found.this, UNKNOWN)


def dry_compile(spec: Spec) -> list[Problem]:
    """Return why nothing can run the SQL of a query; it has no problems that checks without a plan find.

    The query's own aggregators are imported.
    """
    if any(source.schema_text is None for source in spec.sources.values()):
        return []  # only a run reads the columns of an Avro schema
    schemas = {name: schema_of(source) for name, source in spec.sources.items()}
    spec = with_flat_times(spec)
    try:
        aggregators = aggregators_of(spec.query)
        check_own_aggregates(spec, aggregators)
        types = DeclaredTypes(schemas, [*functions_of(spec.query), *aggregators.values()])
        chosen = choose_execution(spec, parsed_sql(spec), schemas, types, 1, aggregators)
        if isinstance(chosen, Aggregation):
            for field, output in spec.outputs.items():
                with errors_of(field):
                    _require_rows_that_stay(chosen, output)
                    require_own_columns(known_columns(spec) or (), output)
        elif (names := chosen.result_names or known_columns(spec)) is None:
            require_partitions(chosen, spec)
        else:
            outputs = [output.sink.files for output in spec.outputs.values() if output.sink.files is not None]
            parts = {name.lower() for files in outputs for name in files.partition_by}
            kinds = {
                name: StringType() if name.lower() in parts else UNKNOWN for name in names
            }  # folders take no times
            result = StructType([StructField(name, kinds[name]) for name in names])
            output_keys(CompiledQuery(chosen, result, aggregates=True), spec)
        dedicated = spec.partitioner.placement is PlacementSetting.DEDICATED
        problem = chosen.dedicated_problem(spec, schemas) if dedicated else None
    except MillraceError as error:
        return list(error.problems)
    return [] if problem is None else [problem]


def _require_rows_that_stay(aggregation: Aggregation, spec: Spec) -> None:
    """Check an output of a query that can be routed as ``result_keys`` does, before Spark knows the types."""
    ends = any(
        closes(group, spec) and any(column.part for column in group.columns) for group in result_groups(spec) or ()
    )
    by_tables = aggregation.has_states or spec.emit is Emit.ON_WINDOW_END  # whose rows can be taken back
    require_rows_that_stay(by_tables or (updates_table(spec) and (bool(aggregation.having) or ends)), spec.sink)
