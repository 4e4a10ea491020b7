"""The columns of sources that the windows and groups of a query are over, through its subqueries.

A record without a value is in no window; nor is it in a group that is final, if the column is the group's event time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.sql.groups import group_expressions, is_any_window, select_aliases
from millrace_api.sql.parsed_query import ParsedQuery


def window_columns(query: ParsedQuery) -> set[tuple[str, str]]:
    """Return the sources and columns, in lower case, that windows of a query are over."""
    return _origins((call.expressions[0], scope) for scope in query.scopes() for call in _windows(scope))


def group_columns(query: ParsedQuery) -> set[tuple[str, str]]:
    """Return the sources and columns, in lower case, that a query groups by."""
    return _origins((group, scope) for scope in query.scopes() for group in _groups(scope.expression))


def _windows(scope: Scope) -> Iterator[exp.Anonymous]:
    for call in scope.expression.find_all(exp.Anonymous):
        if is_any_window(call) and call.expressions and call.parent_select is scope.expression:
            yield call


def _groups(select: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the expressions of a GROUP BY, each name both as a column and as the alias that it may be."""
    if isinstance(select, exp.Select):
        for aliases in ({}, select_aliases(select, ())):
            yield from group_expressions(select, aliases) or ()


def _origins(items: Iterable[tuple[exp.Expr, Scope]]) -> set[tuple[str, str]]:
    """Return the columns of sources that these items of SELECTs are, without those that are other expressions."""
    found: set[tuple[str, str]] = set()
    seen: set[tuple[Scope, str]] = set()  # a subquery is looked at once per column, however many others read it
    waiting = list(items)
    while waiting:
        source, name = _read(*waiting.pop())
        if isinstance(source, exp.Table):
            found.add((source.name.lower(), name))
        elif isinstance(source, Scope) and (source, name) not in seen:
            seen.add((source, name))
            waiting += _behind(source, name)
    return found


def _read(item: exp.Expr, scope: Scope) -> tuple[exp.Expr | Scope | None, str]:
    """Return what an item of a SELECT reads, a source or a subquery, and the column; None for other expressions."""
    column = item.unalias()
    if not isinstance(column, exp.Column):
        return None, ""
    sources = {alias.lower(): source for alias, (_, source) in scope.selected_sources.items() if not _is_made(source)}
    source = sources.get(column.table.lower())
    if source is None and not column.table and len(sources) == 1:
        (source,) = sources.values()
    return source, column.name.lower()


def _is_made(source: exp.Expr | Scope) -> bool:
    """Whether these rows are made from a record, as by LATERAL VIEW, and so are columns of no source."""
    return isinstance(source, Scope) and not isinstance(source.expression, exp.Query)


def _behind(scope: Scope, name: str) -> Iterator[tuple[exp.Expr, Scope]]:
    """Yield the items of SELECTs that a column of a subquery is."""
    names = [item.alias_or_name.lower() for item in _items(scope)]
    place = names.index(name) if name in names else None
    for select in _selects(scope):
        if select.expression.is_star:
            yield exp.column(name), select
        elif place is not None and place < len(_items(select)):
            yield _items(select)[place], select


def _items(scope: Scope) -> list[exp.Expr]:
    assert isinstance(scope.expression, exp.Query)
    return list(scope.expression.selects)


def _selects(scope: Scope) -> Iterator[Scope]:
    """Yield a SELECT, or those that UNION puts together."""
    if not scope.set_operation_scopes:
        yield scope
    for part in scope.set_operation_scopes:
        yield from _selects(part)
