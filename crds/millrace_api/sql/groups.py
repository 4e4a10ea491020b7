"""Grouping expressions of a query, and the result columns that identify each group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from millrace_api.sql.dialect import ANONYMOUS_AGGREGATES, StreamingSql, to_sql
from millrace_api.sql.intervals import LengthError, window_lengths

SESSION = "session_window"
"""Name of the function that makes sessions, and of its value in a SELECT with it."""

_WINDOWS = ("window", SESSION)

WindowPart = Literal["window", "start", "end"]
_PARTS: tuple[WindowPart, ...] = ("window", "start", "end")


@dataclass(frozen=True)
class GroupColumn:
    """An item of the SELECT list that holds a grouping expression.

    ``position`` counts from 0. For a window, ``part`` says whether the item is the ``window`` itself, its ``start`` or
    its ``end``; for any other expression it is None.
    """

    position: int
    part: WindowPart | None = None


@dataclass(frozen=True)
class Group:
    """One expression of GROUP BY, and the result columns that hold it.

    ``columns`` may be empty; otherwise its first entry is the preferred one. For a window that is not a session,
    ``event_time`` is its event-time column, and ``size`` its length in microseconds.
    """

    text: str
    columns: tuple[GroupColumn, ...]
    event_time: str = ""
    size: int = 0

    def known_by(self, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Return the text of the expression and the names of its columns; ``names`` has all result columns in order."""
        return self.text, tuple(names[column.position] for column in self.columns)


def query_groups(query: exp.Query, columns: Collection[str]) -> tuple[Group, ...] | None:
    """Return the groups of a query, each of which has one row in the result; empty if the result is a single row.

    Returns None if the groups are unknown: rows that are not groups, and groups made by UNION, DISTINCT, GROUPING SETS
    and the like. ``columns`` are the column names of the sources, in lower case.
    """
    if not isinstance(query, exp.Select) or query.args.get("distinct") or query.is_star:
        return None
    if query.args.get("group") is None:
        calls = (call for item in query.expressions for call in item.find_all(exp.Func))
        return () if any(is_aggregate(call) for call in calls) else None
    aliases = select_aliases(query, columns)
    expressions = group_expressions(query, aliases)
    if expressions is None:
        return None
    tables = _tables(query)
    items = [_normal(item.unalias(), tables) for item in query.expressions]
    return tuple(_group(node, items, tables, aliases) for node in expressions)


def aggregates(query: exp.Query) -> bool:
    """Return whether the query has groups of any kind, so that its results can change after they were emitted."""
    if query.find(exp.Group, exp.Distinct) is not None or any(is_aggregate(call) for call in query.find_all(exp.Func)):
        return True
    return any(operation.args.get("distinct") for operation in query.find_all(exp.SetOperation))


def is_aggregate(call: exp.Expr) -> bool:
    """Return whether ``call`` aggregates the rows of a group into one value."""
    known = isinstance(call, exp.AggFunc) or (
        isinstance(call, exp.Anonymous) and call.name.lower() in ANONYMOUS_AGGREGATES
    )
    return known and call.find_ancestor(exp.Window) is None


def filters_groups(query: exp.Query) -> bool:
    """Return whether the query filters aggregated results: by HAVING, or by WHERE around a grouped SELECT."""

    def around_groups(select: exp.Select) -> bool:
        inner = (node for node in select.find_all(exp.Select) if node is not select)
        return select.args.get("where") is not None and any(node.args.get("group") for node in inner)

    return query.find(exp.Having) is not None or any(around_groups(node) for node in query.find_all(exp.Select))


def select_aliases(select: exp.Select, columns: Collection[str]) -> dict[str, exp.Expr]:
    """Return the expressions of the aliases in the SELECT list; columns of the sources take precedence over aliases.

    A window has the implicit alias ``window`` or ``session_window``.
    """
    named = [(call.name.lower(), call) for item in select.expressions for call in item.find_all(exp.Anonymous)]
    windows = {name: call for name, call in named if name in _WINDOWS}
    aliased = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    return {alias: node for alias, node in (windows | aliased).items() if alias not in columns}


def group_expressions(select: exp.Select, aliases: Mapping[str, exp.Expr]) -> list[exp.Expr] | None:
    """Return the GROUP BY list with ordinals and aliases resolved; None if it is not a plain list."""
    group = select.args.get("group")
    if group is None:
        return []
    if group.args.get("all") or group.find(exp.GroupingSets, exp.Cube, exp.Rollup):
        return None
    return [_resolved(node, select, aliases) for node in group.expressions]


