"""What the sinks of a query have to know of its results: what identifies a row, whether rows can go, and partitions.

A batch that is repeated after a crash has the same results in each partition of the state, so tasks can write them by
partition. After a shuffle behind the state, it need not: Spark may divide the repeated batch among another number of
tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import FilesSinkSpec, SinkSpec
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.groups import Group
from millrace_api.validation.results import result_groups, row_key
from millrace_jobs.lookups.keys import KeyColumn
from millrace_jobs.queries.execution import CompiledQuery, Execution, ResultTraits
from millrace_jobs.sinks.base import ResultBatch, ResultKeys, WindowColumn
from millrace_jobs.sinks.files.changelog import KEY_FIELD, require_names
from millrace_jobs.sinks.files.formats import require_csv
from millrace_jobs.sinks.files.formats import require_partitions as require_output_partitions
from millrace_jobs.sinks.kafka.messages import require_json
from millrace_jobs.sinks.outputs import errors_of


def output_keys(query: CompiledQuery, spec: Spec) -> dict[str, ResultKeys]:
    """Return the keys of each output, by its field in the spec: ``millrace validate``, ``explain`` and a run ask here.

    Raises:
        MillraceError: an output cannot have the results, with the field of that output.
    """
    require_partitions(query.execution, spec)
    keys = {}
    for field, output in spec.outputs.items():
        with errors_of(field):
            keys[field] = result_keys(query, output)
    return keys


def result_keys(query: CompiledQuery, spec: Spec) -> ResultKeys:
    """Return the columns that identify the result rows of a query, as its sink needs them.

    ``spec`` is that of one output.

    Raises:
        MillraceError: the key does not identify rows, results cannot be written as JSON or CSV, or rows that can go
            could not be retracted.
    """
    keys = _result_keys(query, spec)
    require_rows_that_stay(keys.rows_can_go or keys.weighted, spec.sink)
    return keys


def _result_keys(query: CompiledQuery, spec: Spec) -> ResultKeys:
    if spec.sink.files is not None:
        _require_files(query.result, spec.sink.files)
        require_own_columns(query.result.names, spec)
    if not (spec.sink.kafka is not None or spec.sink.replaces_rows):
        return ResultKeys()
    if spec.sink.lakehouse is None and spec.sink.files is None:
        require_json(query.result, f"spec.sink.{spec.sink.kind}")
    names, row = query.result.names, query.execution.results.key
    groups = result_groups(spec)
    known = None if groups is None else [group.known_by(names) for group in groups]
    if known is None and not spec.sink.key and row is not None:
        known = [(names[place], (names[place],)) for place in row]  # as if the result were grouped by them
    columns = row_key(spec.sink, names, known)
    if spec.sink.has_changelog and groups is None:
        _require_key_of_rows(columns or (), names, query.execution.results)
    return query.execution.result_keys(columns, names, groups or (), spec)


def _require_key_of_rows(key: Sequence[str], names: Sequence[str], results: ResultTraits) -> None:
    """Check that a key given for a changelog identifies rows: of two rows with one key, the older one would be lost."""
    keys = [] if results.key is None else [results.key, *results.other_keys]
    missing = [[names[place] for place in each if names[place] not in key] for each in keys]
    if not all(missing):
        return
    if missing:
        least = min(missing, key=len)
        columns = ", ".join(least)
        message, hint = f"the key leaves out {columns}, so rows of the changelog would collide", f"add {columns}"
    elif results.takes_back:
        message = "nothing says which columns identify a row of the result, so rows of the changelog could collide"
        hint = (
            "select the primary keys of its tables and groups, such as a window's start and end, and write them as "
            "key, write SELECT DISTINCT with all of its columns as key, or leave key out"
        )
    else:
        message = "nothing says which columns identify a row of the result, and none is replaced or removed"
        hint = "leave key out"
    raise MillraceError(Problem(message, hint, field=KEY_FIELD))


def require_own_columns(names: Iterable[str], spec: Spec) -> None:
    """Check that files do not have columns of their own with the names of results.

    Raises:
        MillraceError: they have.
    """
    if spec.sink.has_changelog or (spec.sink.files is not None and spec.emit is not Emit.ON_WINDOW_CLOSE):
        require_names(names, is_changelog=spec.sink.has_changelog)


def _require_files(results: StructType, files: FilesSinkSpec) -> None:
    require_output_partitions(results, files.partition_by, "spec.sink.files")
    if files.format is not FileFormat.PARQUET:
        require = require_csv if files.format is FileFormat.CSV else require_json
        require(StructType([each for each in results if each.name not in files.partition_by]), "spec.sink.files")


def keys_of_groups(
    columns: tuple[str, ...] | None,
    names: Sequence[str],
    groups: Sequence[Group],
    spec: Spec,
    *,
    retracts: bool = False,
    weighted: bool = False,
) -> ResultKeys:
    """Return the keys of groups that Spark keeps until the watermark passes them; see ``Execution.result_keys``."""
    if columns is None or not updates_table(spec):
        return ResultKeys(columns, weighted=weighted)
    closing = [group for group in groups if closes(group, spec)]
    return ResultKeys(columns, window_in_key(columns, names, closing), retracts, weighted)


def window_in_key(
    columns: tuple[str, ...] | None, names: Sequence[str], groups: Iterable[Group], lag: int = 0
) -> WindowColumn | None:
    """Return the first column of a row's key that identifies a window of groups, which change until ``lag`` after."""
    windows = (
        WindowColumn(names[column.position], column.part, group.size, lag)
        for group in groups
        for column in group.columns
        if column.part
    )
    return next((window for window in windows if window.name in (columns or ())), None)


