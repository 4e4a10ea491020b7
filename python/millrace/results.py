"""The results of a query as an Arrow table, read from the files of its sink."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.sinks import SinkSpec

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ID = "_batch_id"
"""Column that orders the updates of a key: the row with the highest value is current."""


def read_results(sink: SinkSpec, key: Sequence[str] | None) -> pa.Table:
    """Return the rows in the files of a sink, those of earlier batches first.

    Args:
        sink: a sink of local files.
        key: columns by which rows are one result; only the newest row of each is returned. None for all rows.

    Raises:
        MillraceError: the results are not in local files, or a column of the key is not theirs.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    files = sink.files
    if sink.console is not None:
        hint = 'call results() of a run, or give the query a sink such as {"files": {"path": "out/results"}}'
        raise MillraceError(Problem("results that are shown are not kept after their run", hint, field="spec.sink"))
    if files is None or not files.is_local:
        place = sink.kind if files is None else files.path
        hint = 'read them from there, or give the query a sink such as {"files": {"path": "out/results"}}'
        raise MillraceError(Problem(f"results in {place} cannot be read from here", hint, field="spec.sink"))
    found = sorted(Path(files.path).glob(f"**/batch-*.{files.format}"), key=lambda path: path.name)
    paths = [str(path) for path in found if not any(part.startswith("_") for part in path.parts)]
    if not paths:
        return pa.table({})
    partitioning = ds.partitioning(flavor="hive") if files.partition_by else None
    whole = ds.dataset(paths, format=str(files.format), partitioning=partitioning).to_table()
    return whole if key is None else _newest(whole, key)


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
    last = ordered.group_by(list(key), use_threads=False).aggregate([("_row", "max")])["_row_max"]
    kept = [name for name in rows.column_names if name != BATCH_ID]
    return ordered.take(last).select(kept)
