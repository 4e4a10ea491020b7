"""The compilation of a query without Spark, for ``millrace validate``: it refuses what a run would, in the same words.

The same code decides, with the declared types of columns in place of Spark's. What a type that only Spark knows would
decide is not refused here.
"""

from __future__ import annotations

from pyspark.sql.types import StructField, StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.nested_times import with_flat_times
from millrace_api.validation.results import known_columns, result_groups
from millrace_jobs.queries.compile import choose_execution
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.expression_types import UNKNOWN, DeclaredTypes
from millrace_jobs.queries.results import closes, require_partitions, require_rows_that_stay, result_keys, updates_table
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.sources.source_factory import schema_of


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
            problem = chosen.dedicated_problem(spec, schemas)
            return [] if problem is None else [problem]
        if isinstance(chosen, Aggregation):
            for output in spec.outputs.values():
                _require_rows_that_stay(chosen, output)
            return []
        require_partitions(chosen, spec)
        names = chosen.result_names or known_columns(spec)
        if names is None:
            return []
        result = StructType([StructField(name, UNKNOWN) for name in names])
        for output in spec.outputs.values():
            result_keys(CompiledQuery(chosen, result, aggregates=True), output)
    except MillraceError as error:
        return list(error.problems)
    return []


def _require_rows_that_stay(aggregation: Aggregation, spec: Spec) -> None:
    """Check an output of a query that can be routed as ``result_keys`` does, before Spark knows the types."""
    ends = any(
        closes(group, spec) and any(column.part for column in group.columns) for group in result_groups(spec) or ()
    )
    held = spec.emit is Emit.ON_WINDOW_END
    require_rows_that_stay(held or (updates_table(spec) and (bool(aggregation.having) or ends)), spec.sink)
