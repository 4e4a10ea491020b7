"""``ORDER BY ... LIMIT n`` over rows that change: the first n rows, written as those of one partition.

The rows of the result are a set that changes, so nothing is sorted in it: the order decides which rows they are. Ties
are broken as those of ``row_number()``.
"""

from __future__ import annotations

from sqlglot import exp

from millrace_api.sql.dialect import FROM_CTE, parse_expression, to_sql
from millrace_api.sql.top_rows import MOST_ROWS, row_numbers

_MODIFIERS = ("order", "limit", "offset")


def is_sorted_limit(query: exp.Expr) -> bool:
    """Return whether a SELECT or set operation has ORDER BY with LIMIT, and so a number of first rows."""
    return isinstance(query, exp.Query) and all(query.args.get(part) is not None for part in ("order", "limit"))


def sorted_limit_refusal(query: exp.Query) -> tuple[str, str] | None:
    """Return why the first rows of a query with ORDER BY and LIMIT cannot be kept, and a hint; None if they can."""
    bounds = _bounds(query)
    if bounds is None:
        message = "LIMIT or OFFSET is not a number, and so many rows would be kept"
        return message, f"write a number up to {MOST_ROWS}"
    if bounds[1] > MOST_ROWS:
        message = f"LIMIT keeps the first {bounds[1]} rows, with those of OFFSET, and at most {MOST_ROWS} are possible"
        return message, f"ask for {MOST_ROWS} rows or less"
    items = _first_select(query).expressions
    for sorted_by in query.args["order"].expressions:
        found = sorted_by.this
        if isinstance(found, exp.Var):
            message = f"ORDER BY {found.name} has no columns, which the first rows are kept by"
            return message, "write the columns"
        if found.is_int and any(item.is_star for item in items[: int(found.name)]):
            message = f"ORDER BY {found.name} is the position of a column that * stands for"
            return message, "write the name of the column"
        if found.is_int and not 1 <= int(found.name) <= len(items):
            message = f"ORDER BY {found.name} is not a position in the SELECT list"
            return message, f"write a number from 1 to {len(items)}, or the column"
    return None


def with_numbered_limits(query: exp.Query) -> exp.Query:
    """Return a query with QUALIFY in the place of each ORDER BY with LIMIT; the query itself if it has neither.

    Those that ``sorted_limit_refusal`` refuses stay as they are.
    """
    if not any(map(_can_be_numbered, query.find_all(exp.Query))):
        return query
    holder = exp.Paren(this=query.copy())
    for node in [each for each in holder.find_all(exp.Query) if _can_be_numbered(each)][::-1]:  # what is inside first
        node.replace(_numbered(node))
    found: exp.Query = holder.this
    return found


def _can_be_numbered(node: exp.Query) -> bool:
    return is_sorted_limit(node) and sorted_limit_refusal(node) is None


def _numbered(query: exp.Query) -> exp.Expr:
    """Return a query whose QUALIFY keeps the first rows; around a query that it would change, another SELECT has it."""
    bounds, order, plain = _bounds(query), query.args["order"].copy(), query.copy()
    assert bounds is not None, "others are refused"
    for part in _MODIFIERS:
        plain.set(part, None)
    meaning = plain.meta.pop(FROM_CTE, None)
    is_plain = isinstance(plain, exp.Select) and not (
        plain.args.get("distinct") or plain.args.get("qualify") or row_numbers(plain)
    )
    _resolve(order, _first_select(plain), by_name=not is_plain)
    numbered = plain
    if not is_plain:
        inner = plain if isinstance(plain, exp.Subquery) and not plain.alias else exp.Subquery(this=plain)
        numbered = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))
    window = parse_expression("row_number() OVER (ORDER BY 1)")
    window.set("order", order)
    first, last = bounds
    condition = parse_expression(f"n <= {last}" if first == 1 else f"n BETWEEN {first} AND {last}")
    next(condition.find_all(exp.Column)).replace(window)
    numbered.set("qualify", exp.Qualify(this=condition))
    if meaning is not None:
        numbered.meta[FROM_CTE] = meaning
    return numbered


def _bounds(query: exp.Query) -> tuple[int, int] | None:
    """Return the numbers of the first and of the last row; None if they are no literals."""
    limit, offset = query.args["limit"].expression, query.args.get("offset")
    skipped = exp.Literal.number(0) if offset is None else offset.expression
    if not (isinstance(limit, exp.Literal) and isinstance(skipped, exp.Literal) and limit.is_int and skipped.is_int):
        return None
    return int(skipped.name) + 1, int(skipped.name) + int(limit.name)


def _first_select(query: exp.Expr) -> exp.Select:
    """Return the SELECT whose columns have the names of the result."""
    while not isinstance(query, exp.Select):
        query = query.this
    return query


def _resolve(order: exp.Expr, select: exp.Select, *, by_name: bool) -> None:
    """Replace positions in ORDER BY by the items of a SELECT list; with ``by_name``, items by their names."""
    names = {
        to_sql(item.unalias()): exp.column(item.alias_or_name) for item in select.expressions if item.alias_or_name
    }
    for sorted_by in order.expressions:
        found = sorted_by.this
        if found.is_int:
            found = select.expressions[int(found.name) - 1].unalias().copy()
        if by_name:
            found = names.get(to_sql(found), found).copy()
        sorted_by.set("this", found)
