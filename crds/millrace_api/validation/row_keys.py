"""The key of a result: which of its columns make the key of a Kafka message, or the primary key of a table."""

from __future__ import annotations

from collections.abc import Sequence

from millrace_api.errors import MillraceError, Problem
from millrace_api.explain_errors import nearest
from millrace_api.model.sinks import SinkSpec

Grouping = tuple[str, tuple[str, ...]]
"""A grouping expression, and the result columns from which it is known, of which the first is the one to take."""


def row_key(sink: SinkSpec, columns: Sequence[str] | None, groups: Sequence[Grouping] | None) -> tuple[str, ...] | None:
    """The columns of the key: what the sink says, or else the grouping columns; None: the rows have no key.

    The key of a table tells its rows apart, so it is made of all grouping columns and of no others. Messages of a
    ``kafka`` sink may have any key, and are written without one where the result has no grouping column.

    Args:
        sink: of the query.
        columns: of the result; None where they are not known.
        groups: what the result has one row for each of; None where that cannot be told.

    Raises:
        MillraceError: with the field in ``sink``.
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
        raise _problem("the query does not say which columns tell the rows of the table apart", "write key: [...]")
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
    """The names as the result spells them."""
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
