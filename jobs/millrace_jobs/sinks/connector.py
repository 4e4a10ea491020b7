"""The interface of a connector for sinks: what checks and opens the sinks of one kind."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.base import Model
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import make_folder, path_for_spark, remove_folders
from millrace_jobs.sinks.base import ResultKeys, ShowTable, Sink

if TYPE_CHECKING:
    from millrace_jobs.sinks.kafka.table_view import TableView

TABLE, KEYS = "table", "keys"
"""Names in the folder of local copies: of the folder with the rows that can be looked up, and of files with keys."""

_Kind = TypeVar("_Kind", bound=Model, contravariant=True)


@dataclass(frozen=True)
class SinkContext:
    """What a sink is opened for.

    Attributes:
        query: the query; its ``spec.sink`` is this sink, also for an additional output.
        keys: the key of its result rows.
        checkpoint_id: id of the checkpoint that the query runs on; a run on another checkpoint is another writer.
        show: shows a table in the terminal.
        view: the view that a result table keeps for look-ups; other sinks have none.
        results: columns of the results; only a sink that checks their types needs them.
        copies: a folder on a local disk for what a later run can use again; None if there is no such place.
        partitions: number of the state's partitions, each of which has certain results of a batch; None without state.
    """

    query: StreamQuery
    keys: ResultKeys
    checkpoint_id: str
    show: ShowTable
    view: TableView | None = None
    results: StructType | None = None
    copies: Path | None = None
    partitions: int | None = None

    @property
    def columns(self) -> StructType:
        """The columns of the results, for a sink that checks their types."""
        assert self.results is not None, "this sink checks the types of the results"
        return self.results


class SinkConnector(Protocol[_Kind]):
    """What checks and opens the sinks of one kind; the type argument is the model of the kind.

    Its module is imported before Spark starts, so it imports within ``open`` what takes long to load.
    """

    def check(self, spec: _Kind) -> None:
        """Check as much as possible before Spark starts; contact no server, and leave nothing behind.

        Raises MillraceError if results cannot be written.
        """
        return

    def check_server(self, spec: _Kind) -> None:
        """Ask the server of a sink whether it takes results; change nothing. Called in a thread, while Spark starts.

        Raises MillraceError if it does not; a TransientError counts for nothing. The sink's ``prepare`` checks all.
        """
        return

    def open(self, spec: _Kind, context: SinkContext) -> Sink:
        """Return the sink; it writes nothing and contacts no server before its ``prepare``."""
        ...


def require_folder(path: str | Path, field: str) -> None:
    """Check that a folder, and files in it, can be created; leave nothing behind. ``field`` is where it is written.

    Raises MillraceError if the folder cannot be created or written to, or Spark cannot use a folder of this name.
    """
    folder = path_for_spark(path, field)
    require_data(folder)
    try:
        made = make_folder(folder)
        with tempfile.TemporaryDirectory(prefix="_", dir=folder):
            pass
        remove_folders(made)
    except OSError as error:
        raise unwritable(folder, error, field) from None


def unwritable(folder: Path, error: OSError, field: str) -> MillraceError:
    """Return the error of results that cannot be written to a folder."""
    message = f"results cannot be written to {folder}: {error.strerror or error}"
    return MillraceError(Problem(message, "write a folder that this user may write to", field=field))
