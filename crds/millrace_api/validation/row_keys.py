"""Key columns of a result: the key of a Kafka message, or the primary key of a table."""

from __future__ import annotations

from collections.abc import Sequence

from millrace_api.errors import MillraceError, Problem
from millrace_api.explain_errors import nearest
from millrace_api.model.sinks import SinkSpec

Grouping = tuple[str, tuple[str, ...]]
"""A grouping expression and the result columns that hold it, the preferred one first."""


def row_key(sink: SinkSpec, columns: Sequence[str] | None, groups: Sequence[Grouping] | None) -> tuple[str, ...] | None:
    """Return the key columns: those given in the sink, or else the grouping columns; None if rows have no key.

    The key of a table must identify its rows, so it consists of all grouping columns and no others. Messages of a
    ``kafka`` sink may have any key; without a grouping column in the result, they have none.

    Args:
        sink: sink of the query.
        columns: column names of the result; None if they are unknown.
        groups: grouping expressions of the result; None if they are unknown.

    Raises:
        MillraceError: if the key is invalid or missing, with the field in ``sink``.
    """
    if sink.kafka is not None:
        given = _named(sink.kafka.key, columns, "spec.sink.kafka.key")
        return given or tuple(names[0] for _, names in groups or () if names) or None
    if sink.table is None:
        return None
    given = _named(sink.table.key, columns, "spec.sink.table.key")
    return given if groups is None and given else _primary_key(given, groups)


def _primary_key(given: tuple[str, ...], groups: Sequence[Grouping] | None) -> tuple[str, ...]:
    if groups is None:
        raise _problem("the query does not say which columns identify a row of the table", "write key: [...]")
    for text, names in groups:
        if not names:
            message = f"the query groups by {text} and does not select it, so rows of the table would collide"
            raise _problem(message, f"add {text} to the SELECT list, or group by less")
        if given and not set(names) & set(given):
            message = f"the key leaves out {names[0]}, so rows of the table would collide"
            raise _problem(message, f"add {names[0]}, or leave key out")
    if not given:
        return tuple(names[0] for _, names in groups)
    for name in given:
        if not any(name in names for _, names in groups):
            message = f'"{name}" is no grouping column: where it changes, the old row would stay in the table'
            raise _problem(message, "leave it out of the key")
    return given


def _named(names: Sequence[str], columns: Sequence[str] | None, field: str) -> tuple[str, ...]:
    """Return the names as spelled in the result, or raise an error for an unknown column."""
    if columns is None:
        return tuple(names)
    spelled = {column.lower(): column for column in columns}
    for name in names:
        if name.lower() not in spelled:
            close = nearest(name, columns)
            hint = f'did you mean "{close}"?' if close else f"write one of {', '.join(columns)}"
            raise MillraceError(Problem(f'the result has no column "{name}"', hint, field=field))
    return tuple(spelled[name.lower()] for name in names)


def _problem(message: str, hint: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field="spec.sink.table.key"))
