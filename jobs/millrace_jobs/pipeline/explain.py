"""Description of how a query will run, in words and as a text diagram."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millrace_api.model.sinks import SinkSpec, TransactionScope
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.dialect import parse_query
from millrace_jobs.aggregates.python_reducing import PythonReduction
from millrace_jobs.pipeline.aggregation import Native
from millrace_jobs.pipeline.compile import CompiledQuery, Routed
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.result_partitions import result_partitions
from millrace_jobs.pipeline.table_relations import (
    WINDOW,
    Enriched,
    Grouping,
    Join,
    Relation,
    Selection,
    TableQuery,
    Upserted,
    contents_of,
    wrong_in_spark,
)
from millrace_jobs.pipeline.table_scopes import with_labels
from millrace_jobs.plan.control import Pin
from millrace_jobs.sources.base import Source
from millrace_jobs.tables.join_side import Contents

_WHEN = {
    Emit.ON_UPDATE: "every change",
    Emit.ON_WINDOW_END: "first at the window's end, then every change",
    Emit.ON_WINDOW_CLOSE: "when a window closes",
}
"""What is emitted when, by the strategy."""


def explain(query: CompiledQuery, spec: Spec, sources: dict[str, Source], pin: Pin, partitions: int) -> str:
    """Return the text of ``millrace explain``; ``partitions`` is the number of those of its state."""
    drawn = _plan(query, spec, sources, pin, result_partitions(query.execution, partitions))
    code = [f"code     {file.uri} (sha256 {file.sha256[:12]}...)" for file in spec.code or ()]
    return "\n".join([drawn, *([""] if code else []), *code])


def _plan(query: CompiledQuery, spec: Spec, sources: dict[str, Source], pin: Pin, partitions: int | None) -> str:
    """Describe how the query runs, and draw its steps."""
    routed = query.execution
    if isinstance(routed, TableQuery):
        steps = list(_table_steps(routed, spec, partitions))
        return f"runs by operators on tables{_instead(routed, pin)}{_matching(query, routed, pin)}\n\n{_drawing(steps)}"
    if isinstance(routed, Native):
        why = f"runs natively, by Spark's own plan: {routed.reason}"
        return f"{why}\n\n{_drawing(_native_steps(routed.sql, spec, partitions))}"
    if pin.algorithm == "native":
        why = "can be routed, and runs natively: the plan's algorithm is native"
        how = "each replica combines its own slice" if routed.aggregation is None else "Spark combines by its own plan"
        steps = [f"combine  {how}"]
    else:
        why = f"is routed by {pin.algorithm}{', before the batch' if pin.is_dedicated else ''}"
        packs = ["packs    through a topic with a partition for each worker"] if pin.is_dedicated else []
        steps = [
            f"route    {pin.algorithm} on {_keys(routed)}, m={pin.replicas} replicas to n={pin.workers} workers",
            *packs,
            f"combine  {_combining(routed)}",
        ]
    evaluated = compile_projection(routed.projection, sources[routed.source].schema)
    steps = [*_source_steps(routed, spec, pin, evaluated), *steps, *_merge_steps(query, routed, spec, partitions)]
    return f"{why}\n\n{_drawing(steps)}"


def _instead(tables: TableQuery, pin: Pin) -> str:
    """Return why a query does not run natively, although the algorithm is native."""
    reason = wrong_in_spark(tables.relation) if pin.algorithm == "native" else None
    return "" if reason is None else with_labels(f", as Spark's own join {reason}", tables.labels)


def _matching(query: CompiledQuery, tables: TableQuery, pin: Pin) -> str:
    """Return where the rows of a join are matched."""
    if not tables.has_join:
        return ""
    if query.is_routed(pin.algorithm):
        return f"; rows of hot keys are matched by n={pin.workers} workers, placed by {pin.algorithm}"
    return "; rows are matched in the bucket of their key"


def _table_steps(tables: TableQuery, spec: Spec, partitions: int | None) -> Iterator[str]:
    """Yield the steps of a query by operators on tables; see ``docs/tables.md``."""
    yield from (_source_step(name, source) for name, source in spec.sources.items())
    yield from (with_labels(step, tables.labels) for step in _relation_steps(tables.relation))
    for when, sink in _outputs(spec, partitions):
        if tables.contents is Contents.RECORDS:
            when = "when final" if tables.waits else "every result"
        yield f"emit     {when} -> {sink}"
    table = spec.sink.table
    if table is not None and table.history is not None:
        yield f"emit     earlier versions, for {table.history.retention} -> topic {table.history.topic}"


def _outputs(spec: Spec, partitions: int | None) -> Iterator[tuple[str, str]]:
    """Yield when each output emits, and its sink with the name of the output."""
    for field, output in spec.outputs.items():
        name = "" if field == "spec" else f" ({field.rpartition('.')[2]})"
        yield _WHEN[output.emit], f"{output.sink.kind}{name}{_transactions(output.sink, partitions)}"


def _transactions(sink: SinkSpec, partitions: int | None) -> str:
    """Return what one transaction of a sink has; empty for sinks of which all have a batch in one."""
    if sink.kafka is None and not sink.by_partition:
        return ""
    if sink.kafka is not None and sink.kafka.scope(partitions) is TransactionScope.BATCH:
        return ", by the driver in one transaction a batch"
    return f", by the tasks that merge in a transaction for each partition of the state (at most {partitions} a batch)"


def _source_step(name: str, source: SourceSpec) -> str:
    contents = f", a table by {', '.join(source.table.keys)}" if source.table is not None else ""
    read = ", read at the start" if source.is_static else ""
    if source.table is not None and source.table.refresh_every is not None:
        read += f" and every {source.table.refresh_every}"
    return f"source   {name} ({source.kind}){contents}{read}"


def _relation_steps(relation: Relation) -> Iterator[str]:
    if isinstance(relation, Join):
        yield from _relation_steps(relation.left)
        yield from _relation_steps(relation.right)
        keys = " AND ".join(f"{one} = {other}" for one, other in zip(*relation.keys.values(), strict=True))
        yield f"join     {relation.type} on {keys}; {_join_state(relation)}"
    elif isinstance(relation, Enriched):
        yield from _relation_steps(relation.input)
        kind = "left" if relation.preserved else "inner"
        yield f"Spark    {kind} join with the static table {relation.table.source} on {relation.on}"
    elif isinstance(relation, Grouping):
        yield from _relation_steps(relation.input)
        keys = ", ".join(sql for sql, _ in relation.keys if not sql.startswith(WINDOW)) or "nothing (one group)"
        window = f" and window of {_seconds(relation.window.size)}" if relation.window is not None else ""
        state = "state for ever" if relation.closing is None else "state until the watermark passes the group"
        yield f"group    by {keys}{window}; {state}"
    elif isinstance(relation, Upserted):
        yield f"table    {relation.input.source} by {', '.join(relation.input.keys)}; state of its rows"
    elif isinstance(relation, Selection):
        yield from _relation_steps(relation.input)
        if relation.where:
            yield f"filter   {relation.where}"


def _join_state(join: Join) -> str:
    if join.match is None:
        streams = [side for side in (join.left, join.right) if contents_of(side) is not Contents.TABLE]
        return "state until the watermark, and the tables" if streams else "state of both tables"
    if join.match.end:
        return f"state until the watermark passes {join.match.end}"
    return f"state for {_seconds(join.match.longest)} of event time"


def _native_steps(sql: str, spec: Spec, partitions: int | None) -> list[str]:
    streams = {name.lower() for name, source in spec.sources.items() if not source.is_static}
    read = [table for table in parse_query(sql).find_all(exp.Table) if table.name.lower() in streams]
    joins = len(read) > 1 and parse_query(sql).find(exp.Join) is not None
    return [
        *(_source_step(name, source) for name, source in spec.sources.items()),
        f"Spark    the SQL as it is written{'; NULL matches nothing in its joins' if joins else ''}",
        f"emit     {spec.emit.value} -> {spec.sink.kind}{_transactions(spec.sink, partitions)}",
    ]


def _source_steps(routed: Routed, spec: Spec, pin: Pin, evaluated: object) -> list[str]:
    if pin.algorithm == "native" and routed.aggregation is not None:
        where = "by Spark"
    else:
        where = f"by Spark, because of {evaluated}" if isinstance(evaluated, str) else "by the replicas (Arrow)"
    columns = ", ".join(sql for _, sql in routed.projection.columns)
    slices = f"shared by {pin.replicas} processes" if pin.is_dedicated else f"{pin.replicas} slices a batch"
    steps = [
        f"source   {routed.source} ({spec.sources[routed.source].kind}), {slices}",
        f"decode   to {columns}; expressions {where}",
    ]
    if routed.projection.where:
        steps.append(f"filter   {routed.projection.where}")
    return steps


def _keys(routed: Routed) -> str:
    return ", ".join(sql for _, sql in routed.projection.columns[: routed.projection.keys]) or "nothing (one group)"


def _combining(routed: Routed) -> str:
    what = _keys(routed) if routed.window is None else f"{_keys(routed)} and pane of {_seconds(routed.window.pane)}"
    if isinstance(routed.reduction, PythonReduction):
        return f"{type(routed.reduction.aggregator).__name__} by {what}"
    assert routed.aggregation is not None
    if routed.window is not None and routed.window.per_record > 1:
        what += ", then by window"
    return f"{', '.join(aggregate.call for aggregate in routed.aggregation.aggregates)} by {what}"


def _merge_steps(query: CompiledQuery, routed: Routed, spec: Spec, partitions: int | None) -> list[str]:
    watermark = spec.sources[routed.source].watermark
    if routed.window is None:
        state = "state for ever"
    elif watermark is None:
        state = "state for ever, as the source has no watermark"
    elif watermark.column.lower() != routed.window.column.lower():
        state = f"state for ever, as the watermark is on {watermark.column} and the window on {routed.window.column}"
    else:
        state = f"state until the watermark, {watermark.delay} behind, passes the window"
    window = f", {routed.window.per_record} windows of {_seconds(routed.window.size)} per pane" if routed.window else ""
    where = "by the operators on tables" if routed.ahead else "in Spark's state store"
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in query.result)
    return [
        f"merge    by key {where}{window}; {state}",
        *(f"emit     {when}: {columns} -> {sink}" for when, sink in _outputs(spec, partitions)),
    ]


def _seconds(micros: int) -> str:
    return f"{micros / 1e6:g} s"


def _drawing(steps: list[str]) -> str:
    return "\n   |\n".join(f"  {step}" for step in steps)
