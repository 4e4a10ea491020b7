"""The sink of a StreamQuery."""

from __future__ import annotations

from millrace_api.errors import MillraceError, Problem
from millrace_api.streamquery import Emit, Spec
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.console import ConsoleSink, ShowTable
from millrace_jobs.sinks.files import FilesSink


def open_sink(spec: Spec, show: ShowTable) -> Sink:
    """Make the sink that a spec asks for.

    Raises:
        MillraceError: this version has no sink of that kind.
    """
    if spec.sink.files is not None:
        files = spec.sink.files
        return FilesSink(files.path, files.format.value, updates=spec.emit is Emit.ON_UPDATE)
    if spec.sink.console is not None:
        return ConsoleSink(spec.sink.console.rows, show)
    hint = "write files: {path: ...} or console: {}"
    raise MillraceError(Problem(f"sink {spec.sink.kind} is not in this version", hint, field="spec.sink"))
