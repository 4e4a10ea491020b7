"""The connector of the sink ``files``."""

from __future__ import annotations

from millrace_api.model.sinks import FilesSinkSpec
from millrace_api.model.streamquery import Emit
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.connector import SinkConnector, SinkContext, require_folder
from millrace_jobs.sinks.files.sink import FIELD, FilesSink


class FilesSinkConnector(SinkConnector[FilesSinkSpec]):
    """Opens folders, and prefixes in object stores, for files of results."""

    def check(self, spec: FilesSinkSpec) -> None:
        """Check that the folder can be written to."""
        if spec.is_local:
            require_folder(spec.path, FIELD)

    def open(self, spec: FilesSinkSpec, context: SinkContext) -> Sink:
        """Return the sink of a folder or a prefix; only queries with the latter load the client of object stores."""
        keys = context.keys if spec.key else None
        updates = keys is not None or context.query.spec.emit is not Emit.ON_WINDOW_CLOSE
        if not spec.is_local:
            from millrace_jobs.sinks.files.object_sink import ObjectFilesSink

            return ObjectFilesSink(spec, context.columns, context.checkpoint_id, updates=updates, keys=keys)
        return FilesSink(
            spec.path,
            spec.format.value,
            context.checkpoint_id,
            updates=updates,
            keys=keys,
            partition_by=spec.partition_by,
            files=spec.files_per_partition,
            compact_every=spec.compact_every,
        )
