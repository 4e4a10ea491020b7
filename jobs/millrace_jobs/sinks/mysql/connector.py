"""The connector of the sink ``mysql``."""

from __future__ import annotations

from millrace_api.model.mysql import MySqlSinkSpec
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.connector import SinkConnector, SinkContext


class MySqlSinkConnector(SinkConnector[MySqlSinkSpec]):
    """Opens tables in MySQL for results."""

    def check_server(self, spec: MySqlSinkSpec) -> None:
        """Check the login; what the table lacks can be said only with the types of the results."""
        from millrace_jobs.databases.mysql import MySqlConnection
        from millrace_jobs.sinks.mysql.dialect import MySqlDialect

        MySqlDialect(MySqlConnection.of(spec)).check_login()

    def open(self, spec: MySqlSinkSpec, context: SinkContext) -> Sink:
        """Return the sink of a table; only queries with one load the client library."""
        from millrace_jobs.databases.mysql import MySqlConnection
        from millrace_jobs.sinks.databases.sink import DatabaseSink
        from millrace_jobs.sinks.mysql.dialect import MySqlDialect

        dialect, query = MySqlDialect(MySqlConnection.of(spec)), context.query.name
        return DatabaseSink(dialect, spec.table, context.keys, context.columns, query, context.checkpoint_id)
