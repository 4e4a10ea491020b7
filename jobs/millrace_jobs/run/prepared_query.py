"""The phase of a run that compiles its query and prepares the sink for the first batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from millrace_api.model.deployment import ANOTHER_CHECKPOINT, PlacementSetting
from millrace_api.model.status import FailureClass
from millrace_api.model.streamquery import Spec
from millrace_jobs.pipeline.refreshed_tables import refreshed_table
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.results import lookup_columns, output_keys
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.queries.state_layout import continue_from, recorded_aggregates, spec_to_continue, windows_after
from millrace_jobs.run.failures import attributed_to
from millrace_jobs.run.inputs import user_schemas
from millrace_jobs.run.lookups import TableLookups, service_settings
from millrace_jobs.run.opening import OpenedRun, RunSetup, close_at_end
from millrace_jobs.run.plans import AUTO_IS_INLINE, unused_algorithm
from millrace_jobs.run.state_widening import added_aggregates, has_other_types, layout_with, widen_state
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sinks.outputs import remove_unused
from millrace_jobs.sources.base import Source


@dataclass(frozen=True)
class PreparedQuery:
    """A query in the form that continues from its checkpoint, with its sink ready for the first batch."""

    compiled: CompiledQuery
    sink: Sink
    lookups: TableLookups | None


def checked_query(spark: SparkSession, spec: Spec, sources: Mapping[str, Source]) -> CompiledQuery:
    """Compile a query, and check all of it that can be checked before its first batch, as ``millrace explain`` does.

    Raises:
        MillraceError: a run would be refused.
    """
    compiled = compile_query(spark, spec, user_schemas(spec, sources))
    output_keys(compiled, spec)
    compiled.check_streaming(spec, spark, sources)
    return compiled


def prepare_query(setup: RunSetup, opened: OpenedRun) -> PreparedQuery | None:
    """Compile the query in the form that can continue from the state in the checkpoint, and prepare its sink.

    Return None if the run is to end before that.
    """
    setup.step("compiling the query")
    spark, checkpoint, tables = opened.spark, opened.checkpoint, opened.tables
    spec = spec_to_continue(setup.spec, checkpoint.layout)
    compiled, native = _continued(setup, opened, checkpoint.layout)
    added = added_aggregates(compiled, checkpoint.layout)
    if added:
        compiled, native = _continued(setup, opened, layout_with(spark, checkpoint, added))
    for name, rows in opened.static_tables.items():
        spark.createDataFrame(rows).persist().createOrReplaceTempView(name)
    tables.wait(setup.stop_requested)
    if setup.stop_requested():
        return None
    for message in tables.messages():
        setup.display.message(message)
    for name, (columns, place, size) in tables.tables().items():
        table = refreshed_table(spark, name, columns, place, checkpoint.spark, size)
        table.createOrReplaceTempView(name)
    if native is not None:
        setup.display.message(native)
    elif spec is not setup.spec:
        why = "the query does not run natively: the state in its checkpoint was built by operators on tables"
        setup.display.message(f"{why}: choose {ANOTHER_CHECKPOINT} to have it run by Spark's own plan")
    if note := unused_algorithm(setup.query.spec, compiled):
        setup.display.message(note)
    if setup.given is None and setup.query.spec.partitioner.placement is PlacementSetting.AUTO:
        setup.display.message(AUTO_IS_INLINE)
    if opened.store_check is not None:
        opened.store_check.wait(setup.stop_requested)
        if setup.stop_requested():
            return None
    if opened.snapshots.is_taking_one:
        setup.step("taking a snapshot before the change")
    opened.snapshots.wait(setup.stop_requested)  # from here on, the checkpoint is changed
    if setup.stop_requested():
        return None
    if added or has_other_types(compiled, checkpoint.layout):
        assert isinstance(compiled.execution, Routed)
        setup.step("changing the columns of the state")
        setup.display.message(widen_state(spark, checkpoint, compiled.execution))
    return prepare_sink(setup, opened, compiled)


def _continued(
    setup: RunSetup, opened: OpenedRun, layout: Mapping[str, Any] | None
) -> tuple[CompiledQuery, str | None]:
    """Compile the query in the form that can read a state of this layout; the second part is ``continue_from``'s."""
    spec, schemas = spec_to_continue(setup.spec, layout), user_schemas(setup.spec, opened.sources)
    compiled = compile_query(opened.spark, spec, schemas, recorded_aggregates(layout), windows_after(layout))
    return continue_from(compiled, spec.query.sql, layout)


def prepare_sink(setup: RunSetup, opened: OpenedRun, compiled: CompiledQuery) -> PreparedQuery:
    """Prepare the sink for the first batch; from then on the checkpoint is this query's."""
    checkpoint, keys = opened.checkpoint, output_keys(compiled, setup.spec)
    checkpoint.record_layout(compiled.execution.layout())
    if opened.copies is not None:
        remove_unused(opened.copies, setup.spec, keys, has_rows=opened.store_check is not None)
    lookups, table = None, setup.query.spec.sink.table
    if table is not None and not table.by_partition and setup.endpoints.has_lookups:
        columns = lookup_columns(compiled, keys["spec"], setup.spec)
        has_history, name = keys["spec"].versioned, setup.query.name
        rows = None if opened.store_check is None else opened.copies
        served, service = setup.query.spec.lookups, None
        if served is not None and setup.service_port is not None:
            service = service_settings(served, setup.platform.host, setup.service_port, setup.workspace)
        elif served is not None:
            setup.display.message("spec.lookups is for a cluster: this machine alone can look rows up in this run")
        lookups = TableLookups(
            setup.workspace, name, columns, setup.lookups_port, has_history=has_history, service=service, copies=rows
        )
        setup.at_end.callback(lookups.close)
    view, show = None if lookups is None else lookups.view, setup.display.table
    partitions = compiled.execution.result_partitions(checkpoint.state_partitions)
    context = SinkContext(
        setup.query, keys["spec"], checkpoint.id, show, view, compiled.result, opened.copies, partitions
    )
    sink = setup.endpoints.sink(compiled, keys, context)
    close_at_end(setup, sink, checkpoint)
    checkpoint.require_lease()  # ``prepare`` fences other drivers, and one may hold the lease by now
    copies = "" if table is None else f": the rows of topic {table.topic} are read where no local copy has them"
    setup.step(f"preparing the sink{copies}")
    with attributed_to(FailureClass.SINK):
        sink.prepare(checkpoint.last_batch())
    for remark in checkpoint.adopt(setup.query):
        setup.display.message(remark)
    return PreparedQuery(compiled, sink, lookups)
