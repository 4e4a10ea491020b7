"""Whether the records of a join of two streams can ever be removed from its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from millrace_api.sql.dialect import to_sql
from millrace_api.sql.join_conditions import Side, conjuncts, take_apart


def unbounded(scope: Scope, select: exp.Select, join: exp.Join, times: Mapping[str, str | None]) -> str | None:
    """Return why the state of a join of two sources would grow without bound, or None if it is bounded or unknown.

    Args:
        scope: scope of the SELECT.
        select: the SELECT.
        join: the join.
        times: the event-time column of each source, or None; source names are in lower case.
    """
    own = join.this.alias_or_name.lower()
    read = {alias.lower(): source for alias, (_, source) in scope.selected_sources.items()}
    sources = {alias: source for alias, source in read.items() if isinstance(source, exp.Table)}
    using = [name.name for name in join.args.get("using") or ()]
    if join.method or len(sources) < len(read) or (using and len(sources) > 2):
        return None

    def side_of(expression: exp.Expr) -> Side | None:
        qualifiers = {column.table.lower() for column in expression.find_all(exp.Column)}
        if not qualifiers or not qualifiers <= sources.keys():
            return None
        if qualifiers == {own}:
            return "right"
        return None if own in qualifiers else "left"

    def lag_of(expression: exp.Expr) -> int | None:
        if not isinstance(expression, exp.Column) or expression.table.lower() not in sources:
            return None
        time = times.get(sources[expression.table.lower()].name.lower())
        return 0 if time is not None and expression.name.lower() == time.lower() else None

    parts = [*conjuncts(join.args.get("on")), *(_equal(name, sources) for name in using)]
    if not join.side:
        where = select.args.get("where")
        parts = parts + conjuncts(where.this if where else None)
    if any(not column.table for part in parts for column in part.find_all(exp.Column)):
        return None  # only Spark knows whose column it is
    found = take_apart(parts, side_of, lag_of).range
    if found is None:
        return "no range of event time"
    if found.lower is None or found.upper is None:
        return f"a range of event time with no {'lower' if found.lower is None else 'upper'} end"
    lower = found.lower.expression
    if found.reach is None and not (_has_constant(lower) and any(lag_of(each) == 0 for each in lower.walk())):
        return f"a range of event time that begins at {to_sql(lower)}, which is not event time"
    return None


def _has_constant(expression: exp.Expr) -> bool:
    """Return whether the expression adds a constant, such as ``make_dt_interval(0, 1)``, whose value Spark knows."""
    parts = (expression.left, expression.right) if isinstance(expression, exp.Add | exp.Sub) else ()
    return any(part.find(exp.Column) is None for part in parts)


def _equal(column: str, sources: Iterable[str]) -> exp.Expr:
    """Return the condition that two sources have the same value in a column."""
    one, other = (exp.column(column, table=alias) for alias in sources)
    return exp.EQ(this=one, expression=other)
