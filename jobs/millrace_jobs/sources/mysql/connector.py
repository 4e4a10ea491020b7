"""The connector of the source ``mysql``."""

from __future__ import annotations

from millrace_api.model.mysql import MySqlSourceSpec
from millrace_jobs.sources.connector import SourceConnector, SourceContext
from millrace_jobs.sources.static_tables import WholeTable


class MySqlConnector(SourceConnector[MySqlSourceSpec]):
    """Opens tables and queries of MySQL."""

    def check(self, spec: MySqlSourceSpec, context: SourceContext) -> None:
        """Check the declared columns."""
        self.open_table(spec, context)

    def open_table(self, spec: MySqlSourceSpec, context: SourceContext) -> WholeTable:
        """Return the table; only queries with one load the client library."""
        from millrace_jobs.sources.mysql.table import MySqlTable

        return MySqlTable(context.name, spec, self.schema(context.source))
