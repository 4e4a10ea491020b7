"""Checks of aggregation: what is grouped, what is aggregated, and which columns are neither.

Spark compares expressions by their meaning (``1 < v`` and ``v > 1`` are one), and these checks compare them by their
text. An expression that has a grouped expression's column is therefore left to Spark, in the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.errors import Problem
from millrace_api.sql.dialect import problem_at, start_of, to_sql
from millrace_api.sql.groups import (
    group_expressions,
    is_aggregate,
    is_any_window,
    is_window,
    select_aliases,
    set_expressions,
)
from millrace_api.sql.intervals import LengthError, window_lengths
from millrace_api.sql.sorted_limits import is_sorted_limit
from millrace_api.sql.top_rows import row_numbers

Columns = Mapping[str, Collection[str] | None]
"""Column names of each table of a SELECT, in lower case; None if they are unknown."""

_COMMUTATIVE = (exp.Add, exp.Mul, exp.And, exp.Or, exp.EQ, exp.NEQ)


def grouping_problems(text: str, scope: Scope, columns: Columns) -> Iterator[Problem]:
    """Yield the aggregates and columns of one SELECT that Spark refuses where they are.

    Args:
        text: the SQL.
        scope: scope of the SELECT.
        columns: names of the columns of its tables.
    """
    select = scope.expression
    if not isinstance(select, exp.Select):
        return
    check = _GroupingCheck(text, scope, select, columns)
    yield from check.misplaced_aggregates()
    yield from check.ungrouped_columns()


class _GroupingCheck:
    def __init__(self, text: str, scope: Scope, select: exp.Select, columns: Columns) -> None:
        self._text = text
        self._scope = scope
        self._select = select
        self._columns = columns
        known = {name for names in columns.values() for name in names or ()}
        self._aliases = select_aliases(select, known)
        joins = select.args.get("joins") or ()
        self._merged = {name.name.lower() for join in joins for name in join.args.get("using") or ()}
        self._natural = any(join.method for join in joins)
        self._within: set[str] = set()  # the columns that grouped expressions have

    def misplaced_aggregates(self) -> Iterator[Problem]:
        """Yield aggregates within aggregates, and in clauses that are computed before any aggregate."""
        for call in self._own_aggregates(self._select):
            holder = call.find_ancestor(exp.Func, exp.Select)
            while holder is not None and not isinstance(holder, exp.Select) and not is_aggregate(holder):
                holder = holder.find_ancestor(exp.Func, exp.Select)
            if holder is not None and not isinstance(holder, exp.Select):
                message = f"{to_sql(holder)} aggregates an aggregate"
                hint = f"aggregate twice: SELECT ... FROM (SELECT {to_sql(call)} AS x ...)"
                yield self._at(holder, message, hint)
        joins = self._select.args.get("joins") or ()
        for name, clause in (
            ("WHERE", self._select.args.get("where")),
            *(("ON", join.args.get("on")) for join in joins),
        ):
            for call in self._own_aggregates(clause) if clause is not None else ():
                hint = "write HAVING" if name == "WHERE" else "aggregate in a subquery"
                yield self._at(call, f"{name} has the aggregate {to_sql(call)}", hint)
        for group in group_expressions(self._select, self._aliases) or ():
            for call in self._own_aggregates(group):
                yield self._at(
                    call, f"GROUP BY has the aggregate {to_sql(call)}", "group by columns, or use a subquery"
                )

    def ungrouped_columns(self) -> Iterator[Problem]:
        """Yield columns of the SELECT list and of HAVING that are neither grouped nor aggregated."""
        select = self._select
        having = select.args.get("having")
        has_groups = select.args.get("group") is not None
        items = [*select.expressions, *([having.this] if having is not None else [])]
        if not has_groups and having is None and not any(self._own_aggregates(item) for item in items):
            return
        groups = group_expressions(select, self._aliases)
        if groups is None and has_groups:
            groups = set_expressions(select, self._aliases)
        if groups is None or select.args.get("laterals") or None in self._columns.values():
            return
        if len({self._window_identity(group) for group in groups if is_any_window(group)}) > 1:
            start = min(filter(None, (start_of(group) for group in groups if is_any_window(group))), default=None)
            yield problem_at(self._text, start, "the query groups by two windows", "group by one window")
            return
        texts = {self._normal(group) for group in groups}
        self._within = {self._full_name(column) for group in groups for column in group.find_all(exp.Column)}
        columns = {name for names in self._columns.values() for name in names or ()}
        names = {name.lower() for group in groups if is_any_window(group) for name in self._names_of(group)} - columns
        yield from self._window_times(groups)
        written = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
        for item in select.expressions:
            if any(isinstance(node, exp.Star) and not isinstance(node.parent, exp.Func) for node in item.walk()):
                yield from self._ungrouped_star(item, groups)
            else:
                yield from self._ungrouped(item, texts, {*self._aliases, *names}, has_groups=has_groups)
        if having is not None:  # its aliases come before columns
            yield from self._ungrouped(having.this, texts, {*written, *names}, has_groups=has_groups)
        for node in self._numbered():
            yield from self._ungrouped(node, texts, {*written, *names}, has_groups=has_groups)

    def _numbered(self) -> Iterator[exp.Expr]:
        """Yield copies of QUALIFY and of what ``row_number()`` and ORDER BY go by: outside of OVER, calls aggregate."""
        if is_sorted_limit(self._select) and not self._select.args.get("distinct"):
            found = (each.this for each in self._select.args["order"].expressions)
            yield from (node.copy() for node in found if not node.is_int)
        for window in row_numbers(self._select):
            yield from (node.copy() for node in window.args.get("partition_by") or ())
            order = window.args.get("order")
            yield from (node.this.copy() for node in (order.expressions if order is not None else ()))
        qualify = self._select.args.get("qualify")
        if qualify is not None:
            yield qualify.this.copy()

    def _window_times(self, groups: Collection[exp.Expr]) -> Iterator[Problem]:
        """Yield window_time over the window that its own SELECT makes, which Spark does not take for grouped."""
        if any(map(is_any_window, groups)):
            for call in self._select.find_all(exp.Anonymous):
                is_own = call.parent_select is self._select and call not in groups
                if call.name.lower() == "window_time" and is_own:
                    hint = f"write SELECT {to_sql(call)} FROM (...) around it, or window.end"
                    yield self._at(call, f"{to_sql(call)} stands in the SELECT that makes the window", hint)

    def _ungrouped_star(self, star: exp.Expr, groups: Collection[exp.Expr]) -> Iterator[Problem]:
        if any(any(part.args.values()) for part in star.find_all(exp.Star)):
            return  # EXCEPT and the like: only Spark knows which columns are left
        tables = {part.table.lower() for part in star.find_all(exp.Column)} or self._columns.keys()
        grouped = {each.name.lower() for each in groups if isinstance(each, exp.Column)}
        missing = [name for table in tables for name in self._columns.get(table) or () if name not in grouped]
        if missing:
            message = f'the SELECT list has *, and "{missing[0]}" is not grouped'
            yield self._at(star, message, "name the columns, and aggregate those that are not in GROUP BY")

    def _ungrouped(
        self,
        node: exp.Expr,
        groups: Collection[str],
        aliases: Collection[str],
        *,
        has_groups: bool,
        is_part: bool = False,
    ) -> Iterator[Problem]:
        if isinstance(node, exp.Subquery | exp.Query | exp.Window | exp.Lambda) or is_aggregate(node):
            return
        if isinstance(node, exp.Filter) or self._normal(node) in groups:
            return
        if isinstance(node, exp.Column):
            if self._is_grouped(node, groups, aliases) or self._is_within(node, is_part=is_part):
                return
            name = to_sql(node)
            if has_groups:
                message, hint = f"{name} is not in GROUP BY", f"add {name} to GROUP BY, or write any_value({name})"
            else:
                message = f"{name} is neither grouped nor aggregated"
                hint = f"add GROUP BY {name}, or write any_value({name})"
            yield self._at(node, message, hint)
            return
        is_part = is_part or not isinstance(node, exp.Alias | exp.Paren)
        for child in node.iter_expressions():
            yield from self._ungrouped(child, groups, aliases, has_groups=has_groups, is_part=is_part)

    def _is_grouped(self, column: exp.Column, groups: Collection[str], aliases: Collection[str]) -> bool:
        """Return whether a column is grouped, a field of a grouped one, an alias, or one that only Spark knows."""
        first, *rest = (part.name.lower() for part in column.parts)
        if first in aliases:
            return True
        if first in self._columns and rest:
            if rest[0] not in (self._columns[first] or ()) or (len(rest) > 1 and f"{first}.{rest[0]}" in groups):
                return True
            return (rest[0] in self._merged or self._natural) and _is_named_in(rest[0], groups)
        holders = [table for table, names in self._columns.items() if first in (names or ())]
        if not holders or (rest and f"{holders[0]}.{first}" in groups):
            return True  # of an enclosing SELECT, or unknown
        return len(holders) > 1 and (first in self._merged or self._natural) and _is_named_in(first, groups)

    def _is_within(self, column: exp.Column, *, is_part: bool) -> bool:
        """Return whether a column may be part of a grouped expression, which has it, its fields or its struct."""
        name = f"{self._full_name(column)}."
        is_part = is_part or name.count(".") > 2  # a field, which can also be written as info['a']
        return is_part and any(name.startswith(f"{other}.") or other.startswith(name) for other in self._within)

    def _names_of(self, window: exp.Expr) -> Iterator[str]:
        """Yield the names of a window: that of the function, and its aliases."""
        yield window.name
        yield from (alias for alias, meaning in self._aliases.items() if to_sql(meaning) == to_sql(window))

    def _window_identity(self, window: exp.Expr) -> object:
        """Return what differs between windows that Spark cannot both group by: the column, and lengths of any text."""
        with suppress(LengthError):
            if is_window(window):
                return self._normal(window.expressions[0]), window_lengths(window)
        return to_sql(window)

    def _own_aggregates(self, node: exp.Expr) -> list[exp.Expr]:
        found = (each for each in node.find_all(exp.Func) if is_aggregate(each))
        return [each for each in found if each.find_ancestor(exp.Select) in (self._select, None)]

    def _normal(self, node: exp.Expr) -> str:
        """Return the text by which equal expressions are equal: names with their table, and operands in order."""

        def plain(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Column):
                return exp.Var(this=self._full_name(part))
            if isinstance(part, exp.Identifier):
                return exp.Identifier(this=part.name.lower())
            return part

        copy = node.copy().transform(plain, copy=False)
        for part in list(copy.find_all(*_COMMUTATIVE)):
            if isinstance(part.parent, type(part)):
                continue
            operands = sorted(to_sql(each.unnest()) for each in part.flatten())
            joined = exp.Var(this=f"({f' {part.key} '.join(operands)})")
            if part is copy:
                return joined.name
            part.replace(joined)
        return to_sql(copy.unnest())

    def _full_name(self, column: exp.Column) -> str:
        parts = [part.name.lower() for part in column.parts]
        if parts[0] in self._columns and len(parts) > 1:
            return ".".join(parts[1:] if parts[1] in self._merged or self._natural else parts)
        holders = [table for table, names in self._columns.items() if parts[0] in (names or ())]
        merged = parts[0] in self._merged or self._natural
        return ".".join([holders[0], *parts] if holders and not merged else parts)

    def _at(self, node: exp.Expr, message: str, hint: str) -> Problem:
        start = node.meta.get("start", start_of(node))
        return problem_at(self._text, start, message, hint)


def _is_named_in(name: str, groups: Collection[str]) -> bool:
    """Return whether a column of this name, of any table, is among grouped expressions."""
    return any(text == name or text.endswith(f".{name}") for text in groups)
