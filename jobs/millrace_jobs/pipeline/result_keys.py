"""The columns that identify the rows of a query's results, and the rows that a table removes again."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.groups import Group, filters_groups
from millrace_api.sql.parsing import parse_query
from millrace_api.validation.result_groups import result_groups
from millrace_api.validation.row_keys import row_key
from millrace_jobs.pipeline.analysis import CompiledQuery, Routed
from millrace_jobs.pipeline.front_end import Native
from millrace_jobs.sinks.base import ResultKeys, WindowColumn
from millrace_jobs.sinks.kafka.messages import require_json


def result_keys(planned: CompiledQuery, spec: Spec) -> ResultKeys:
    """Return what the sink of a spec has to know about its results.

    Raises:
        MillraceError: the key does not identify rows, results cannot be written as JSON, or rows that HAVING no
            longer admits could not be retracted.
    """
    if spec.sink.kafka is None and spec.sink.table is None:
        return ResultKeys()
    require_json(planned.result, f"spec.sink.{spec.sink.kind}")
    names = planned.result.names
    groups = result_groups(spec)
    columns = row_key(spec.sink, names, None if groups is None else [group.known_by(names) for group in groups])
    if columns is None or not _updates_table(spec):
        return ResultKeys(columns)
    _require_retractable(planned, spec)
    windows = (window for window in _closing_windows(groups or (), names, spec) if window.name in columns)
    return ResultKeys(columns, next(windows, None), retracts(planned, spec))


def retracts(planned: CompiledQuery, spec: Spec) -> bool:
    """Whether HAVING marks the rows that it does not admit, for a table to retract, instead of dropping them."""
    plan = planned.plan
    having = isinstance(plan, Routed) and plan.aggregation is not None and plan.aggregation.having
    return bool(having) and _updates_table(spec)


def _updates_table(spec: Spec) -> bool:
    return spec.sink.table is not None and spec.emit is Emit.ON_UPDATE


def _closing_windows(groups: tuple[Group, ...], names: list[str], spec: Spec) -> Iterator[WindowColumn]:
    """Yield the columns that identify a window whose state is removed once the watermark has passed it."""
    event_times = {source.watermark.column.lower() for source in spec.sources.values() if source.watermark}
    for group in groups:
        if group.event_time.lower() in event_times:
            for column in group.columns:
                if column.part:
                    yield WindowColumn(names[column.position], column.part, group.size)


def _require_retractable(planned: CompiledQuery, spec: Spec) -> None:
    """Reject HAVING in Spark's own plan, which keeps no record of the rows that were admitted before."""
    if isinstance(planned.plan, Native) and filters_groups(parse_query(planned.plan.sql)):
        message = f"a table cannot take back rows that HAVING no longer admits, since {planned.plan.reason}"
        hint = "leave HAVING to the readers of the table, or write emit: OnWindowClose"
        raise MillraceError(Problem(message, hint, field="spec.query.sql"))
