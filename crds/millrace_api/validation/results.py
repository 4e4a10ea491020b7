"""The result of a query: its columns, its groups, and the key of its rows.

The key is that of a Kafka message, or the primary key of a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace_api.errors import MillraceError, Problem, suggest
from millrace_api.model.python_query import PythonQuery
from millrace_api.model.sinks import SinkSpec
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.groups import Group, GroupColumn, is_window, query_groups
from millrace_api.sql.parsed_query import parsed_sql
from millrace_api.sql.result_names import expanded_names, output_names
from millrace_api.sql.schema_ddl import parse_schema

Grouping = tuple[str, tuple[str, ...]]
"""A grouping expression and the result columns that hold it, the preferred one first."""


def result_groups(spec: Spec) -> tuple[Group, ...] | None:
    """Return the grouping expressions of a query; empty if its result is one row, None if they are unknown.

    Raises:
        MillraceError: if the SQL or a schema does not parse.
    """
    if spec.query.python is not None:
        return tuple(_python_groups(spec.query.python))
    assert spec.query.sql is not None
    schemas = [source.schema_text for source in spec.sources.values() if source.schema_text is not None]
    columns = {column.name.lower() for schema in schemas for column in parse_schema(schema)}
    return query_groups(parsed_sql(spec).tree, columns)


def identified_by_run(spec: Spec) -> bool:
    """Return whether only a run knows what identifies the rows of a result: where it joins or counts tables or groups.

    Raises:
        MillraceError: if the SQL does not parse.
    """
    if any(source.is_evolving for source in spec.sources.values()):
        return True
    if spec.query.sql is None:
        return False
    query = parsed_sql(spec).written_out
    return query.has_subqueries or query.subtracts or query.numbers_rows or (query.has_joins and query.has_distinct)


def results_change(spec: Spec) -> bool:
    """Return whether a result can change after it was emitted.

    Raises:
        MillraceError: if the SQL does not parse.
    """
    if spec.emit is Emit.ON_WINDOW_CLOSE:
        return False
    return spec.query.python is not None or parsed_sql(spec).aggregates


def _python_groups(query: PythonQuery) -> list[Group]:
    """Return the groups of an aggregator, whose results begin with window start, window end and the key."""
    groups = []
    if query.window is not None:
        bounds = (GroupColumn(0, "start"), GroupColumn(1, "end"))
        groups.append(Group("window", bounds, query.window.column, query.window.size.microseconds))
    first = 2 if query.window is not None else 0
    return groups + [Group(name, (GroupColumn(first + index),)) for index, name in enumerate(query.group_by)]


def result_columns(spec: Spec) -> tuple[list[str], bool]:
    """Return the names of the result's columns, and whether they are complete and certain.

    An aggregator adds its own columns after these. In SQL, the names are uncertain if a column has no alias, because
    Spark generates its name, and incomplete with a star; see ``known_columns``.

    Raises:
        MillraceError: if the SQL does not parse.
    """
    if spec.query.python is not None:
        window = ["window_start", "window_end"] if spec.query.python.window is not None else []
        return [*window, *spec.query.python.group_by], False
    assert spec.query.sql is not None
    query = parsed_sql(spec).tree
    named = not query.is_star and all(is_window(item) or item.alias_or_name for item in query.selects)
    return output_names(query), named


def known_columns(spec: Spec) -> list[str] | None:
    """Return the names of the result's columns, with those that a star stands for; None if only Spark knows them.

    Raises:
        MillraceError: if the SQL or a schema does not parse.
    """
    names, certain = result_columns(spec)
    if certain or spec.query.sql is None:
        return names if certain else None
    texts = {name.lower(): source.schema_text for name, source in spec.sources.items()}
    columns = {
        name: None if text is None else [column.name for column in parse_schema(text)] for name, text in texts.items()
    }
    return expanded_names(parsed_sql(spec).scopes()[-1], columns)


def row_key(sink: SinkSpec, columns: Sequence[str] | None, groups: Sequence[Grouping] | None) -> tuple[str, ...] | None:
    """Return the key columns: those given in the sink, or else the grouping columns; None if rows have no key.

    The key of a table must identify its rows, so it consists of all grouping columns and no others. Messages of a
    ``kafka`` sink may have any key; without a grouping column in the result, they have none. A table of a database
    has only a key that is given.

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
    if not sink.replaces_rows:
        return None
    field = f"spec.sink.{sink.kind}.key"
    given = _named(sink.key, columns, field)
    return given if groups is None and given else _primary_key(given, groups, field)


def _primary_key(given: tuple[str, ...], groups: Sequence[Grouping] | None, field: str) -> tuple[str, ...]:
    def problem(message: str, hint: str) -> MillraceError:
        return MillraceError(Problem(message, hint, field=field))

    if groups is None:
        raise problem("the query does not say which columns identify a row of the table", "write key: [...]")
    for text, names in groups:
        if not names:
            message = f"the query groups by {text} and does not select it, so rows of the table would collide"
            raise problem(message, f"add {text} to the SELECT list, or group by less")
        if given and not set(names) & set(given):
            message = f"the key leaves out {names[0]}, so rows of the table would collide"
            raise problem(message, f"add {names[0]}, or leave key out")
    if not given:
        return tuple(names[0] for _, names in groups)
    for name in given:
        if not any(name in names for _, names in groups):
            message = f'"{name}" is not a grouping column: when it changes, the old row would stay in the table'
            raise problem(message, "leave it out of the key")
    return given


def _named(names: Sequence[str], columns: Sequence[str] | None, field: str) -> tuple[str, ...]:
    """Return the names as spelled in the result, or raise an error for an unknown column."""
    if columns is None:
        return tuple(names)
    spelled = {column.lower(): column for column in columns}
    for name in names:
        if name.lower() not in spelled:
            raise MillraceError(Problem(f'the result has no column "{name}"', suggest(name, columns), field=field))
    return tuple(spelled[name.lower()] for name in names)
