"""Whether the records of a join of two streams can ever be removed from its state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.sql.dialect import to_sql
from millrace_api.sql.join_conditions import JoinCondition, Side, conjuncts, take_apart

TimesOf = Callable[[str, Scope], Collection[str] | None]
"""Function that returns the event times of a derived table with an alias, in lower case; None if they are unknown."""


def unbounded(scope: Scope, select: exp.Select, join: exp.Join, times: Mapping[str, str | None]) -> str | None:
    """Return why the state of a join of two sources would grow without bound, or None if it is bounded or unknown.

    Args:
        scope: scope of the SELECT.
        select: the SELECT.
        join: the join.
        times: the event-time column of each source, or None; source names are in lower case.
    """
    columns = _ComparedColumns(scope, join, times)
    condition = columns.condition(select)
    if condition is None:
        return None
    found = condition.range
    if found is None:
        return "no range of event time"
    if found.lower is None or found.upper is None:
        return f"a range of event time with no {'lower' if found.lower is None else 'upper'} end"
    lower = found.lower.expression
    if found.reach is None and not (_has_constant(lower) and any(columns.lag_of(each) == 0 for each in lower.walk())):
        return f"a range of event time that begins at {to_sql(lower)}, which is not event time"
    return None


def unending(
    scope: Scope,
    select: exp.Select,
    join: exp.Join,
    times: Mapping[str, str | None],
    times_of: TimesOf = lambda _, __: None,
) -> str | None:
    """Return why rows of an outer join would wait for a partner forever, or None if they do not, or it is unknown.

    A row that is kept without a partner waits until the other side's event time is beyond its range. The arguments are
    those of ``unbounded``; ``times_of`` gives the event times of derived tables.
    """
    columns = _ComparedColumns(scope, join, times, times_of)
    condition = columns.condition(select)
    if (
        condition is None
        or condition.range is None
        or any(columns.has_time(each) for pair in condition.keys for each in pair)
    ):
        return None
    found = condition.range
    sides: tuple[Side, ...] = ("left", "right")
    kept = sides if join.side == "FULL" else (sides[join.side == "RIGHT"],)
    for side in kept:
        end = found.lower if found.point == side else found.upper
        if end is None:
            return f"a range of event time with no {'lower' if found.point == side else 'upper'} end"
    return None


class _ComparedColumns:
    """The columns of the sources that a join compares."""

    def __init__(
        self,
        scope: Scope,
        join: exp.Join,
        times: Mapping[str, str | None],
        times_of: TimesOf = lambda _, __: None,
    ) -> None:
        self._join = join
        self._own = join.this.alias_or_name.lower()
        self._read = {alias.lower(): source for alias, (_, source) in scope.selected_sources.items()}
        self._sources: dict[str, Collection[str]] = {}
        """The event times of the tables for which they are known, in lower case."""
        for alias, source in self._read.items():
            if isinstance(source, exp.Table):
                time = times.get(source.name.lower())
                self._sources[alias] = () if time is None else (time.lower(),)
            elif (found := times_of(alias, source)) is not None:
                self._sources[alias] = found

    def condition(self, select: exp.Select) -> JoinCondition | None:
        """Return the condition of the join by the kinds of its parts; None if it is not known whose columns it has."""
        using = [name.name for name in self._join.args.get("using") or ()]
        if self._join.method or len(self._sources) < len(self._read) or (using and len(self._sources) > 2):
            return None
        parts = [*conjuncts(self._join.args.get("on")), *(_equal(name, self._sources) for name in using)]
        if not self._join.side:
            where = select.args.get("where")
            parts = parts + conjuncts(where.this if where else None)
        if any(not column.table for part in parts for column in part.find_all(exp.Column)):
            return None  # only Spark knows whose column it is
        return take_apart(parts, self._side_of, self.lag_of)

    def has_time(self, expression: exp.Expr) -> bool:
        """Return whether an expression has an event time in it."""
        return any(self.lag_of(each) is not None for each in expression.walk())

    def lag_of(self, expression: exp.Expr) -> int | None:
        """Return 0 for a column of event time, None for others."""
        if not isinstance(expression, exp.Column) or expression.table.lower() not in self._sources:
            return None
        return 0 if expression.name.lower() in self._sources[expression.table.lower()] else None

    def _side_of(self, expression: exp.Expr) -> Side | None:
        qualifiers = {column.table.lower() for column in expression.find_all(exp.Column)}
        if not qualifiers or not qualifiers <= self._sources.keys():
            return None
        if qualifiers == {self._own}:
            return "right"
        return None if self._own in qualifiers else "left"


def _has_constant(expression: exp.Expr) -> bool:
    """Return whether the expression adds a constant, such as ``make_dt_interval(0, 1)``, whose value Spark knows."""
    parts = (expression.left, expression.right) if isinstance(expression, exp.Add | exp.Sub) else ()
    return any(part.find(exp.Column) is None for part in parts)


def _equal(column: str, sources: Iterable[str]) -> exp.Expr:
    """Return the condition that two sources have the same value in a column."""
    one, other = (exp.column(column, table=alias) for alias in sources)
    return exp.EQ(this=one, expression=other)
