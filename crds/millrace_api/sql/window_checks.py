"""Checks of windows: their lengths, their columns, and what the emit strategy needs of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.errors import Problem
from millrace_api.model.streamquery import Emit
from millrace_api.sql.dialect import problem_at, to_sql
from millrace_api.sql.groups import group_expressions, is_any_window, is_window, select_aliases
from millrace_api.sql.intervals import LengthError, interval_micros, literal_text, parse_interval, window_lengths
from millrace_api.sql.sorted_limits import is_sorted_limit
from millrace_api.sql.source_table import SourceTable
from millrace_api.sql.top_rows import row_numbers


def window_problems(
    text: str, scopes: Sequence[Scope], tables: Mapping[str, SourceTable], emit: Emit
) -> Iterator[Problem]:
    """Yield windows that Spark refuses or that are not over event time, and what the emit strategy needs and lacks."""
    windows = 0
    for scope in scopes:
        for call in scope.find_all(exp.Anonymous):
            if not is_any_window(call) or not call.expressions:
                continue
            windows += 1
            yield from _length_problems(text, call)
            column = call.expressions[0]
            if isinstance(column, exp.Column):
                for name, table in _tables_with(column, scope, tables):
                    yield from _column_problems(text, column, name, table, emit)
    joins = any(
        scope.find(exp.Join, exp.Exists)
        or any(each.args.get("query") is not None for each in scope.find_all(exp.In))
        or isinstance(scope.expression, exp.Except | exp.Intersect)
        or is_sorted_limit(scope.expression)
        or (isinstance(scope.expression, exp.Select) and row_numbers(scope.expression))
        for scope in scopes
    )
    waits = emit is not Emit.ON_UPDATE
    if waits and not windows and not joins:
        hint = "add GROUP BY window(column, '10 minutes') to the SQL, or write emit: OnUpdate"
        yield Problem(f"emit {emit} needs a window or a join, and the SQL has none", hint)
    read = {table.name.lower() for scope in scopes for table in scope.find_all(exp.Table)} & set(tables)
    if waits and (windows or joins) and read and not any(tables[name].watermark for name in read):
        hint = "add watermark: {column: ..., delay: 30s} to the source, or write emit: OnUpdate"
        names = " or ".join(f'"{name}"' for name in sorted(read))
        yield Problem(f"emit {emit} needs a watermark, and {names} has none", hint)


def _length_problems(text: str, call: exp.Expr) -> Iterator[Problem]:
    """Yield the lengths of a window that Spark refuses, or that would have no records."""
    try:
        if is_window(call):
            window_lengths(call)
        else:
            for gap in _gaps(call.expressions[1:]):
                _check_gap(gap)
    except LengthError as error:
        start = min((node.meta["start"] for length in call.expressions[1:] for node in length.walk()
                     if "start" in node.meta), default=call.meta.get("start"))  # fmt: skip
        yield problem_at(text, start, error.message, error.hint)


def session_problems(text: str, scope: Scope, tables: Mapping[str, SourceTable]) -> Iterator[Problem]:
    """Yield a session that is all that a SELECT over a stream groups by, which Spark refuses in the run.

    The positions in its GROUP BY must be those of the SELECT list.
    """
    select = scope.expression
    read = (tables.get(table.name.lower()) for table in select.find_all(exp.Table))
    if not isinstance(select, exp.Select) or all(table is None or table.static for table in read):
        return
    aliases = select_aliases(
        select, {column.name.lower() for table in tables.values() for column in table.columns or ()}
    )
    groups = group_expressions(select, aliases)
    if groups and all(is_any_window(group) and not is_window(group) for group in groups):
        hint = f"group by a column beside it, or by window({to_sql(groups[0].expressions[0])}, '10 minutes')"
        message = "session_window is all that the query groups by, and sessions of a stream need a key"
        yield problem_at(text, groups[0].meta.get("start"), message, hint)


def _gaps(arguments: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield the gaps of a session, each of which can be the result of a CASE."""
    for gap in arguments:
        if isinstance(gap, exp.Case):
            yield from (each for each in (*(branch.args["true"] for branch in gap.args["ifs"]), gap.args.get("default"))
                        if each is not None)  # fmt: skip
        else:
            yield gap


def _check_gap(gap: exp.Expr) -> None:
    """Raise LengthError for a constant gap that Spark refuses, or takes as NULL, which would drop the records."""
    text = literal_text(gap)
    if text is None:
        is_number = isinstance(gap.unnest(), exp.Literal)
        if is_number or (interval_micros(gap) is not None and not isinstance(gap, exp.Cast)):
            raise LengthError(f"the gap {to_sql(gap)} is not a text in quotes", "write a text such as '10 minutes'")
        return
    interval = parse_interval(text)
    if max(interval.months, interval.days, interval.microseconds) <= 0:
        raise LengthError(f"the gap '{text}' is not longer than zero", "write a gap such as '10 minutes'")


def _tables_with(
    column: exp.Column, scope: Scope, tables: Mapping[str, SourceTable]
) -> Iterator[tuple[str, SourceTable]]:
    """Yield the sources that the column can come from directly."""
    for alias, source in scope.sources.items():
        if isinstance(source, exp.Table) and column.table.lower() in ("", alias.lower()):
            table = tables.get(source.name.lower())
            if table is not None and table.column(column.name) is not None:
                yield source.name.lower(), table


def _column_problems(text: str, node: exp.Column, name: str, table: SourceTable, emit: Emit) -> Iterator[Problem]:
    column = table.column(node.name)
    if column is not None and not column.is_time:
        message = f'the window is over "{column.name}", which is {column.type}'
        yield problem_at(text, node.this.meta.get("start"), message, "write a TIMESTAMP column")
    elif emit is not Emit.ON_UPDATE and table.watermark and table.watermark.lower() != node.name.lower():
        message = f'the window is over "{node.name}", but the watermark of "{name}" is on "{table.watermark}"'
        hint = "use one column for both, or write emit: OnUpdate"
        yield problem_at(text, node.this.meta.get("start"), message, hint)
