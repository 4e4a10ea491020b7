"""The connectors of the sources ``delta`` and ``iceberg``."""

from __future__ import annotations

from typing import Protocol, TypeVar

from millrace_api.errors import MillraceError, MissingInputError
from millrace_api.model.iceberg import IcebergSourceSpec
from millrace_api.model.lakehouse import DeltaSourceSpec
from millrace_api.model.status import FailureClass
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.connector import SourceConnector, SourceContext
from millrace_jobs.sources.static_tables import WholeTable

_Table = TypeVar("_Table", bound=DeltaSourceSpec | IcebergSourceSpec, contravariant=True)


class _LakehouseConnector(SourceConnector[_Table], Protocol[_Table]):
    """Opens tables of one format; only queries with one load its library."""

    def check(self, spec: _Table, context: SourceContext) -> None:
        """Check the declared columns, and the table of a stream if it is in a folder."""
        if context.source.is_static:
            self.open_table(spec, context)
        else:
            self.open(spec, context)

    def open(self, spec: _Table, context: SourceContext) -> Source:
        """Return the source of the rows of a table and of those that are added to it, or of its changes."""
        from millrace_jobs.sources.lakehouse.source import LakehouseSource

        schema, times = self.schema(context.source), context.source.timestamp_format.value
        keys = context.source.table.keys if context.source.table is not None else ()
        source = LakehouseSource(context.name, spec, schema, context.state, times, keys)
        try:
            source.check()
        except MillraceError as error:
            error.failure = FailureClass.SOURCE_MISSING if isinstance(error, MissingInputError) else FailureClass.SOURCE
            raise
        return source


class DeltaConnector(_LakehouseConnector[DeltaSourceSpec]):
    """Opens Delta tables."""

    def open_table(self, spec: DeltaSourceSpec, context: SourceContext) -> WholeTable:
        """Return the latest version of a table."""
        from millrace_jobs.sources.lakehouse.delta_snapshot import DeltaSnapshot

        return DeltaSnapshot(context.name, spec, self.schema(context.source))


class IcebergConnector(_LakehouseConnector[IcebergSourceSpec]):
    """Opens Iceberg tables."""

    def open_table(self, spec: IcebergSourceSpec, context: SourceContext) -> WholeTable:
        """Return the current snapshot of a table."""
        from millrace_jobs.sources.lakehouse.iceberg_snapshot import IcebergSnapshot

        return IcebergSnapshot(context.name, spec, self.schema(context.source))
