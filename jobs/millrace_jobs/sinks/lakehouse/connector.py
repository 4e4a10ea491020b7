"""The connectors of the sinks ``delta`` and ``iceberg``."""

from __future__ import annotations

from contextlib import closing

from millrace_api.model.iceberg import IcebergSinkSpec
from millrace_api.model.lakehouse import DeltaSinkSpec
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.connector import SinkConnector, SinkContext, require_folder


class DeltaSinkConnector(SinkConnector[DeltaSinkSpec]):
    """Opens Delta tables for results."""

    def check(self, spec: DeltaSinkSpec) -> None:
        """Check that the folder of the table can be written to."""
        if spec.is_local:
            require_folder(spec.path, "spec.sink.delta.path")

    def open(self, spec: DeltaSinkSpec, context: SinkContext) -> Sink:
        """Return the sink of a table; only queries with one load the library."""
        from millrace_jobs.sinks.lakehouse.delta_sink import DeltaSink

        return DeltaSink(spec, context.keys, context.columns, context.query.name, context.checkpoint_id)


class IcebergSinkConnector(SinkConnector[IcebergSinkSpec]):
    """Opens Iceberg tables for results."""

    def check(self, spec: IcebergSinkSpec) -> None:
        """Check that the folder of the table can be written to, if the query names it."""
        if spec.location is not None and spec.is_local:
            require_folder(spec.location, "spec.sink.iceberg.location")

    def check_server(self, spec: IcebergSinkSpec) -> None:
        """Check the login at the catalog, unless that is a file or a database: opening one creates its tables."""
        from millrace_jobs.lakehouse.iceberg_catalog import open_catalog

        if spec.catalog.file is None and spec.catalog.postgres is None:
            with closing(open_catalog(spec)):
                pass

    def open(self, spec: IcebergSinkSpec, context: SinkContext) -> Sink:
        """Return the sink of a table; only queries with one load the library."""
        from millrace_jobs.sinks.lakehouse.iceberg_sink import IcebergSink

        return IcebergSink(spec, context.keys, context.columns, context.query.name, context.checkpoint_id)
