"""Lengths of time in Spark's SQL: the text of an interval, INTERVAL literals, and the lengths of windows.

Spark reads the lengths of ``window`` and ``session_window`` as texts such as ``1 hour 30 minutes``. Their grammar is
that of ``stringToInterval`` in Spark's ``SparkIntervalUtils``, not that of ``values.Duration``, which is for the fields
of a StreamQuery.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from millrace_api.sql.dialect import to_sql

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}
_DAY = 86_400_000_000

_SPACE = r"[\t-\r\x1c-\x20]"
_TRIMMED = "".join(map(chr, (*range(0x21), 0x7F)))
"""Characters that Spark removes at both ends."""
_PART = re.compile(
    rf"""{_SPACE}*(?:
    (?P<sign>[+-]){_SPACE}*(?=[0-9.])(?P<signed>[0-9]*)(?P<signed_point>\.[0-9]{{0,9}})?
    |(?P<whole>[0-9]+)(?P<point>\.[0-9]{{0,9}})?
    |(?P<fraction>\.[0-9]{{1,9}})
    ){_SPACE}+(?P<unit>{"|".join((*_MICROSECONDS, *_DAYS, *_MONTHS))})s?(?={_SPACE}|$)""",
    re.VERBOSE,
)
"""A number with a unit; only a fraction without a sign needs a digit after its point."""

_INT = range(-(2**31), 2**31)
_LONG = range(-(2**63), 2**63)
_LONG_DIGITS = 19

_HINT = "write numbers, each with a unit from microsecond to week, such as '10 minutes' or '1 hour 30 minutes'"


class LengthError(ValueError):
    """A length of time that Spark does not accept: ``message`` says what is wrong, ``hint`` what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Interval:
    """A length of time as Spark keeps it; a month has no fixed length, so months are counted apart from days."""

    months: int = 0
    days: int = 0
    microseconds: int = 0


def parse_interval(text: str) -> Interval:
    """Parse the text of an interval as Spark does; raises LengthError for what Spark does not accept."""
    rest = text.strip(_TRIMMED).lower()
    if re.match(rf"interval{_SPACE}", rest):
        rest = rest[len("interval") :]
    at, length = 0, Interval()
    while at < len(rest) or not rest:
        part = _PART.match(rest, at)
        if part is None:
            raise LengthError(f'"{text}" is not a length of time', _HINT)
        at, unit = part.end(), part["unit"]
        point = part["signed_point"] or part["point"] or part["fraction"]
        if point and unit != "second":
            message = f'"{text}" has a fraction with the unit {unit}'
            raise LengthError(message, "write a whole number, or a smaller unit: only seconds can have a fraction")
        sign = -1 if part["sign"] == "-" else 1
        digits = (part["signed"] or part["whole"] or "0").lstrip("0").rjust(1, "0")
        fraction = sign * int((point or ".")[1:].ljust(9, "0")[:6])
        longer = None if len(digits) > _LONG_DIGITS else _plus(length, sign * int(digits), unit, fraction)
        if longer is None:
            raise LengthError(f'"{text}" is too long', "write a shorter one")
        length = longer
    return length


def _plus(length: Interval, number: int, unit: str, fraction: int) -> Interval | None:
    """Return a length plus a number of units and a fraction in microseconds; None where Spark's integers overflow."""
    months = length.months + number * _MONTHS.get(unit, 0)
    days = length.days + number * _DAYS.get(unit, 0)
    added = number * _MICROSECONDS.get(unit, 0)
    micros = length.microseconds + added
    ints = (months, days, number if unit in ("day", "month") else 0)
    longs = (abs(number), added, micros, micros + fraction)
    if not (all(each in _INT for each in ints) and all(each in _LONG for each in longs)):
        return None
    return Interval(months, days, micros + fraction)


@dataclass(frozen=True)
class WindowLengths:
    """The arguments of ``window`` after its column, in microseconds."""

    size: int
    slide: int
    start: int


def window_lengths(call: exp.Expr) -> WindowLengths:
    """Return the lengths of a call of ``window``; raises LengthError for what Spark does not accept."""
    lengths = [_window_length(node) for node in call.expressions[1:4]]
    if not lengths:
        raise LengthError("the window has no length", "write window(column, '10 minutes')")
    size, slide, start = [*lengths, *(lengths[0], 0)[len(lengths) - 1 :]]
    texts = [to_sql(node) for node in call.expressions[1:4]]
    if size <= 0 or slide <= 0:
        wrong = texts[0] if size <= 0 else texts[1]
        raise LengthError(f"the length {wrong} is not longer than zero", "write a length such as '10 minutes'")
    if slide > size:
        message = (
            f"the slide {texts[1]} is longer than the window of {texts[0]}, so records between windows would be lost"
        )
        raise LengthError(message, "write a slide of at most the size of the window, or leave it out")
    if abs(start) >= slide:
        message = (
            f"the start {texts[2]} is not shorter than the distance between windows, {texts[min(1, len(texts) - 1)]}"
        )
        raise LengthError(message, "write a start between 0 and that distance, or leave it out")
    return WindowLengths(size, slide, start)


