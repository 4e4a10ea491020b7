"""The connector of the source ``replay``."""

from __future__ import annotations

from millrace_api.model.files import ReplaySourceSpec
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.connector import SourceConnector, SourceContext
from millrace_jobs.sources.formats.file_formats import file_format
from millrace_jobs.sources.replay.source import ReplaySource, require_file


class ReplayConnector(SourceConnector[ReplaySourceSpec]):
    """Opens recordings."""

    def check(self, spec: ReplaySourceSpec, context: SourceContext) -> None:
        """Check the columns of the recording without reading records."""
        require_file(context.name, spec.path)
        file_format(
            spec.format.value,
            self.schema(context.source),
            header=spec.header,
            delimiter=spec.delimiter,
            timestamp_format=context.source.timestamp_format.value,
        ).check(spec.path)

    def open(self, spec: ReplaySourceSpec, context: SourceContext) -> Source:
        """Return the source of a recording."""
        return ReplaySource(
            context.name,
            spec.path,
            spec.format.value,
            self.schema(context.source),
            spec.time_column,
            str(context.cache),
            speed=spec.speed or 1.0,
            rate=spec.rate,
            header=spec.header,
            delimiter=spec.delimiter,
            timestamp_format=context.source.timestamp_format.value,
            corrupt=context.corrupt,
            state=context.state,
        )
