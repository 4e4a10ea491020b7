"""``ORDER BY ... LIMIT n`` over rows that change: the first n rows, written as those of one partition.

The rows of the result are a set that changes, so nothing is sorted in it: the order decides which rows they are. Ties
are broken as those of ``row_number()``.
"""

from __future__ import annotations

from sqlglot import exp

from millrace_api.sql.dialect import FROM_CTE, parse_expression, to_sql
from millrace_api.sql.top_rows import MOST_ROWS, row_numbers
from millrace_api.sql.varying import calls_varying

_MODIFIERS = ("order", "limit", "offset")


def is_sorted_limit(query: exp.Expr) -> bool:
    """Return whether a SELECT or set operation has ORDER BY with LIMIT, and so a number of first rows."""
    return isinstance(query, exp.Query) and all(query.args.get(part) is not None for part in ("order", "limit"))


class _RefusedError(Exception):
    """An ORDER BY with LIMIT whose first rows cannot be kept, or whose meaning is not certain."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.reason = message, hint


def sorted_limit_refusal(query: exp.Query) -> tuple[str, str] | None:
    """Return why the first rows of a query with ORDER BY and LIMIT cannot be kept, and a hint; None if they can."""
    bounds = _bounds(query)
    if bounds is None:
        message = "LIMIT or OFFSET is not a number, and so many rows would be kept"
        return message, f"write a number up to {MOST_ROWS}"
    if bounds[1] > MOST_ROWS:
        message = f"LIMIT keeps the first {bounds[1]} rows, with those of OFFSET, and at most {MOST_ROWS} are possible"
        parts = "LIMIT and OFFSET" if query.args.get("offset") is not None else "LIMIT"
        return message, f"write a {parts} of {MOST_ROWS} or less"
    try:
        _sort_keys(query)
    except _RefusedError as error:
        return error.reason
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
    for sorted_by, key in zip(order.expressions, _sort_keys(query), strict=True):
        sorted_by.set("this", key)
    numbered = plain
    if not _is_plain(query):
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


def _is_plain(query: exp.Expr) -> bool:
    """Return whether QUALIFY can be added to a query without a change of its rows."""
    changed = query.args.get("distinct") or query.args.get("qualify")
    return isinstance(query, exp.Select) and not changed and not row_numbers(query)


def _sort_keys(query: exp.Query) -> list[exp.Expr]:
    """Return what ORDER BY sorts by, for QUALIFY: positions as columns, and columns of a result by their names there.

    Raises:
        _RefusedError: one of them means no column of the result, or it is not certain which.
    """
    items, keys = _first_select(query).expressions, []
    for sorted_by in query.args["order"].expressions:
        found = sorted_by.this
        if isinstance(found, exp.Var):
            raise _RefusedError(f"ORDER BY {found.name} has no columns to keep rows by", "write the columns")
        if calls_varying(found):
            message = f"ORDER BY {to_sql(found)} has another value each time, so a row would change its place"
            raise _RefusedError(message, "order by columns")
        if isinstance(found, exp.Literal) and found.is_int:
            keys.append(_at_position(int(found.name), items, is_plain=_is_plain(query)))
        elif not found.find(exp.Column, exp.AggFunc, exp.Anonymous):
            raise _RefusedError(f"ORDER BY {to_sql(found)} is the same for all rows", "order by columns")
        else:
            keys.append(found.copy() if _is_plain(query) else _of_result(found, items))
    return keys


def _at_position(number: int, items: list[exp.Expr], *, is_plain: bool) -> exp.Expr:
    """Return the item of a SELECT list at a position, by its name if it has one."""
    if any(item.is_star for item in items[:number]):
        message = f"ORDER BY {number} is the position of a column that * stands for"
        raise _RefusedError(message, "write the name of the column")
    if not 1 <= number <= len(items):
        message = f"ORDER BY {number} is not a position in the SELECT list"
        raise _RefusedError(message, f"write a number from 1 to {len(items)}, or the column")
    item = items[number - 1]
    aliases = {each.alias.lower() for each in items if each.alias}
    columns = {column.name.lower() for column in item.unalias().find_all(exp.Column) if not column.table}
    named = item.alias or (not is_plain and isinstance(item, exp.Column))
    if named and _names(items).count(item.alias_or_name.lower()) == 1:
        return exp.column(exp.to_identifier(item.alias_or_name))
    if item.alias or not is_plain or columns & aliases:
        message = f"ORDER BY {number} is the position of {to_sql(item)}, which has no name of its own in the result"
        raise _RefusedError(message, "give it an alias that no other column has, and order by that")
    return item.copy()


def _of_result(key: exp.Expr, items: list[exp.Expr]) -> exp.Expr:
    """Return what a UNION, or a SELECT with DISTINCT or numbers, is sorted by, with the names of its result."""
    names = _names(items)
    own = {column.name.lower() for column in key.find_all(exp.Column) if not column.table}
    same = [item for item in items if item.alias and to_sql(item.unalias()) == to_sql(key)]
    if not isinstance(key, exp.Column) and len(same) == 1 and own.isdisjoint(names):
        return exp.column(exp.to_identifier(same[0].alias))
    if key.find(exp.AggFunc):
        message = f"ORDER BY of a UNION, or of DISTINCT, reads columns of the result: {to_sql(key)} is none"
        raise _RefusedError(message, "select it with a name, and order by that")
    found = key.copy()
    for column in list(found.find_all(exp.Column)):
        copies = [item for item in items if isinstance(item, exp.Column) and to_sql(item) == to_sql(column)]
        is_known = (len(copies) == 1 if column.table else True) and (
            names.count(column.name.lower()) == 1 or (any(item.is_star for item in items) and not column.table)
        )
        if not is_known:
            message = f"ORDER BY of a UNION, or of DISTINCT, reads columns of the result: {to_sql(column)} is none"
            raise _RefusedError(message, "select it with a name that no other column has, and order by that name")
        column.set("table", None)
    return found


def _names(items: list[exp.Expr]) -> list[str]:
    """Return the names of the columns of a result, in lower case."""
    return [item.alias_or_name.lower() for item in items if item.alias_or_name]