def set_expressions(select: exp.Select, aliases: Mapping[str, exp.Expr]) -> list[exp.Expr] | None:
    """Return what a SELECT with grouping sets groups by in any of them; None for GROUP BY ALL."""
    group = select.args["group"]
    if group.args.get("all"):
        return None
    listed = [*group.expressions, *(group.args.get("grouping_sets") or ()), *(group.args.get("cube") or ()),
              *(group.args.get("rollup") or ())]  # fmt: skip
    return [_resolved(member, select, aliases) for node in listed for member in _all_members(node)]


def _all_members(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.GroupingSets | exp.Cube | exp.Rollup | exp.Tuple):
        for each in node.expressions:
            yield from _all_members(each)
    else:
        yield node


def common_groups(select: exp.Select, aliases: Mapping[str, exp.Expr]) -> list[exp.Expr]:
    """Return the expressions that a SELECT groups by in each of its grouping sets, with aliases resolved."""
    group = select.args["group"]
    if group.args.get("all"):
        return [item.unalias() for item in select.expressions if not any(map(is_aggregate, item.find_all(exp.Func)))]
    if group.args.get("rollup") or group.args.get("cube"):  # WITH ROLLUP, WITH CUBE
        return []
    listed = group.args.get("grouping_sets")  # GROUP BY a, b GROUPING SETS (...) only names what the sets are of
    return [_resolved(node, select, aliases) for node in _common(listed or group.expressions)]


def _common(nodes: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield what is in all grouping sets of a GROUP BY: ROLLUP and CUBE have an empty one."""
    for node in nodes:
        if isinstance(node, exp.GroupingSets):
            sets = [list(_common(_members(each))) for each in node.expressions]
            yield from (member for member in sets[0] if all(member in other for other in sets))
        elif not isinstance(node, exp.Rollup | exp.Cube):
            yield node


def _members(grouping_set: exp.Expr) -> list[exp.Expr]:
    return grouping_set.expressions if isinstance(grouping_set, exp.Tuple) else [grouping_set.unnest()]


def _resolved(node: exp.Expr, select: exp.Select, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return the expression that a number or an alias in GROUP BY stands for."""
    if isinstance(node, exp.Literal) and node.is_int and 1 <= int(node.name) <= len(select.expressions):
        node = select.expressions[int(node.name) - 1].unalias()
    elif isinstance(node, exp.Column) and not node.table:
        node = aliases.get(node.name.lower(), node)
    return node.unnest()


def is_window(node: exp.Expr) -> bool:
    """Return whether ``node`` is a call of ``window``."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == "window"


def is_session(node: exp.Expr) -> bool:
    """Return whether ``node`` is a call of ``session_window``."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == SESSION


def is_any_window(node: exp.Expr) -> bool:
    """Return whether ``node`` is a call of ``window`` or ``session_window``."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in _WINDOWS


def _group(node: exp.Expr, items: Sequence[str], tables: Collection[str], aliases: Mapping[str, exp.Expr]) -> Group:
    """Return the group of a grouping expression; ``items`` is the canonical text of each item of the SELECT list."""
    wanted: dict[str, WindowPart | None] = {_normal(node, tables): None}
    if is_any_window(node):
        own = [alias for alias, meaning in aliases.items() if _normal(meaning, tables) in wanted]
        wanted = dict(_window_texts(node, tables, own))
    found = [GroupColumn(index, wanted[text]) for index, text in enumerate(items) if text in wanted]
    found.sort(key=lambda column: (_PARTS.index(column.part) if column.part else 0, column.position))
    event_time, size = "", 0
    if is_window(node):
        with suppress(LengthError):
            size = window_lengths(node).size
            event_time = node.expressions[0].name
    return Group(to_sql(node), tuple(found), event_time, size)


def _window_texts(call: exp.Expr, tables: Collection[str], aliases: Iterable[str]) -> Iterator[tuple[str, WindowPart]]:
    """Yield the ways to write a window, its start and its end in the SELECT list."""
    names = [call, *(exp.column(name) for name in (call.name, *aliases))]
    for text in (_normal(name, tables) for name in names):
        yield text, "window"
        for part in ("start", "end"):
            yield f"{text}.`{part}`", part


def _tables(query: exp.Select) -> set[str]:
    """Return the names that can qualify columns if the query reads a single table; empty if it reads several."""
    tables = [table for table in query.find_all(exp.Table) if table.find_ancestor(exp.Select) is query]
    return {tables[0].name.lower(), tables[0].alias_or_name.lower()} if len(tables) == 1 else set()


def _normal(node: exp.Expr, tables: Collection[str]) -> str:
    """Return the canonical text of an expression, independent of quotes, qualifiers and the case of names."""

    copied = node.copy()
    for column in copied.find_all(exp.Column):
        if column.table.lower() in tables:
            column.set("table", None)
    for identifier in copied.find_all(exp.Identifier):
        identifier.set("this", identifier.name.lower())
    return copied.sql(dialect=StreamingSql, identify=True, copy=False)
