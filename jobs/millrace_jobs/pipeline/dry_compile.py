"""The compilation of a query without Spark, for ``millrace validate``: it refuses what a run would, in the same words.

The same code decides, with the declared types of columns in place of Spark's. What a type that only Spark knows would
decide is not refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.streamquery import Spec
from millrace_api.sql.nested_times import with_flat_times
from millrace_api.validation.results import known_columns
from millrace_jobs.pipeline.aggregation import Aggregation, Native
from millrace_jobs.pipeline.compile import CompiledQuery, block_columns, block_filter, deviating_setting
from millrace_jobs.pipeline.dedicated_needs import expression_problem, source_problem, unrouted_problem
from millrace_jobs.pipeline.execution import choose_execution
from millrace_jobs.pipeline.expression_types import UNKNOWN, DeclaredTypes
from millrace_jobs.pipeline.expressions.compiler import compile_columns
from millrace_jobs.pipeline.result_keys import require_rows_that_stay, result_keys
from millrace_jobs.pipeline.result_partitions import require_partitions
from millrace_jobs.pipeline.table_relations import TableQuery
from millrace_jobs.pipeline.table_scopes import internals_in
from millrace_jobs.sources.connector import schema_of


def dry_compile(spec: Spec, sql: str) -> list[Problem]:
    """Return why nothing can run the SQL of a query; it has no problems that checks without a plan find."""
    if any(source.schema_text is None for source in spec.sources.values()):
        return []  # only a run reads the columns of an Avro schema
    schemas = {name: schema_of(source) for name, source in spec.sources.items()}
    spec = with_flat_times(spec)
    sql = spec.query.sql or sql
    try:
        chosen = choose_execution(spec, sql, schemas, DeclaredTypes(schemas), partitions=1)
        if spec.partitioner.placement is PlacementSetting.DEDICATED:
            problem = _dedicated_problem(spec, chosen, schemas)
            return [] if problem is None else [problem]
        if isinstance(chosen, Aggregation):
            for output in spec.outputs.values():
                require_rows_that_stay(chosen, output)
            return []
        require_partitions(chosen, spec)
        names = _result_names(chosen, spec)
        if names is None:
            return []
        result = StructType([StructField(name, UNKNOWN) for name in names])
        for output in spec.outputs.values():
            result_keys(CompiledQuery(chosen, result, aggregates=True), output)
    except MillraceError as error:
        return list(error.problems)
    return []


def _dedicated_problem(
    spec: Spec, chosen: Aggregation | TableQuery | Native, schemas: Mapping[str, pa.Schema]
) -> Problem | None:
    """Return why replicas in processes of their own cannot place the query's records, as far as it is known here."""
    if not isinstance(chosen, Aggregation):
        return unrouted_problem(chosen)
    if (problem := source_problem(spec.sources[chosen.source])) is not None:
        return problem
    columns = [sql for _, sql in block_columns(chosen)]
    found = deviating_setting(spec.spark_conf.get) or compile_columns(
        block_filter(chosen), columns, schemas[chosen.source]
    )
    return expression_problem(found) if isinstance(found, str) else None


def _result_names(chosen: TableQuery | Native, spec: Spec) -> Sequence[str] | None:
    """Return the names of the result's columns; None if only Spark knows them."""
    if isinstance(chosen, TableQuery):
        return [_label(item, chosen.labels) for item in chosen.items]
    return known_columns(spec)


def _label(item: str, labels: Mapping[str, str]) -> str:
    """Return what the query calls an item of the result, which is an internal column or a window of two."""
    return labels[min(internals_in(item), key=lambda internal: int(internal[1:]))]  # the start of a window is first
