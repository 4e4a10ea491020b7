"""Groups and columns of a query's result, for SQL and for Python aggregators."""

from __future__ import annotations

from millrace_api.model.query import PythonQuery
from millrace_api.model.streamquery import Spec
from millrace_api.sql.checks import output_names
from millrace_api.sql.groups import Group, GroupColumn, is_window, query_groups
from millrace_api.sql.parsing import parse_query
from millrace_api.sql.schema_ddl import parse_schema


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
    return query_groups(parse_query(spec.query.sql), columns)


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
    Spark generates its name, and incomplete with a star, which only Spark expands.

    Raises:
        MillraceError: if the SQL does not parse.
    """
    if spec.query.python is not None:
        window = ["window_start", "window_end"] if spec.query.python.window is not None else []
        return [*window, *spec.query.python.group_by], False
    assert spec.query.sql is not None
    query = parse_query(spec.query.sql)
    named = not query.is_star and all(is_window(item) or item.alias_or_name for item in query.selects)
    return output_names(query), named
