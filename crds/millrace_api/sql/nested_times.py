"""Event time that is a field of a struct: ``watermark: {column: event.time}``.

A watermark is on a column. So the source gets one more, which holds the field, and what the SQL reads as ``event.time``
is that column: in a window, in a join's condition, and in a filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from millrace_api.errors import Problem
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import problem_at
from millrace_api.sql.nested_fields import FieldPath, outermost, path_of
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.schema_ddl import EVENT_TIME, Column, is_nested_time, parse_schema
from millrace_api.sql.source_table import SourceTable


def with_flat_times(spec: Spec) -> Spec:
    """Return a spec in which every event time is a column, as the source reads it; its SQL is rewritten accordingly.

    Raises:
        MillraceError: the SQL or a schema does not parse.
    """
    nested = {
        name: source.watermark
        for name, source in spec.sources.items()
        if source.watermark is not None and is_nested_time(source.watermark.column)
    }
    if not nested:
        return spec
    sources = {
        name: source.model_copy(update={"watermark": nested[name].model_copy(update={"column": EVENT_TIME})})
        if name in nested
        else source
        for name, source in spec.sources.items()
    }
    sql, python = spec.query.sql, spec.query.python
    if sql is None:
        assert python is not None
        if python.window is not None and is_nested_time(python.window.column):  # on which the watermark is, too
            window = python.window.model_copy(update={"column": EVENT_TIME})
            python = python.model_copy(update={"window": window})
        query = spec.query.model_copy(update={"python": python})
        return spec.model_copy(update={"sources": sources, "query": query})
    tables = {
        name.lower(): SourceTable(
            None if source.schema_text is None else parse_schema(source.schema_text),
            source.watermark.column if source.watermark is not None else None,
        )
        for name, source in spec.sources.items()
    }
    query = spec.query.model_copy(update={"sql": _rewritten(sql, tables)})
    return spec.model_copy(update={"sources": sources, "query": query})


def shown_times(text: str, spec: Spec) -> str:
    """Return a text with what the spec calls an event time in place of its column."""
    paths = {source.watermark.column for source in spec.sources.values() if source.watermark is not None}
    nested = sorted(filter(is_nested_time, paths))
    return text.replace(EVENT_TIME, nested[0]) if len(nested) == 1 else text


def with_time_columns(
    query: exp.Query, tables: Mapping[str, SourceTable]
) -> tuple[exp.Query, Mapping[str, SourceTable]]:
    """Rewrite a query so that each event time that is a field is a column named by its path; return both rewritten."""
    if not any(is_nested_time(table.watermark) for table in tables.values()):
        return query, tables
    for node, path in list(_times_in(traverse_scope(query), tables)):
        name = exp.Identifier(this=path.table.watermark, quoted=True)
        first = path.qualifier or outermost_names(node)[0]
        name.meta.update(first.meta)
        qualifier = None if path.qualifier is None else path.qualifier.copy()
        column = exp.Column(this=name, table=qualifier)
        is_item = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        node.replace(exp.alias_(column, path.names[-1]) if is_item else column)
    return query, {name: _with_time(table) for name, table in tables.items()}


def outermost_names(node: exp.Expr) -> list[exp.Identifier]:
    """Return the names that a column with its fields is written by."""
    column = node.find(exp.Column)
    assert column is not None
    return outermost(column)[1]


def star_problems(text: str, query: exp.Query, tables: Mapping[str, SourceTable]) -> Iterator[Problem]:
    """Yield the SELECTs that list no columns and read a source whose event time is a field."""
    for scope in traverse_scope(query):
        select = scope.expression
        if not isinstance(select, exp.Select):
            continue
        stars = [item for item in select.expressions if item.is_star]
        for alias, (_, source) in scope.selected_sources.items():
            if not isinstance(source, exp.Table):
                continue
            table = tables.get(source.name.lower())
            if table is None or not is_nested_time(table.watermark):
                continue
            if any(not isinstance(star, exp.Column) or star.table.lower() == alias.lower() for star in stars):
                message = f'SELECT * reads "{source.name}", whose event time {table.watermark} is a field of a struct'
                yield problem_at(text, source.this.meta.get("start"), message, "list the columns that are needed")


def _with_time(table: SourceTable) -> SourceTable:
    if not is_nested_time(table.watermark) or table.columns is None or table.watermark is None:
        return table
    return replace(table, columns=(*table.columns, Column(table.watermark, "TIMESTAMP")))


def _times_in(scopes: Sequence[Scope], tables: Mapping[str, SourceTable]) -> Iterator[tuple[exp.Expr, FieldPath]]:
    """Yield the expressions that read an event time which is a field, once each."""
    seen: set[int] = set()
    for scope in scopes:
        for column in scope.columns:
            node, names = outermost(column)
            path = path_of(names, scope, tables)
            if path is None or not path.fields or id(node) in seen:
                continue
            wanted = (path.table.watermark or "").lower().split(".")
            if [name.lower() for name in path.names] == wanted:
                seen.add(id(node))
                yield node, path


def _rewritten(text: str, tables: Mapping[str, SourceTable]) -> str:
    """Return the SQL with event times as columns; a result's column keeps its name."""
    changes: dict[int, tuple[int, str]] = {}
    for node, path in _times_in(parsed_query(text).scopes(), tables):
        names = outermost_names(node)
        begin, end = names[0].meta["start"], names[-1].meta["end"] + 1
        column = EVENT_TIME
        if path.qualifier is not None:
            column = f"{text[begin : path.qualifier.meta['end'] + 1]}.{EVENT_TIME}"
        is_item = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        changes[begin] = end, f"{column} AS `{names[-1].name}`" if is_item else column
    for begin in sorted(changes, reverse=True):
        end, column = changes[begin]
        text = text[:begin] + column + text[end:]
    return text
