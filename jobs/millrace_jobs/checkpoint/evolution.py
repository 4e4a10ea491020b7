"""Query evolution: whether a query can continue from the checkpoint of its earlier version.

``millrace_api.validation.evolution`` has the rules for the fields of the spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_api.model.streamquery import StreamQuery
from millrace_api.sql.outline import aggregate_text
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.validation.evolution import ForbiddenChange, compare, fields_with_wider_types
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.queries.sql_aggregates import longest_window
from millrace_jobs.queries.state_layout import held_aggregates, same_entry, windows_after
from millrace_jobs.time_texts import time_text


def check_changes(
    before: StreamQuery, now: StreamQuery, log: SparkLog, layout: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Check the changes of a query, and return remarks on those that are allowed but have side effects.

    ``layout`` is that of the state, if it was recorded.

    Raises:
        MillraceError: the query has forbidden changes, with one problem for each, or changes that an unfinished batch
            does not allow.
    """
    forbidden, remarks = changes_on(layout, before, now)
    if forbidden:
        made = f"the checkpoint {log.spark.parent} was made"
        hint = _hint(before, log)
        raise MillraceError(*(Problem(f"{made} {each}", hint, field=each.field) for each in forbidden))
    if field := next(iter(fields_with_wider_types(before, now)), None):
        require_finished_batch(log, "with the types that it had", field)
    return remarks


def changes_on(
    layout: Mapping[str, Any] | None, before: StreamQuery, now: StreamQuery
) -> tuple[tuple[ForbiddenChange, ...], tuple[str, ...]]:
    """Return the forbidden changes of a query on a state of this layout, and remarks on those that are allowed."""
    held = tuple(map(aggregate_text, held_aggregates(layout)))
    partial = {call for call, start in zip(held, windows_after(layout), strict=False) if start is not None}
    return compare(before, now, held, partial)


def require_finished_batch(log: SparkLog, before: str, field: str) -> None:
    """Refuse a change by which an unfinished batch would have other results; a sink may have those that it had.

    Raises:
        MillraceError: a batch is unfinished. ``before`` is how the query has to run first.
    """
    unfinished = log.last_batch().unfinished
    if unfinished is not None:
        message = f"batch {unfinished} of the checkpoint {log.spark.parent} was begun and is not finished"
        hint = f"run the query {before} until that batch is finished, and then change it"
        raise MillraceError(Problem(message, hint, field=field))


def check_layout(before: Mapping[str, Any] | None, now: Mapping[str, Any], log: SparkLog) -> None:
    """Compare the state layouts of two runs; ``before`` is None if it was not recorded.

    Raises:
        MillraceError: the layouts differ.
    """
    if before is None:
        return
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if not same_entry(name, old, new):
            what = f"the state's {name} was {_shown(old)} when the checkpoint was made, and would now be {_shown(new)}"
            hint = f"write the query as it was, or start over with {ANOTHER_CHECKPOINT}"
            raise MillraceError(Problem(f"the checkpoint {log.spark.parent} cannot be continued: {what}", hint))


def _hint(query: StreamQuery, log: SparkLog) -> str:
    """Return what to do instead: what to remove before a batch has finished; for Kafka, when to read again from."""
    checkpoint = query.spec.checkpoint
    named = checkpoint is None or checkpoint.uri is None  # the folder has the name of the query
    other = "another metadata.name" if named else "another spec.checkpoint.uri"
    hint = f"write it as it was, or give the query {other} and another place for its results to start over"
    last = log.last_batch()
    if last.begun is not None and last.committed is None:  # as after a first record that the schema does not fit
        sinks = [output.sink for output in query.spec.outputs.values()]
        begun = " and ".join([str(log.spark.parent), *(sink.files.path for sink in sinks if sink.files is not None)])
        # A driver may have died between the sink's commit and Spark's, and no new checkpoint knows of that.
        others = any(sink.files is None and sink.console is None for sink in sinks)
        first = "look whether the sink has results of it, and " if others else ""
        return f"no batch of it has finished, so {first}remove {begun} to start over; or write it as it was"
    watermark = log.watermark_ms()
    if not watermark or not all(source.kafka is not None for source in query.spec.sources.values()):
        return hint
    start = time_text((watermark - _longest_window_ms(query)) // 1000 * 1_000_000).partition(".")[0]
    if not start[0].isdigit():  # the field takes years of four digits
        return hint
    return f"{hint}, with startingTimestamp: {start}Z to include the windows that are still open"


def _longest_window_ms(query: StreamQuery) -> int:
    if query.spec.query.sql is not None:
        return longest_window(parsed_query(query.spec.query.sql)) // 1000
    window = query.spec.query.python.window if query.spec.query.python is not None else None
    return window.size.microseconds // 1000 if window is not None else 0


def _shown(value: Any) -> str:
    return "not given" if value is None else repr(value)
