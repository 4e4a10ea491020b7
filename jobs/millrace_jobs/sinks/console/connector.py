"""The connector of the sink ``console``."""

from __future__ import annotations

from millrace_api.model.sinks import ConsoleSinkSpec
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.connector import SinkConnector, SinkContext
from millrace_jobs.sinks.console.sink import ConsoleSink


class ConsoleSinkConnector(SinkConnector[ConsoleSinkSpec]):
    """Opens the terminal for results."""

    def open(self, spec: ConsoleSinkSpec, context: SinkContext) -> Sink:
        """Return the sink that shows results."""
        return ConsoleSink(spec.rows, context.show)