def _window_length(node: exp.Expr) -> int:
    """Return a length of a window in microseconds: a text, or an integer number of microseconds."""
    text = literal_text(node)
    if text is not None:
        interval = parse_interval(text)
        length = interval.days * _DAY + interval.microseconds
        if interval.months:
            raise LengthError(f'"{text}" has months, which differ in length', "write days, such as '30 days'")
    else:
        number = _integer(node)
        if number is None:
            raise LengthError(f"the length {to_sql(node)} is not a text in quotes", f"write {_as_text(node)}")
        length = number
    if length not in _LONG:
        raise LengthError(f"the length {to_sql(node)} is too long", "write a shorter one")
    return length


def _as_text(node: exp.Expr) -> str:
    """Return what to write in place of a length that is not a text."""
    if isinstance(node, exp.Interval) and isinstance(node.unit, exp.Var) and isinstance(node.this, exp.Literal):
        return f"'{node.this.name.strip()} {node.unit.name.lower()}'"
    return "a text such as '10 minutes'"


def literal_text(node: exp.Expr) -> str | None:
    """Return the text of a string literal, which may be written in several parts; None for other expressions."""
    node = node.unnest()
    if isinstance(node, exp.Concat):  # 'a' 'b': the function concat is not parsed into this type
        parts = [literal_text(part) for part in node.expressions]
        return None if None in parts else "".join(part for part in parts if part is not None)
    is_text = isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and node.is_string)
    return node.name if is_text else None


def _integer(node: exp.Expr) -> int | None:
    """Return the value of a literal of type INT or BIGINT, such as ``5``, ``-5`` or ``5L``; None for others."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        positive = _integer(node.this)
        return None if positive is None else -positive
    if isinstance(node, exp.Cast) and node.is_type(exp.DType.BIGINT) and "format" not in node.args:
        node = node.this  # 5L, not CAST(5 AS BIGINT)
    if not isinstance(node, exp.Literal) or node.is_string or not re.fullmatch("[0-9]+", node.name):
        return None
    digits = node.name.lstrip("0").rjust(1, "0")
    return int(digits) if len(digits) <= _LONG_DIGITS and int(digits) in _LONG else None


_SIGN = rf"{_SPACE}*(?P<sign>[+-])?"
_SPANS = {
    ("DAY", "HOUR"): r"(?P<day>[0-9]{1,10}) (?P<hour>[0-9]{1,10})",
    ("DAY", "MINUTE"): r"(?P<day>[0-9]{1,10}) (?P<hour>[0-9]{1,10}):(?P<minute>[0-9]{1,10})",
    (
        "DAY",
        "SECOND",
    ): r"(?P<day>[0-9]{1,10}) (?P<hour>[0-9]{1,10}):(?P<minute>[0-9]{1,10}):(?P<second>[0-9]{1,10}(?:\.[0-9]{0,9})?)",
    ("HOUR", "MINUTE"): r"(?P<hour>[0-9]{1,10}):(?P<minute>[0-9]{1,10})",
    ("HOUR", "SECOND"): r"(?P<hour>[0-9]{1,10}):(?P<minute>[0-9]{1,10}):(?P<second>[0-9]{1,10}(?:\.[0-9]{0,9})?)",
    ("MINUTE", "SECOND"): r"(?P<minute>[0-9]{1,10}):(?P<second>[0-9]{1,10}(?:\.[0-9]{0,9})?)",
}
"""Patterns of ``INTERVAL '1:30' HOUR TO MINUTE`` and the like, by first and last unit."""


def interval_micros(node: exp.Expr) -> int | None:
    """Return the length of constant INTERVALs in microseconds; None for other expressions, and for months."""
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub):
        left, right = interval_micros(node.left), interval_micros(node.right)
        if left is None or right is None:
            return None
        return left + right if isinstance(node, exp.Add) else left - right
    if isinstance(node, exp.Mul):
        for length, times in ((node.left, node.right), (node.right, node.left)):
            micros, number = interval_micros(length), _integer(times)
            if micros is not None and number is not None:
                return micros * number
        return None
    if isinstance(node, exp.Neg):
        micros = interval_micros(node.this)
        return None if micros is None else -micros
    if isinstance(node, exp.Cast) and node.is_type(exp.DType.INTERVAL):
        text = literal_text(node.this)
        return None if text is None else _fixed_length(text)
    if not isinstance(node, exp.Interval) or node.this is None:
        return None
    negated = isinstance(node.this, exp.Neg)
    text = literal_text(node.this.this if negated else node.this)
    if text is None:
        return None
    if isinstance(node.unit, exp.IntervalSpan):
        micros = _span_micros(text, (node.unit.this.name.upper(), node.unit.expression.name.upper()))
    else:
        micros = _fixed_length(f"{text} {'' if node.unit is None else node.unit.name}")
    return -micros if negated and micros is not None else micros


def _fixed_length(text: str) -> int | None:
    try:
        interval = parse_interval(text)
    except LengthError:
        return None
    return None if interval.months else interval.days * _DAY + interval.microseconds


def _span_micros(text: str, units: tuple[str, str]) -> int | None:
    """Return the length of a text such as ``1:30`` from one unit to another; None if it does not have that form."""
    found = re.fullmatch(_SIGN + _SPANS.get(units, "(?!)") + f"{_SPACE}*", text)
    if found is None:
        return None
    parts = {unit: Decimal(number) for unit, number in found.groupdict().items() if unit != "sign"}
    micros = sum(int(number * (_MICROSECONDS | {"day": _DAY})[unit]) for unit, number in parts.items())
    return -micros if found["sign"] == "-" else micros
