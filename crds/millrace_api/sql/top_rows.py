"""The first rows of partitions: SELECTs with ``row_number() OVER (...)`` that QUALIFY, or WHERE around them, bounds.

A number of rows without an end would need all rows of a partition in order, and every row would change every later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from millrace_api.errors import Problem
from millrace_api.sql.dialect import problem_at, start_of, to_sql
from millrace_api.sql.join_conditions import conjuncts

MOST_ROWS = 100
"""Most rows of a partition, each of which has a place in the state of the partition."""

_NUMBER = "row_number"


def row_numbers(select: exp.Select) -> list[exp.Window]:
    """Return the calls of ``row_number() OVER (...)`` in a SELECT, without those of its subqueries."""
    return [
        window
        for window in select.find_all(exp.Window)
        if _is_row_number(window) and window.find_ancestor(exp.Select) is select
    ]


def last_row(select: exp.Select) -> int | None:
    """Return the largest number of a row that a SELECT with ``row_number()``, or the one around it, asks for.

    None if there is no such number.
    """
    texts = {to_sql(window) for window in row_numbers(select)}
    places = {
        place: item.alias.lower() for place, item in enumerate(select.expressions) if to_sql(item.unalias()) in texts
    }
    own = {name for name in places.values() if name}
    found = list(_limits(select.args.get("qualify"), lambda node: to_sql(node) in texts or _is_column(node, "", own)))
    subquery, around = select.parent, select.parent_select
    while isinstance(subquery, exp.Subquery) and isinstance(subquery.parent, exp.Subquery) and not subquery.alias:
        subquery = subquery.parent  # parentheses
    if isinstance(subquery, exp.Subquery) and isinstance(around, exp.Select) and _is_shown(subquery):
        table, columns = subquery.alias.lower(), [name.lower() for name in subquery.alias_column_names]
        if columns:
            has_star = any(item.is_star for item in select.expressions)
            own = set() if has_star else {columns[place] for place in places if place < len(columns)}
        found += _limits(around.args.get("where"), lambda node: _is_column(node, table, own))
    return min(found, default=None)


def _is_shown(subquery: exp.Subquery) -> bool:
    """Return whether the WHERE around a subquery names its columns: not those of another side of a UNION, say."""
    place = subquery.parent
    while isinstance(place, exp.Subquery) and not place.alias:
        place = place.parent  # joins in parentheses
    return isinstance(place, exp.From) or (isinstance(place, exp.Join) and place.kind.upper() not in ("SEMI", "ANTI"))


def is_bound(condition: exp.Expr, last: int, is_number: Callable[[exp.Expr], bool]) -> bool:
    """Return whether a condition says no more than that a number of rows is at most ``last``."""
    condition = condition.unnest()
    if isinstance(condition, exp.EQ):
        return last == 1 and 1 in _limits(condition, is_number)
    return isinstance(condition, exp.LTE | exp.LT | exp.GTE | exp.GT) and last in _limits(condition, is_number)


def row_number_problem(text: str, window: exp.Expr) -> Problem | None:
    """Return why ``row_number()`` of a stream or a table cannot run; None if it has an order and a largest number."""
    select, start = window.find_ancestor(exp.Select), start_of(window)
    if not isinstance(select, exp.Select):
        return None
    if window.args.get("order") is None:
        return problem_at(text, start, "row_number() has no order", "write OVER (PARTITION BY ... ORDER BY ...)")
    last = last_row(select)
    if last is None:
        message = "row_number() numbers all rows of a partition, which have no end"
        hint = "add QUALIFY row_number() OVER (...) <= 10, or WHERE n <= 10 in the SELECT around it"
        return problem_at(text, start, message, hint)
    if last > MOST_ROWS:
        message = f"row_number() numbers the first {last} rows of a partition, and at most {MOST_ROWS} are possible"
        return problem_at(text, start, message, f"ask for {MOST_ROWS} rows or less")
    return None


def is_row_number(node: exp.Expr) -> bool:
    """Return whether an expression is ``row_number() OVER (...)``."""
    return isinstance(node, exp.Window) and _is_row_number(node)


def _is_row_number(window: exp.Window) -> bool:
    return isinstance(window.this, exp.Func) and window.this.name.lower() == _NUMBER and not window.args.get("spec")


def _is_column(node: exp.Expr, table: str, names: set[str]) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() in ("", table) and node.name.lower() in names


def _limits(condition: exp.Expr | None, is_number: Callable[[exp.Expr], bool]) -> Iterator[int]:
    """Yield the largest numbers that the parts of a condition allow."""
    if isinstance(condition, exp.Where | exp.Qualify):
        condition = condition.this
    for part in conjuncts(condition):
        match part:
            case exp.Between() if is_number(part.this.unnest()):
                yield from _integers([part.args["high"]])
            case exp.In() if is_number(part.this.unnest()) and part.expressions:
                numbers = list(_integers(part.expressions))
                if len(numbers) == len(part.expressions):
                    yield max(numbers)
            case exp.EQ() | exp.LTE() | exp.LT() if is_number(part.left.unnest()):
                yield from (number - isinstance(part, exp.LT) for number in _integers([part.right]))
            case exp.EQ() | exp.GTE() | exp.GT() if is_number(part.right.unnest()):
                yield from (number - isinstance(part, exp.GT) for number in _integers([part.left]))


def _integers(nodes: list[exp.Expr]) -> Iterator[int]:
    for node in nodes:
        inner = node.unnest()
        if isinstance(inner, exp.Literal) and inner.is_int:
            yield int(inner.name)
