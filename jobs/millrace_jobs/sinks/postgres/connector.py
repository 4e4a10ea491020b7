"""The connector of the sink ``postgres``."""

from __future__ import annotations

from millrace_api.model.postgres import PostgresSinkSpec
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.connector import SinkConnector, SinkContext


class PostgresSinkConnector(SinkConnector[PostgresSinkSpec]):
    """Opens tables in PostgreSQL for results."""

    def check_server(self, spec: PostgresSinkSpec) -> None:
        """Check the login; what the table lacks can be said only with the types of the results."""
        from millrace_jobs.databases.postgres import PostgresConnection
        from millrace_jobs.sinks.postgres.dialect import PostgresDialect

        PostgresDialect(PostgresConnection.of(spec)).check_login()

    def open(self, spec: PostgresSinkSpec, context: SinkContext) -> Sink:
        """Return the sink of a table; only queries with one load the client library."""
        from millrace_jobs.databases.postgres import PostgresConnection
        from millrace_jobs.sinks.databases.sink import DatabaseSink
        from millrace_jobs.sinks.postgres.dialect import PostgresDialect

        dialect, query = PostgresDialect(PostgresConnection.of(spec)), context.query.name
        return DatabaseSink(dialect, spec.table, context.keys, context.columns, query, context.checkpoint_id)
