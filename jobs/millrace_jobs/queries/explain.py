"""Description of how a query will run, in words and as a text diagram; each kind of execution has its own steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millrace_api.model.sinks import SinkSpec, TransactionScope
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.sources.base import Source

_WHEN = {
    Emit.ON_UPDATE: "every change",
    Emit.ON_WINDOW_END: "first at the window's end, then every change",
    Emit.ON_WINDOW_CLOSE: "when a window closes",
}
"""What is emitted when, by the strategy."""


def explain(query: CompiledQuery, spec: Spec, sources: Mapping[str, Source], pin: Pin, partitions: int) -> str:
    """Return the text of ``millrace explain``; ``partitions`` is the number of those of its state."""
    leaving = query.execution.result_partitions(partitions)
    how, steps = query.execution.explain(query.result, spec, sources, pin, leaving)
    drawn = "\n   |\n".join(f"  {step}" for step in steps)
    code = [f"code     {file.uri} (sha256 {file.sha256[:12]}...)" for file in spec.code or ()]
    return "\n".join([f"{how}\n\n{drawn}", *([""] if code else []), *code])


def source_step(name: str, source: SourceSpec) -> str:
    """Return the step that reads a source."""
    contents = f", a table by {', '.join(source.table.keys)}" if source.table is not None else ""
    read = ", read at the start" if source.is_static else ""
    if source.table is not None and source.table.refresh_every is not None:
        read += f" and every {source.table.refresh_every}"
    return f"source   {name} ({source.kind}){contents}{read}"


def outputs(spec: Spec, partitions: int | None) -> Iterator[tuple[str, str]]:
    """Yield when each output emits, and its sink with the name of the output."""
    for field, output in spec.outputs.items():
        name = "" if field == "spec" else f" ({field.rpartition('.')[2]})"
        yield _WHEN[output.emit], f"{output.sink.kind}{name}{transactions(output.sink, partitions)}"


def transactions(sink: SinkSpec, partitions: int | None) -> str:
    """Return what one transaction of a sink has; empty for sinks of which all have a batch in one."""
    if sink.kafka is None and not sink.by_partition:
        return ""
    if sink.kafka is not None and sink.kafka.scope(partitions) is TransactionScope.BATCH:
        return ", by the driver in one transaction a batch"
    return f", by the tasks that merge in a transaction for each partition of the state (at most {partitions} a batch)"


def seconds(micros: int) -> str:
    """Return a length of time as text."""
    return f"{micros / 1e6:g} s"
