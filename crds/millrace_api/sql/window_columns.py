"""The columns of sources that the windows of a query are over: a record without a value there is in no window."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from millrace_api.sql.dialect import parse_query
from millrace_api.sql.groups import is_any_window


def window_columns(sql: str) -> set[tuple[str, str]]:
    """Return the sources and columns, in lower case, that windows of a query are over, also through subqueries."""
    found: set[tuple[str, str]] = set()
    for scope in traverse_scope(parse_query(sql)):
        for call in scope.expression.find_all(exp.Anonymous):
            if is_any_window(call) and call.expressions and call.parent_select is scope.expression:
                found.update(_origins(call.expressions[0], scope))
    return found


def _origins(item: exp.Expr, scope: Scope) -> Iterator[tuple[str, str]]:
    """Yield the columns of sources that an item of a SELECT is, if it is nothing but columns."""
    column = item.unalias()
    if not isinstance(column, exp.Column):
        return
    sources = {alias.lower(): source for alias, source in scope.sources.items()}
    source = sources.get(column.table.lower())
    if source is None and not column.table and len(sources) == 1:
        (source,) = sources.values()
    if isinstance(source, exp.Table):
        yield source.name.lower(), column.name.lower()
    elif isinstance(source, Scope):
        yield from _through(source, column.name)


def _through(scope: Scope, name: str) -> Iterator[tuple[str, str]]:
    """Yield the columns of sources that a column of a subquery is."""
    names = [item.alias_or_name.lower() for item in _items(scope)]
    place = names.index(name.lower()) if name.lower() in names else None
    for select in _selects(scope):
        if select.expression.is_star:
            yield from _origins(exp.column(name), select)
        elif place is not None and place < len(_items(select)):
            yield from _origins(_items(select)[place], select)


def _items(scope: Scope) -> list[exp.Expr]:
    assert isinstance(scope.expression, exp.Query)
    return list(scope.expression.selects)


def _selects(scope: Scope) -> Iterator[Scope]:
    """Yield a SELECT, or those that UNION puts together."""
    if not scope.set_operation_scopes:
        yield scope
    for part in scope.set_operation_scopes:
        yield from _selects(part)
