"""Where a run reads its records and writes its results: where its query says, unless a caller has other places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from millrace_api.model.streamquery import Spec
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.inputs import open_sources
from millrace_jobs.run.table_refresh import PATIENCE
from millrace_jobs.sinks.base import ResultKeys, Sink
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sinks.outputs import check_sinks, open_sinks, server_checks
from millrace_jobs.sources.base import Source


class Endpoints:
    """The sources and the sinks of a query, as its spec describes them.

    A run reaches its sinks by these methods alone. So a subclass that opens other sinks writes to no place of the user.
    """

    has_lookups = True
    """Whether rows of a result table can be looked up while the run writes them."""

    table_patience = PATIENCE
    """Seconds for which the first read of a static table is repeated while its error is transient."""

    def sources(self, spec: Spec, checkpoint: Checkpoint, workspace: Path) -> Mapping[str, Source]:
        """Open the sources that stream."""
        return open_sources(spec, checkpoint.root / "sources", workspace)

    def check_sinks(self, spec: Spec) -> None:
        """Check the sinks as far as possible before Spark starts. Raises MillraceError if one cannot be written."""
        check_sinks(spec)

    def server_checks(self, spec: Spec) -> Iterator[Callable[[], None]]:
        """Return the checks of the sinks' servers, see ``outputs.server_checks``."""
        return server_checks(spec)

    def sink(self, compiled: CompiledQuery, keys: Mapping[str, ResultKeys], context: SinkContext) -> Sink:
        """Return the sink of all outputs, which has written nothing yet.

        Args:
            compiled: the compiled query.
            keys: the keys of each output, by its field.
            context: what the sinks are opened for; its keys are those of ``spec``.
        """
        return open_sinks(
            context.query,
            keys,
            context.checkpoint_id,
            context.show,
            context.view,
            context.results,
            context.copies,
            partitions=context.partitions,
        )
