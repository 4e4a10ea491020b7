"""Checks of a query's SQL without Spark: syntax, tables, columns, functions and windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from millrace_api.errors import MillraceError, Problem, suggest
from millrace_api.model.streamquery import Emit
from millrace_api.sql.dialect import FUNCTIONS, StreamingSql, parse_query, problem_at
from millrace_api.sql.groups import is_any_window
from millrace_api.sql.schema_ddl import Column
from millrace_api.sql.stream_checks import stream_problems

_MOST = 20
"""Unknown names that are reported of a SELECT; each is compared with all known ones, to suggest what to write."""


@dataclass(frozen=True)
class SourceTable:
    """A source as the checks see it: its columns (None if unknown), and its watermark column (None without one).

    ``keys`` is the primary key of a source that is read as a table. ``static``: it is read once, and does not stream.
    """

    columns: tuple[Column, ...] | None
    watermark: str | None = None
    keys: tuple[str, ...] = ()
    static: bool = False


def check_sql(
    text: str,
    tables: Mapping[str, SourceTable],
    *,
    emit: Emit,
    takes_back: bool = False,
    more_functions: bool = False,
    as_stream: bool = True,
) -> list[Problem]:
    """Return all problems of the SQL; their ``line`` counts from 1 within the text, None is the whole text.

    Args:
        text: SQL of the query.
        tables: sources by name, in lower case.
        emit: when results are emitted.
        takes_back: whether results can be taken back after they were emitted.
        more_functions: whether there may be functions other than Spark's own.
        as_stream: whether SQL that Spark refuses as a stream is a problem.
    """
    try:
        query = parse_query(text)
    except MillraceError as error:
        return list(error.problems)
    for hint in list(query.find_all(exp.Hint)):
        hint.pop()  # hints name tables by alias, and Spark ignores unknown names
    problems = list(_unknown_tables(text, query, tables))
    if problems:
        return problems  # the columns of a missing table are unknown, so further checks would guess
    scopes = traverse_scope(query)
    for scope in scopes:
        problems += islice(_ScopeCheck(text, scope, tables).unknown_columns(), _MOST)
    if not more_functions:
        problems += islice(_unknown_functions(text, query), _MOST)
    problems += _unknown_ordinals(query)
    problems += _window_problems(text, scopes, tables, emit)
    streams = {name: table for name, table in tables.items() if not table.static}
    if not problems and not any(table.name.lower() in streams for table in query.find_all(exp.Table)):
        what = "sources" if len(streams) == len(tables) else "sources that stream"
        problems.append(Problem(f"the SQL reads none of the {what}", f"write FROM {' or '.join(streams)}"))
    if as_stream:
        watermarks = {name: table.watermark for name, table in streams.items()}
        keyed = [name for name, table in streams.items() if table.keys]
        problems += stream_problems(text, query, scopes, watermarks, tables=keyed, emit=emit, takes_back=takes_back)
    return list(dict.fromkeys(problems))


def _unknown_tables(text: str, query: exp.Query, tables: Mapping[str, SourceTable]) -> Iterator[Problem]:
    defined = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue  # a table-valued function
        name = ".".join(part.name for part in table.parts)
        if name.lower() not in tables and name.lower() not in defined:
            hint = suggest(name, tables, f"write one of the sources: {', '.join(tables)}")
            yield _at(text, table.this, f'there is no source "{name}"', hint)


def _unknown_functions(text: str, query: exp.Query) -> Iterator[Problem]:
    """Yield calls whose name, as written, is not a function of Spark; sqlglot knows more names than Spark."""
    for call in query.find_all(exp.Func):
        if "start" not in call.meta or isinstance(call.parent, exp.Dot):
            continue  # special syntax, or a function of a catalog
        written = text[call.meta["start"] : call.meta["end"] + 1].strip("`")
        called = text[call.meta["end"] + 1 :].lstrip().startswith("(")
        if called and written.lower() not in FUNCTIONS:
            hint = suggest(written, FUNCTIONS, "write one of Spark's functions")
            yield problem_at(text, call.meta["start"], f'there is no function "{written}"', hint)


def _unknown_ordinals(query: exp.Query) -> Iterator[Problem]:
    """Yield numbers in GROUP BY that are not the position of an item of the SELECT list."""
    for select in query.find_all(exp.Select):
        group, items = select.args.get("group"), len(select.expressions)
        if group is None or select.is_star:
            continue  # a star stands for an unknown number of items
        for node in group.expressions:
            if isinstance(node, exp.Literal) and node.is_int and not 1 <= int(node.name) <= items:
                hint = f"write a number from 1 to {items}, or the expression itself"
                yield Problem(f"GROUP BY {node.name} is not a position in the SELECT list", hint)


class _ScopeCheck:
    """The names that one SELECT may use: its own and, in a subquery, the names of the enclosing SELECT."""

    def __init__(self, text: str, scope: Scope, tables: Mapping[str, SourceTable]) -> None:
        self._text = text
        self._scope = scope
        self._tables = tables
        self._sources = {name.lower(): self._columns(source) for name, source in scope.sources.items()}
        inner = scope.parent is not None and (scope.is_subquery or scope.is_udtf)
        self._outer = _ScopeCheck(text, scope.parent, tables) if inner and scope.parent else None

    def unknown_columns(self) -> Iterator[Problem]:
        for column in self._scope.columns:
            if column.find_ancestor(exp.Select) is not self._scope.expression:
                continue  # a subquery has its own scope
            first, *rest = column.parts
            visible = self._visible(column)
            if rest and first.name.lower() in self._source_names():
                known = self._columns_of(first.name.lower())
                is_field = visible is not None and first.name.lower() in visible  # a column named like a source
                if known is not None and rest[0].name.lower() not in known and not is_field:
                    yield self._problem(rest[0], known, f'"{first.name}" has no column "{rest[0].name}"')
                continue
            if visible is not None and first.name.lower() not in visible:
                what = "table or column" if rest else "column"
                if rest:
                    visible |= {name: name for name in self._source_names()}
                yield self._problem(first, visible, f'there is no {what} "{first.name}"')

    def _problem(self, name: exp.Expr, known: Mapping[str, str], message: str) -> Problem:
        otherwise = "" if self._source_names() else "add FROM and the name of a source"
        return _at(self._text, name, message, suggest(name.name, dict.fromkeys(known.values()), otherwise))

    def _source_names(self) -> set[str]:
        return set(self._sources) | (self._outer._source_names() if self._outer else set())

    def _columns_of(self, source: str) -> dict[str, str] | None:
        if source in self._sources or self._outer is None:
            return self._sources[source]
        return self._outer._columns_of(source)

    def _visible(self, column: exp.Column) -> dict[str, str] | None:
        """Return the valid unqualified column names, lower case to declared; None if they are unknown."""
        select = self._scope.expression
        if not isinstance(select, exp.Select) or select.args.get("laterals"):
            return None
        visible: dict[str, str] = {}
        for known in self._sources.values():
            if known is None:
                return None
            visible |= known
        visible |= self._windows
        if column.find_ancestor(exp.Where, exp.Join) is None:
            own = column.find_ancestor(exp.Alias)  # the item that contains the column
            visible |= {name.lower(): name for item, name in self._aliases if item is not own}
        if self._outer is None:
            return visible
        outer = self._outer._visible(column)
        return None if outer is None else {**outer, **visible}

    @cached_property
    def _windows(self) -> dict[str, str]:
        """Names of the window columns of this SELECT."""
        return {call.name.lower(): call.name.lower() for call in _window_calls(self._scope.expression)}

    @cached_property
    def _aliases(self) -> list[tuple[exp.Expr, str]]:
        """Items of the SELECT list with an alias, and the aliases."""
        items = self._scope.expression.expressions
        return [(item, item.alias) for item in items if isinstance(item, exp.Alias)]

    def _columns(self, source: exp.Expr | Scope) -> dict[str, str] | None:
        """Return the columns of a table, CTE or derived table, lower case to declared; None if they are unknown."""
        if isinstance(source, exp.Table):
            table = self._tables.get(source.name.lower())
            if table is None or table.columns is None or source.args.get("pivots"):
                return None
            return {column.name.lower(): column.name for column in table.columns}
        if not isinstance(source, Scope):
            return None
        if source.outer_columns:
            return {name.lower(): name for name in source.outer_columns}
        select = source.expression
        if source.set_operation_scopes:
            return self._columns(source.set_operation_scopes[0])
        if not isinstance(select, exp.Select) or select.args.get("laterals"):
            return None
        names = {name.lower(): name for name in output_names(select)}
        if select.is_star:
            for inner in source.sources.values():
                columns = self._columns(inner)
                if columns is None:
                    return None
                names |= columns
        return names


def output_names(select: exp.Query) -> list[str]:
    """Return the column names of a SELECT, without stars; Spark names a column without an alias by its text."""
    return [
        call.name.lower() if is_any_window(call) else call.alias_or_name or call.sql(dialect=StreamingSql)
        for call in select.selects
        if not call.is_star
    ]


def _window_calls(select: exp.Expr) -> Iterator[exp.Expr]:
    return (node for node in select.find_all(exp.Anonymous) if is_any_window(node))


def _window_problems(
    text: str, scopes: list[Scope], tables: Mapping[str, SourceTable], emit: Emit
) -> Iterator[Problem]:
    """Yield windows over columns that are not event time, and what the emit strategy needs and the query lacks."""
    windows = 0
    for scope in scopes:
        for call in scope.find_all(exp.Anonymous):
            if not is_any_window(call) or not call.expressions:
                continue
            windows += 1
            column = call.expressions[0]
            if not isinstance(column, exp.Column):
                continue
            for name, table in _tables_with(column, scope, tables):
                yield from _window_column_problems(text, column, name, table, emit)
    joins = any(scope.find(exp.Join) for scope in scopes)
    waits, closes = emit is not Emit.ON_UPDATE, emit is Emit.ON_WINDOW_CLOSE
    if waits and not windows and not (joins and closes):
        hint = "add GROUP BY window(column, '10 minutes') to the SQL, or write emit: OnUpdate"
        needed = "a window or a join" if closes else "a window"
        yield Problem(f"emit {emit} needs {needed}, and the SQL has none", hint)
    read = {table.name.lower() for scope in scopes for table in scope.find_all(exp.Table)} & set(tables)
    if waits and (windows or (joins and closes)) and read and not any(tables[name].watermark for name in read):
        hint = "add watermark: {column: ..., delay: 30s} to the source, or write emit: OnUpdate"
        yield Problem(f"emit {emit} needs a watermark, and {_listed(sorted(read))} has none", hint)


def _tables_with(
    column: exp.Column, scope: Scope, tables: Mapping[str, SourceTable]
) -> Iterator[tuple[str, SourceTable]]:
    """Yield the sources that the column can come from directly."""
    for alias, source in scope.sources.items():
        if isinstance(source, exp.Table) and column.table.lower() in ("", alias.lower()):
            table = tables.get(source.name.lower())
            if table is not None and _find(table, column.name) is not None:
                yield source.name.lower(), table


def _window_column_problems(
    text: str, node: exp.Column, name: str, table: SourceTable, emit: Emit
) -> Iterator[Problem]:
    column = _find(table, node.name)
    if column is not None and not column.type.startswith("TIMESTAMP"):
        message = f'the window is over "{column.name}", which is {column.type}'
        yield _at(text, node.this, message, "write a TIMESTAMP column")
    elif emit is not Emit.ON_UPDATE and table.watermark and table.watermark.lower() != node.name.lower():
        message = f'the window is over "{node.name}", but the watermark of "{name}" is on "{table.watermark}"'
        yield _at(text, node.this, message, "use one column for both, or write emit: OnUpdate")


def _find(table: SourceTable, name: str) -> Column | None:
    return next((c for c in table.columns or () if c.name.lower() == name.lower()), None)


def _listed(names: list[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)


def _at(text: str, node: exp.Expr, message: str, hint: str) -> Problem:
    """Return a problem at the position of an identifier in the text."""
    return problem_at(text, node.meta.get("start"), message, hint)
