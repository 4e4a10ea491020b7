"""The condition of a join, taken apart: equal keys, a range of event time, and what belongs to one side only.

A join of streams needs the range: it says how long a record can still find a partner, so that the state stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from millrace_api.sql.intervals import interval_micros

Side = Literal["left", "right"]

SideOf = Callable[[exp.Expr], Side | None]
"""Function that returns the side that all columns of an expression belong to; None for both sides or no columns."""

LagOf = Callable[[exp.Expr], int | None]
"""Function that returns how far, in microseconds, a column may be behind the event time of its row; None for columns
that are not event time."""

_MIRRORED: dict[type[exp.Expr], type[exp.Binary]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


@dataclass(frozen=True)
class Bound:
    """An end of a range of event time: an expression over the other side, plus ``offset`` microseconds.

    ``lag`` is how far the expression without the offset may be behind the event time of its row, in microseconds; None
    if that is unknown. ``inclusive``: the range contains its end.
    """

    expression: exp.Expr
    offset: int
    lag: int | None
    inclusive: bool


@dataclass(frozen=True)
class TimeRange:
    """The range ``lower .. upper`` of the other side's expressions that holds ``time``, a column of the ``point`` side.

    ``lag`` is how far ``time`` may be behind the event time of its row, in microseconds.
    """

    point: Side
    time: exp.Expr
    lag: int
    lower: Bound | None
    upper: Bound | None

    @property
    def reach(self) -> int | None:
        """How far the range may begin before the event time of its row, in microseconds; None without a limit."""
        if self.lower is None or self.lower.lag is None:
            return None
        return max(0, self.lower.lag - self.lower.offset)

    @property
    def span(self) -> int | None:
        """How far the range may end after the event time of its row, in microseconds; None if that is unknown."""
        if self.upper is None or self.upper.lag is None:
            return None
        return max(0, self.upper.offset)


@dataclass
class JoinCondition:
    """A condition as the parts of its conjunction.

    ``keys`` are pairs of a left and a right expression that have to be equal. ``range`` is None without comparisons of
    event time. ``one_sided`` are the conditions over columns of one side. ``others`` are all the rest.
    """

    keys: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    range: TimeRange | None = None
    one_sided: dict[Side, list[exp.Expr]] = field(default_factory=lambda: {"left": [], "right": []})
    others: list[exp.Expr] = field(default_factory=list)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a conjunction; no parts for None."""
    if condition is None:
        return []
    condition = condition.unnest()
    return [part.unnest() for part in condition.flatten()] if isinstance(condition, exp.And) else [condition]


def take_apart(parts: Iterable[exp.Expr], side_of: SideOf, lag_of: LagOf) -> JoinCondition:
    """Return the parts of a join's condition by their kinds."""
    result = JoinCondition()
    ranges: list[exp.Binary] = []
    for part in (each for whole in parts for each in _comparisons(whole)):
        side = side_of(part)
        if side is not None:
            result.one_sided[side].append(part)
        elif isinstance(part, exp.EQ) and _in_order(part, side_of) is not None:
            result.keys += filter(None, [_in_order(part, side_of)])
            if lag_of(_offset(part.left)[0]) is not None and lag_of(_offset(part.right)[0]) is not None:
                ranges += [
                    exp.GTE(this=part.left.copy(), expression=part.right.copy()),
                    exp.LTE(this=part.left.copy(), expression=part.right.copy()),
                ]
        elif isinstance(part, exp.GT | exp.GTE | exp.LT | exp.LTE):
            ranges.append(part)
        else:
            result.others.append(part)
    attempts = [_range(ranges, point, side_of, lag_of) for point in ("right", "left")]
    # the better attempt has both bounds, or leaves fewer comparisons over
    result.range, rest = min(attempts, key=lambda attempt: (_missing(attempt[0]), len(attempt[1])))
    result.others += rest
    return result


def _missing(found: TimeRange | None) -> int:
    return 3 if found is None else (found.reach is None) + (found.upper is None)


def _comparisons(part: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(part, exp.Between) and not part.args.get("symmetric"):
        yield exp.GTE(this=part.this.copy(), expression=part.args["low"].copy())
        yield exp.LTE(this=part.this.copy(), expression=part.args["high"].copy())
    else:
        yield part


def _in_order(part: exp.EQ, side_of: SideOf) -> tuple[exp.Expr, exp.Expr] | None:
    sides = (side_of(part.left), side_of(part.right))
    if sides == ("left", "right"):
        return part.left, part.right
    return (part.right, part.left) if sides == ("right", "left") else None


def _range(
    parts: list[exp.Binary], point: Side, side_of: SideOf, lag_of: LagOf
) -> tuple[TimeRange | None, list[exp.Binary]]:
    """Return the range that holds the event time of one side, and the comparisons that do not belong to it."""
    time: exp.Expr | None = None
    lag = 0
    lower = upper = None
    rest: list[exp.Binary] = []
    for part in parts:
        bound = _bound(part, point, side_of, lag_of)
        known = bound is not None and (time is None or bound[0] == time)
        if bound is None or not known or (lower if bound[1] else upper) is not None:
            rest.append(part)
            continue
        time, is_lower, end = bound
        lag = lag_of(time) or 0
        lower, upper = (end, upper) if is_lower else (lower, end)
    return (None if time is None else TimeRange(point, time, lag, lower, upper)), rest


def _bound(part: exp.Binary, point: Side, side_of: SideOf, lag_of: LagOf) -> tuple[exp.Expr, bool, Bound] | None:
    """Return the event-time column of the point side, whether the comparison bounds it from below, and the bound."""
    kind: type[exp.Expr] = type(part)
    left, right = part.left, part.right
    if side_of(left) != point:
        left, right, kind = right, left, _MIRRORED[kind]
    time, before = _offset(left)
    expression, after = _offset(right)
    if side_of(left) != point or side_of(right) in (None, point) or lag_of(time) is None:
        return None
    bound = Bound(expression, after - before, lag_of(expression), kind in (exp.GTE, exp.LTE))
    return time, kind in (exp.GT, exp.GTE), bound


def _offset(expression: exp.Expr) -> tuple[exp.Expr, int]:
    """Return an expression without the intervals added to it, and their sum in microseconds."""
    expression = expression.unnest()
    if isinstance(expression, exp.Add | exp.Sub):
        base, interval = expression.left, expression.right
        if isinstance(expression, exp.Add) and interval_micros(base) is not None:
            base, interval = interval, base
        micros = interval_micros(interval)
        if micros is not None:
            inner, offset = _offset(base)
            return inner, offset + (micros if isinstance(expression, exp.Add) else -micros)
    return expression, 0