def updates_table(spec: Spec) -> bool:
    """Whether an output is a table whose rows every change replaces."""
    return spec.sink.replaces_rows and spec.emit is Emit.ON_UPDATE


def closes(group: Group, spec: Spec) -> bool:
    """Whether the state of a group is removed once the watermark has passed it."""
    event_times = {source.watermark.column.lower() for source in spec.sources.values() if source.watermark}
    return group.event_time.lower() in event_times


def require_rows_that_stay(can_go: bool, sink: SinkSpec) -> None:
    """Raise MillraceError if tasks are to write a table whose rows can go."""
    if sink.table is not None and sink.table.by_partition and can_go:
        message = "rows of the table can be removed, which takes a driver that knows all of them"
        raise MillraceError(Problem(message, "write transaction: Batch", field="spec.sink.table.transaction"))


def lookup_columns(query: CompiledQuery, keys: ResultKeys, spec: Spec) -> tuple[KeyColumn, ...]:
    """Return the key columns of a result table with their types, and which of them identify a window."""
    names = query.result.names
    windows = {
        names[column.position]: (column.part, group.size)
        for group in result_groups(spec) or ()
        if group.size
        for column in group.columns
    }
    return tuple(
        KeyColumn(name, query.result[name].dataType.simpleString(), *windows.get(name, (None, 0)))
        for name in keys.columns or ()
    )


def require_partitions(execution: Execution, spec: Spec) -> None:
    """Check that tasks can write the results by partition, if an output asks for it.

    Raises:
        MillraceError: nothing fixes the results of each partition.
    """
    if execution.result_partitions(1) is not None:
        return
    for field, output in spec.outputs.items():
        if output.sink.by_partition:
            place = f"{field}.sink.{output.sink.kind}.transaction"
            raise MillraceError(Problem(execution.unpartitioned, "write transaction: Batch", field=place))


class ClosingWindows:
    """Marks the batches of a query that close no windows; those of which nothing is known count as closing some.

    Under OnWindowClose, Spark's aggregation emits a group in the first batch whose watermark has reached the end of its
    window, and drops records of windows that an earlier batch has closed. So a batch has no results if no window ends
    between the watermark of the batch before and its own. A sink then need not be prepared for many.
    """

    def __init__(self, query: CompiledQuery, spec: Spec) -> None:
        self._window = query.execution.results.closing_window if spec.emit is Emit.ON_WINDOW_CLOSE else None
        self._before: ResultBatch | None = None

    def marked(self, batch: ResultBatch) -> ResultBatch:
        """Return the batch that is about to be written, with ``may_have_results`` false if it closes no window."""
        before, self._before = self._before, batch
        follows = before is not None and before.number + 1 == batch.number  # else, a batch is repeated
        if self._window is None or before is None or not follows:
            return batch
        closes = self._window.ends_between(before.watermark * 1000, batch.watermark * 1000)
        return batch if closes else replace(batch, may_have_results=False)
