"""The results of a query as an Arrow table, read from the files of its sink; and a sink for those that have none."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import CheckpointSpec
from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import FilesSinkSpec, SinkSpec, result_file

if TYPE_CHECKING:
    import pyarrow as pa

    from millrace_api.model.streamquery import Spec
    from millrace_api.model.streamquery import StreamQuery as QueryModel

MOST_BYTES = 2 << 30
"""Maximum size of the results that are kept for a query without a sink of its own; its run fails beyond."""

BATCH_ID = "_batch_id"
"""Column that orders the updates of a key: the row with the highest value is current."""


@cache
def _folder_of_process(process: int) -> tuple[Path, int]:
    """Return the folder of all results that this process, of this id, keeps, and its lock.

    It is removed when the process ends; those of processes that were killed, when the next one makes its own.
    """
    from millrace_jobs.disk import process_folder

    folder, lock = process_folder("millrace-results-")
    atexit.register(_remove, folder, process)
    return folder, lock


def _remove(folder: Path, process: int) -> None:
    """Remove a folder of this process; a forked child has the same objects and must leave them to its parent."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


class KeptResults:
    """A temporary folder for the results of a query that would only show them; it is removed with this object.

    The checkpoint is there, too, unless the query names one: such a query starts from the beginning at each run.
    A process that inherits ``lock`` keeps the folder for as long as it runs, if this one is killed.
    """

    def __init__(self, query: QueryModel, most_bytes: int = MOST_BYTES) -> None:
        process = os.getpid()
        whole, self.lock = _folder_of_process(process)
        folder = Path(tempfile.mkdtemp(dir=whole))
        weakref.finalize(self, _remove, folder, process)
        self._query, self._folder = query, folder
        self._most_bytes, self._bytes = most_bytes, 0

    @property
    def query(self) -> QueryModel:
        """The query with this sink."""
        sink = SinkSpec(files=FilesSinkSpec(path=str(self._folder / "results"), format=FileFormat.PARQUET))
        checkpoint = self._query.spec.checkpoint or CheckpointSpec(uri=(self._folder / "checkpoint").as_uri())
        changed = {"sink": sink, "checkpoint": checkpoint}
        return self._query.model_copy(update={"spec": self._query.spec.model_copy(update=changed)})

    def require_room(self, batch: int) -> None:
        """Count the results of a batch. Raises MillraceError once there are too many."""
        pattern = result_file(batch, 0, FileFormat.PARQUET).replace("-0000.", "-*.")
        self._bytes += sum(file.stat().st_size for file in (self._folder / "results").glob(pattern))
        if self._bytes > self._most_bytes:
            message = f"the results of {self._query.name} are larger than {self._most_bytes:,} bytes"
            hint = 'give the query a sink, such as {"files": {"path": "out/results"}}'
            raise MillraceError(Problem(message, hint, field="spec.sink"))


def read_results(spec: Spec, *, latest: bool = False, key: Sequence[str] | None = None) -> pa.Table:
    """Return the rows in the files of a sink, those of earlier batches first.

    Args:
        spec: the spec of the query, with a sink of local files.
        latest: whether to return only the newest row of each result.
        key: columns that identify a result, for ``latest``; None for the columns that the query groups by.

    Raises:
        MillraceError: the results are not in local files, or it is not known which columns identify a result.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    sink = spec.sink
    files = sink.files
    if sink.console is not None:
        hint = 'call results() of a run, or give the query a sink such as {"files": {"path": "out/results"}}'
        raise MillraceError(Problem("results that are shown are not kept after their run", hint, field="spec.sink"))
    if files is None or not files.is_local:
        place = sink.kind if files is None else files.path
        hint = 'read them from there, or give the query a sink such as {"files": {"path": "out/results"}}'
        raise MillraceError(Problem(f"results in {place} cannot be read from here", hint, field="spec.sink"))
    found = sorted(Path(files.path).glob(f"**/batch-*.{files.format}"), key=lambda path: path.name)
    inside = [path for path in found if not any(part.startswith("_") for part in path.relative_to(files.path).parts)]
    if not inside:
        return pa.table({})
    partitioning = ds.partitioning(flavor="hive") if files.partition_by else None
    try:  # one by one: a column of text files has the type that its values in a file suggest
        read = [
            ds.dataset(str(path), format=str(files.format), partitioning=partitioning).to_table() for path in inside
        ]
        whole = pa.concat_tables(read, promote_options="permissive")
    except pa.ArrowException as error:
        hint = "give the sink format: parquet, which keeps the types of results"
        raise MillraceError(Problem(f"results in {files.path} cannot be read: {error}", hint)) from None
    if not latest and key is None:
        return whole
    return _newest(whole, _key(spec, whole) if key is None else [key] if isinstance(key, str) else key)


def _key(spec: Spec, rows: pa.Table) -> Sequence[str]:
    """Return the columns that identify a result, as far as the query alone shows them."""
    from millrace_api.validation.results import identified_by_run, result_groups

    hint = f"name them, such as key={[name for name in rows.column_names if name != BATCH_ID][:1]}"
    groups = None if identified_by_run(spec) else result_groups(spec)
    has_folders = spec.sink.files is not None and spec.sink.files.partition_by
    if groups is None or has_folders:
        raise MillraceError(Problem("the query does not say which columns identify a result", hint, field="key"))
    known = [group.known_by(rows.column_names) for group in groups]
    if hidden := [text for text, names in known if not names]:
        message = f"the query groups by {hidden[0]} and does not select it, so nothing identifies a result"
        raise MillraceError(Problem(message, f"add {hidden[0]} to the SELECT list", field="spec.query.sql"))
    return [names[0] for _, names in known]


def _newest(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the newest row of each key, in the order of the keys' first rows, without the number of its batch."""
    import pyarrow as pa

    missing = [name for name in key if name not in rows.column_names]
    if missing:
        hint = f"write some of {', '.join(name for name in rows.column_names if name != BATCH_ID)}"
        raise MillraceError(Problem(f"results have no column {', '.join(missing)}", hint, field="key"))
    ordered = rows.append_column("_row", pa.array(range(rows.num_rows)))
    if BATCH_ID in rows.column_names:
        ordered = ordered.sort_by([(BATCH_ID, "ascending"), ("_row", "ascending")])
        ordered = ordered.set_column(ordered.num_columns - 1, "_row", pa.array(range(rows.num_rows)))
    if key:
        last = ordered.group_by(list(key), use_threads=False).aggregate([("_row", "max")])["_row_max"]
    else:
        last = pa.array([rows.num_rows - 1])
    kept = [name for name in rows.column_names if name != BATCH_ID]
    return ordered.take(last).select(kept)
