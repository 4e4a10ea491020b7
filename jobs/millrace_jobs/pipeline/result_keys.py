"""What identifies the result rows of a query, and whether they can be taken back: what its sink has to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import FilesSinkSpec, SinkSpec
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.dialect import parse_query
from millrace_api.sql.groups import Group, filters_groups
from millrace_api.validation.results import Grouping, result_groups, row_key
from millrace_jobs.lookups.keys import KeyColumn
from millrace_jobs.pipeline.aggregation import Aggregation, Native
from millrace_jobs.pipeline.compile import CompiledQuery, Routed
from millrace_jobs.pipeline.table_relations import TableQuery, lag_of
from millrace_jobs.sinks.base import ResultKeys, WindowColumn
from millrace_jobs.sinks.files.formats import require_csv, require_partitions
from millrace_jobs.sinks.kafka.messages import require_json
from millrace_jobs.tables.join_side import Contents


def result_keys(query: CompiledQuery, spec: Spec) -> ResultKeys:
    """Return the columns that identify the result rows of a query, as its sink needs them.

    ``spec`` is that of one output.

    Raises:
        MillraceError: the key does not identify rows, results cannot be written as JSON or CSV, or rows that can go
            could not be retracted.
    """
    keys = _result_keys(query, spec)
    _require_rows_that_stay(keys.rows_can_go or keys.weighted, spec.sink)
    return keys


def _result_keys(query: CompiledQuery, spec: Spec) -> ResultKeys:
    if spec.sink.files is not None:
        _require_files(query.result, spec.sink.files)
    if not (spec.sink.kafka is not None or spec.sink.replaces_rows):
        return ResultKeys()
    if spec.sink.lakehouse is None:
        require_json(query.result, f"spec.sink.{spec.sink.kind}")
    names = query.result.names
    groups = result_groups(spec)
    known = None if groups is None else [group.known_by(names) for group in groups]
    if known is None and not spec.sink.key:
        known = _identified_by(query, names)
    columns = row_key(spec.sink, names, known)
    if isinstance(query.execution, TableQuery):
        weighted = is_weighted(query, spec)
        if query.execution.versions:  # rows end where the operators end them
            return ResultKeys(columns, weighted=True, versioned=True, lag=lag_of(query.execution.relation) or 0)
        expires = weighted and spec.emit is Emit.ON_UPDATE
        windows = _open_windows(query.execution, groups or (), names) if expires else ()
        return ResultKeys(columns, _in_key(windows, columns), weighted=weighted)
    weighted = is_weighted(query, spec)
    if columns is None or not _updates_table(spec):
        return ResultKeys(columns, weighted=weighted)
    _require_retractable(query, spec)
    windows = _closing_windows(groups or (), names, spec)
    return ResultKeys(columns, _in_key(windows, columns), retracts(query, spec) and not weighted, weighted)


def _require_files(results: StructType, files: FilesSinkSpec) -> None:
    require_partitions(results, files.partition_by, "spec.sink.files")
    if files.format is not FileFormat.PARQUET:
        require = require_csv if files.format is FileFormat.CSV else require_json
        require(StructType([each for each in results if each.name not in files.partition_by]), "spec.sink.files")


def _identified_by(query: CompiledQuery, names: list[str]) -> list[Grouping] | None:
    """Return the columns that identify the rows of a result, as if it were grouped by them; None if none do."""
    key = query.execution.key if isinstance(query.execution, TableQuery) else None
    return None if key is None else [(names[place], (names[place],)) for place in key]


def _in_key(windows: Iterable[WindowColumn], columns: tuple[str, ...] | None) -> WindowColumn | None:
    return next((window for window in windows if window.name in (columns or ())), None)


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


def retracts(query: CompiledQuery, spec: Spec) -> bool:
    """Whether HAVING marks the rows that it does not admit, for a table to retract, instead of dropping them."""
    routed = query.execution
    having = isinstance(routed, Routed) and routed.aggregation is not None and routed.aggregation.having
    return bool(having) and _updates_table(spec)


def _updates_table(spec: Spec) -> bool:
    return spec.sink.replaces_rows and spec.emit is Emit.ON_UPDATE


def _closing_windows(groups: tuple[Group, ...], names: list[str], spec: Spec) -> Iterator[WindowColumn]:
    """Yield the columns that identify a window whose state is removed once the watermark has passed it."""
    for group in groups:
        if _closes(group, spec):
            for column in group.columns:
                if column.part:
                    yield WindowColumn(names[column.position], column.part, group.size)


def _closes(group: Group, spec: Spec) -> bool:
    event_times = {source.watermark.column.lower() for source in spec.sources.values() if source.watermark}
    return group.event_time.lower() in event_times


def require_rows_that_stay(aggregation: Aggregation, spec: Spec) -> None:
    """Check an output of a query that can be routed as ``result_keys`` does, before Spark knows the types.

    Raises:
        MillraceError: tasks are to write a table whose rows can go.
    """
    ends = any(
        _closes(group, spec) and any(column.part for column in group.columns) for group in result_groups(spec) or ()
    )
    held = spec.emit is Emit.ON_WINDOW_END
    _require_rows_that_stay(held or (_updates_table(spec) and (bool(aggregation.having) or ends)), spec.sink)


def _require_rows_that_stay(can_go: bool, sink: SinkSpec) -> None:
    if sink.table is not None and sink.table.by_partition and can_go:
        message = "rows of the table can be removed, which takes a driver that knows all of them"
        raise MillraceError(Problem(message, "write transaction: Batch", field="spec.sink.table.transaction"))


def _open_windows(tables: TableQuery, groups: tuple[Group, ...], names: list[str]) -> Iterator[WindowColumn]:
    """Yield the columns that identify a window of groups whose state is removed once the watermark has passed it."""
    grouping = tables.groups
    if grouping is None or grouping.window is None or grouping.closing is None:
        return
    for group in groups:
        for column in group.columns:
            if column.part:
                yield WindowColumn(names[column.position], column.part, group.size, grouping.closing.lag)


def _require_retractable(query: CompiledQuery, spec: Spec) -> None:
    """Reject HAVING in Spark's own plan, which keeps no record of the rows that were admitted before."""
    if isinstance(query.execution, Native) and filters_groups(parse_query(query.execution.sql)):
        why = f"because the query is not routed: {query.execution.reason}"
        message = f"a table cannot take back rows that HAVING no longer admits, {why}"
        hint = "leave HAVING to the readers of the table, or write emit: OnWindowClose"
        raise MillraceError(Problem(message, hint, field="spec.query.sql"))


def is_weighted(query: CompiledQuery, spec: Spec) -> bool:
    """Whether results can be taken back, so that the sink has to know their weights."""
    execution = query.execution
    changes = isinstance(execution, TableQuery) and execution.contents is not Contents.RECORDS
    return spec.sink.replaces_rows and (changes or is_held_back(query))


def is_held_back(query: CompiledQuery) -> bool:
    """Whether operators on tables decide when the groups of the result are emitted."""
    return isinstance(query.execution, Routed | TableQuery) and bool(query.execution.ahead)
