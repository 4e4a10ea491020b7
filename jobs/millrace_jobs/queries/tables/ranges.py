"""The range of event time in a join of two streams: which records match, and how long results can take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from millrace_api.sql.dialect import to_sql
from millrace_api.sql.join_conditions import Bound, Side, TimeRange
from millrace_jobs.queries.tables.operators.join_side import Contents
from millrace_jobs.queries.tables.relations import Match
from millrace_jobs.queries.tables.scopes import NotATableQueryError, Scope, Scopes


def match_of(found: TimeRange | None) -> Match:
    """Return the matching periods of two streams, from the range of event time in their condition."""
    if found is None or found.lower is None or found.upper is None:
        missing = "range" if found is None else "lower end" if found.lower is None else "upper end"
        raise NotATableQueryError(
            f"its join of two streams has no {missing} of event time, so their records would be kept for ever"
        )
    if found.reach is None:
        begin = to_sql(found.lower.expression)
        raise NotATableQueryError(f"the range of event time in its join begins at {begin}, which is not event time")
    ranged: Side = "left" if found.point == "right" else "right"
    time = _micros(to_sql(found.time))
    periods = {
        found.point: (time, f"{time} + 1L"),
        ranged: (_end(found.lower, open_end=1), _end(found.upper, open_end=0, closed_end=1)),
    }
    longest = found.reach + found.lag + (found.span or 0)
    end = "" if found.span is not None else to_sql(found.upper.expression)
    reach, span = {found.point: found.lag, ranged: found.reach}, {found.point: 0, ranged: found.span}
    return Match(periods, reach, span, longest, end)


def times_of(
    both: Scopes, match: Match | None, found: TimeRange | None, preserved: Mapping[Side, bool]
) -> Iterator[tuple[str, int]]:
    """Yield the event-time columns of a join's result; the time of a result of two streams is the later one."""
    sides: tuple[tuple[Side, Scope, Side, Scope], ...] = (
        ("left", both.left, "right", both.right), ("right", both.right, "left", both.left),
    )  # fmt: skip
    for side, scope, other, partner in sides:
        if preserved[other] or scope.contents is Contents.TABLE:
            continue  # the column is NULL in results of the other side alone
        if match is None or found is None:
            yield from ((name, max(lag, partner.lag or 0)) for name, lag in scope.times.items())
            continue
        # a ranged record may be found by one whose own column is behind, too
        behind = match.reach[other] if side == found.point else None if found.span is None else found.span + found.lag
        if behind is not None:
            yield from ((name, lag + behind) for name, lag in scope.times.items())


def bounds_of(match: Match | None, found: TimeRange | None) -> dict[str, int]:
    """Return the column that the range of event time ends with: no result comes after it."""
    if match is None or found is None or found.upper is None or not isinstance(found.upper.expression, exp.Column):
        return {}
    return {found.upper.expression.name: max(0, found.upper.offset) + max(match.reach.values())}


def _micros(sql: str) -> str:
    return f"unix_micros(CAST({sql} AS TIMESTAMP))"


def _end(bound: Bound, *, open_end: int, closed_end: int = 0) -> str:
    """Return the SQL of an end of a period, which contains its start but not its end."""
    offset = bound.offset + (closed_end if bound.inclusive else open_end)
    return f"{_micros(to_sql(bound.expression))} + {offset}L"
