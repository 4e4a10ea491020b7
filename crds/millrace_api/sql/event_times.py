"""The event times of a query's groups and joins, as Spark follows them from the sources.

Spark knows event time by column. It stays event time under another name, in a subquery, and in a window over it; the
result of any other expression is none, whatever its value. A group without one would never be final. Of each side of a
join, one column is event time: where a side is itself a join, the one that the condition compares with the other side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.errors import Problem
from millrace_api.model.streamquery import Emit
from millrace_api.sql.dialect import problem_at, start_of, to_sql
from millrace_api.sql.groups import common_groups, group_expressions, is_any_window, select_aliases
from millrace_api.sql.join_bounds import unending
from millrace_api.sql.join_conditions import conjuncts
from millrace_api.sql.source_table import SourceTable


def unclosed_groups(text: str, scopes: Sequence[Scope], tables: Mapping[str, SourceTable]) -> Iterator[Problem]:
    """Yield the GROUP BYs over streams whose groups never close; their ordinals must be those of the SELECT list.

    Args:
        text: the SQL.
        scopes: the scopes of all SELECTs.
        tables: sources by name, in lower case.
    """
    for scope in scopes:
        times, select = _EventTimes(tables), scope.expression
        if isinstance(select, exp.Union) and select.args.get("distinct") and times.reads_stream(select):
            yield from _unclosed_union(text, scope, times)
        if not isinstance(select, exp.Select) or select.args.get("group") is None or not times.reads_stream(select):
            continue
        columns = {column.name.lower() for table in tables.values() for column in table.columns or ()}
        aliases = select_aliases(select, columns)
        listed = group_expressions(select, aliases)
        groups = common_groups(select, aliases) if listed is None else listed
        if any(group.is_star or times.has(group, scope) is not False for group in groups):
            continue
        yield _problem(text, groups, ended=times.ended) if listed is not None else _not_in_all(text, select)


def _not_in_all(text: str, select: exp.Select) -> Problem:
    """Return the problem of grouping sets, and of GROUP BY ALL, of which not each has an event time."""
    group = select.args["group"]
    start = start_of(group) if group.expressions else start_of(select)
    if group.args.get("all"):
        message, hint = "GROUP BY ALL finds no event time", "add a window over the column of the watermark"
    else:
        message = "not every grouping set has an event time"
        hint = "keep the window out of the sets, as in GROUP BY window(at, '1 hour'), ROLLUP(k)"
    message += f", so its groups are never final under emit {Emit.ON_WINDOW_CLOSE}"
    return problem_at(text, start, message, f"{hint}, or write emit: OnUpdate")


def _unclosed_union(text: str, scope: Scope, times: _EventTimes) -> Iterator[Problem]:
    """Yield a UNION, whose rows are groups by all their columns, if none of these has an event time."""
    first = scope
    while first.set_operation_scopes:
        first = first.set_operation_scopes[0]
    items = first.expression.selects if isinstance(first.expression, exp.Query) else []
    if items and all(not item.is_star and times.has(item, first) is False for item in items):
        message = f"UNION has no event time, so its rows are never final under emit {Emit.ON_WINDOW_CLOSE}"
        hint = "write UNION ALL, select the column of the watermark, too, or write emit: OnUpdate"
        yield problem_at(text, start_of(scope.expression.expression), message, hint)


def mixed_semi_joins(text: str, scopes: Sequence[Scope], tables: Mapping[str, SourceTable]) -> Iterator[Problem]:
    """Yield the LEFT SEMI JOINs of streams whose left side has two event times that the SELECT reads.

    Spark moves such a join to where both of them are event time still, and fails in its first batch.
    """
    times = _EventTimes(tables)
    for scope in scopes:
        for join in scope.expression.args.get("joins") or ():
            if join.kind != "SEMI" or not times.reads_stream(join.this):
                continue
            own = join.this.alias_or_name.lower()
            read = {(column.table.lower(), column.name.lower()): column for column in scope.columns
                    if column.table and column.table.lower() != own and times.has(column, scope)}  # fmt: skip
            if len(read) > 1:
                names = " and ".join(map(to_sql, read.values()))
                message = f"a LEFT SEMI JOIN of streams takes one event time of its left side, which has {names}"
                hint = "read only the one that it compares, or write JOIN if each row has at most one partner"
                yield problem_at(text, start_of(join.this), message, hint)


def untimed_outer_joins(text: str, scopes: Sequence[Scope], tables: Mapping[str, SourceTable]) -> Iterator[Problem]:
    """Yield the outer and semi joins of streams whose condition has no event time, so that a row would wait forever."""
    times = _EventTimes(tables)
    watermarks = {name: None if table.static else table.watermark for name, table in tables.items()}
    for scope in scopes:
        select = scope.expression
        if not isinstance(select, exp.Select):
            continue
        read = {name.lower(): source for name, (_, source) in scope.selected_sources.items()}
        joins = select.args.get("joins") or ()
        right = [join.this.alias_or_name.lower() for join in joins]
        for place, join in enumerate(joins):
            waits = bool(join.side or join.kind == "SEMI") and not join.method
            left = [source for name, source in read.items() if name not in right[place:]]
            if waits and times.streams(read.get(right[place])) and any(map(times.streams, left)):
                names = [exp.column(name.name) for name in join.args.get("using") or ()]
                on = join.args.get("on")
                kind = " ".join(part for part in (join.side, join.kind, "JOIN") if part)
                hint = "add AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MINUTE to the condition"
                if not any(times.can_be(each, scope) for each in [*names, *(on.find_all(exp.Column) if on else ())]):
                    message = f"a {kind} of two streams needs a range of event time, or a record would wait forever"
                    yield problem_at(text, start_of(join.this), message, hint)
                elif reason := unending(scope, select, join, watermarks, times.times_of):
                    message = f"a record of a {kind} would wait forever, since the condition has {reason}"
                    yield problem_at(text, start_of(join.this), message, hint)


def _compared(
    times: set[tuple[str, str]], others: set[tuple[str, str]], conditions: Sequence[exp.Expr]
) -> set[tuple[str, str]] | None:
    """Return the time of one side that the conditions compare most with the other side's; None if that is unclear."""
    if len(times) < 2:
        return times
    named = [{(each.table.lower(), each.name.lower()) for each in part.find_all(exp.Column)} for part in conditions]
    uses = {time: sum(time in names and bool(names & others) for names in named) for time in times}
    best = [time for time in times if uses[time] == max(uses.values())]
    return {best[0]} if len(best) == 1 else None


