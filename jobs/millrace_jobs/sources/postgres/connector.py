"""The connector of the source ``postgres``."""

from __future__ import annotations

from millrace_api.model.postgres import PostgresSourceSpec
from millrace_jobs.sources.connector import SourceConnector, SourceContext
from millrace_jobs.sources.static_tables import WholeTable


class PostgresConnector(SourceConnector[PostgresSourceSpec]):
    """Opens tables and queries of PostgreSQL."""

    def check(self, spec: PostgresSourceSpec, context: SourceContext) -> None:
        """Check the declared columns."""
        self.open_table(spec, context)

    def open_table(self, spec: PostgresSourceSpec, context: SourceContext) -> WholeTable:
        """Return the table; only queries with one load the client library."""
        from millrace_jobs.sources.postgres.table import PostgresTable

        return PostgresTable(context.name, spec, self.schema(context.source))