def _problem(text: str, groups: Sequence[exp.Expr], *, ended: bool) -> Problem:
    close = f"so they are never final under emit {Emit.ON_WINDOW_CLOSE}"
    window = next((group for group in groups if is_any_window(group) and group.expressions), None)
    if window is None:
        at = next((start for start in map(start_of, groups) if start is not None), None)
        message = f"its groups by {', '.join(map(to_sql, groups))} have no event time, {close}"
        return problem_at(text, at, message, "add a window over the column of the watermark, or write emit: OnUpdate")
    over = window.expressions[0]
    at = window.meta.get("start", start_of(window))
    if ended:
        message = f"the windows are over {to_sql(over)}, whose event time ends at a join by another column's, {close}"
        hint = "write them over the event time that the join compares, or group the joined rows in a query of their own"
        return problem_at(text, at, message, hint)
    message = f"the windows are over {to_sql(over)}, which is not the column of a watermark, {close}"
    hint = "write the window over that column itself, and calculate with window.start, or write emit: OnUpdate"
    return problem_at(text, at, message, hint)


class _EventTimes:
    """Which expressions are event time; None where that is unknown."""

    def __init__(self, tables: Mapping[str, SourceTable]) -> None:
        self._tables = tables
        self.ended = False
        """Whether a column was the event time of a source, and is none after a join."""
        # each SELECT is looked at once, however many columns of however many levels above lead to it
        self._kept_in: dict[int, set[tuple[str, str]] | None] = {}
        self._times_of: dict[int, set[str]] = {}
        self._columns_of: dict[tuple[int, str], list[bool | None]] = {}

    def reads_stream(self, select: exp.Expr) -> bool:
        read = (self._tables.get(table.name.lower()) for table in select.find_all(exp.Table))
        return any(table is not None and not table.static for table in read)

    def has(self, node: exp.Expr, scope: Scope) -> bool | None:
        """Return whether an expression in a SELECT is event time."""
        node = node.unalias().unnest()
        if is_any_window(node) or (isinstance(node, exp.Anonymous) and node.name.lower() == "window_time"):
            return self.has(node.expressions[0], scope) if node.expressions else False
        if isinstance(node, exp.Column):
            return self._has_column(node, scope)
        return False

    def streams(self, source: exp.Expr | Scope | None) -> bool:
        """Return whether a source of a SELECT has the records of a stream, also through WITH."""
        if isinstance(source, Scope):
            below = [each for _, each in source.selected_sources.values()]
            return any(map(self.streams, [*below, *source.set_operation_scopes]))
        table = self._tables.get(source.name.lower()) if isinstance(source, exp.Table) else None
        return table is not None and not table.static

    def times_of(self, alias: str, source: Scope) -> Collection[str] | None:
        """Return the names of the event times of a derived table; None if they are unknown."""
        found = self._times(alias, source)
        return None if found is None else {name for _, name in found}

    def can_be(self, column: exp.Column, scope: Scope) -> bool:
        """Return whether a column may be event time before any join of its SELECT."""
        parts = [part.name.lower() for part in column.parts]
        sources = {name.lower(): source for name, (_, source) in scope.selected_sources.items()}
        read = [sources[parts[0]]] if len(parts) > 1 and parts[0] in sources else sources.values()
        return any(time is not False for source in read for time in self._column_of(source, parts[-1]))

    def _has_column(self, column: exp.Column, scope: Scope) -> bool | None:
        parts = [part.name.lower() for part in column.parts]
        sources = {name.lower(): source for name, (_, source) in scope.selected_sources.items()}
        qualified = len(parts) > 1 and parts[0] in sources
        if len(parts) > (2 if qualified else 1):
            return False  # a field of a struct, such as window.start
        found = [
            (each, time)
            for each, source in sources.items()
            if not qualified or each == parts[0]
            for time in self._column_of(source, parts[-1])
        ]
        if len(found) != 1:
            return None
        [(alias, time)] = found
        if time:
            if id(scope) not in self._kept_in:
                self._kept_in[id(scope)] = self._kept(scope)
            kept = self._kept_in[id(scope)]
            if kept is not None and (alias, parts[-1]) not in kept:
                self.ended = True
                return False
        return time

    def _kept(self, scope: Scope) -> set[tuple[str, str]] | None:
        """Return the event times that a SELECT has after its joins; None if they are unknown.

        Of a side that has several, a join keeps the one that its condition compares most with the other side.
        """
        select = scope.expression
        sources = {name.lower(): source for name, (_, source) in scope.selected_sources.items()}
        conditions = conjuncts(select.args["where"].this if select.args.get("where") else None)
        first = select.args["from_"].this.alias_or_name.lower()
        kept = self._times(first, sources.get(first))
        for join in select.args.get("joins") or ():
            alias = join.this.alias_or_name.lower()
            times = self._times(alias, sources.get(alias))
            if kept is None or times is None or join.method:
                return None
            parts = conjuncts(join.args.get("on")) + ([] if join.side else conditions)
            left, right = _compared(kept, times, parts), _compared(times, kept, parts)
            if left is None or right is None:
                return None
            kept = left if join.kind in ("SEMI", "ANTI") else left | right
        return kept

    def _times(self, alias: str, source: exp.Expr | Scope | None) -> set[tuple[str, str]] | None:
        """Return the event times of a source under its alias; None if they are unknown."""
        if isinstance(source, exp.Table):
            table = self._tables.get(source.name.lower())
            column = table.watermark if table is not None and not table.static else None
            return {(alias, column.lower())} if column else set()
        select = source.expression if isinstance(source, Scope) else None
        if not isinstance(source, Scope) or not isinstance(select, exp.Select):
            return None
        if select.is_star:
            below = [(name.lower(), each) for name, (_, each) in source.selected_sources.items()]
            inner = self._times(*below[0]) if len(select.expressions) == len(below) == 1 else None
            return None if inner is None else {(alias, name) for _, name in inner}
        if id(source) not in self._times_of:
            names = {item.alias_or_name.lower() for item in select.expressions if self.has(item, source)}
            self._times_of[id(source)] = names
        return {(alias, name) for name in self._times_of[id(source)]}

    def _column_of(self, source: exp.Expr | Scope, name: str) -> list[bool | None]:
        if (id(source), name) not in self._columns_of:
            self._columns_of[id(source), name] = self._of_source(source, name)
        return self._columns_of[id(source), name]

    def _of_source(self, source: exp.Expr | Scope, name: str) -> list[bool | None]:
        """Return whether a column of a source is event time, or nothing if it has no such column."""
        if isinstance(source, exp.Table):
            table = self._tables.get(source.name.lower())
            if table is None or table.columns is None:
                return [None]
            is_watermark = not table.static and (table.watermark or "").lower() == name
            return [] if table.column(name) is None else [is_watermark]
        if not isinstance(source, Scope) or source.outer_columns:
            return [None]
        while source.set_operation_scopes:
            source = source.set_operation_scopes[0]  # Spark takes the columns of the first side
        select = source.expression
        if not isinstance(select, exp.Select) or select.args.get("laterals"):
            return [None]
        named = [item for item in select.expressions if not item.is_star and item.alias_or_name.lower() == name]
        if named:
            return [self.has(named[0], source) if len(named) == 1 else None]
        if not select.is_star:
            return []
        return [self._has_column(exp.column(name), source) if len(select.expressions) == 1 else None]
