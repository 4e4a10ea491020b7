"""Dates and times as ISO 8601 text, converted whole columns at a time.

Arrow reads the usual spellings of the years 0 to 9999. The others are brought into that form first: years with a sign,
as Spark writes those outside this range (``+10000-01-01``), months and hours of one digit, blanks, and fractions of
more than six digits, of which the others are dropped as Spark does.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_ZONE = r"(?:[Zz]|[+-]\d{2}(?::?\d{2})?)$"
_ZONED_TIME = re.compile(rf"[ T]\d{{2}}.*{_ZONE}")
_ODD_YEAR = r"^(?:[+-]\d{4,6}|\d{5,6})-"
_YEAR = r"^\+?(?P<year>-?\d{4,6})(?P<rest>-.*)$"
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The length of the Gregorian calendar's cycle."""
_DAY = 86_400_000_000

_NUMBER = re.compile(r"-?(\d{9,})(?:\.\d*)?")
_UNITS = ((11, "seconds"), (14, "milliseconds"), (17, "microseconds"))
"""How many digits a time of this century has at most, by its unit."""
_WITH_TIME = re.compile(r"[+-]?\d{4,6}-\d\d?-\d\d?[ T]\d.*")
_BEYOND_THE_DAY = re.compile(r".*(?:[ T]24:|:60(?!\d))")


def timestamps(text: pa.Array) -> pa.Array:
    """Parse times to microseconds in UTC; a time without a zone is in UTC.

    Most columns have no zone, or one in every value; only the others need regular expressions. The first value says
    which. Trying both is slow: a cast that fails takes 30 times as long as one that succeeds.

    Raises:
        ValueError: a value is no such text.
    """
    first = pc.first(text).as_py()
    is_zoned = first is not None and _ZONED_TIME.search(first) is not None
    try:
        return text.cast(_TIMESTAMP if is_zoned else pa.timestamp("us")).cast(_TIMESTAMP)
    except pa.ArrowInvalid:
        pass  # some values have a zone and some have none, or they are not in Arrow's form
    try:
        return _of_any_year(text, lambda texts: _with_zones(texts).cast(_TIMESTAMP), _DAY)
    except pa.ArrowInvalid:
        raise ValueError(_refusal(text, is_date=False)) from None


def dates(text: pa.Array) -> pa.Array:
    """Parse dates. Raises ValueError if a value is no date."""
    try:
        return text.cast(pa.date32())
    except pa.ArrowInvalid:
        pass
    try:
        return _of_any_year(text, lambda texts: _with_two_digits(texts).cast(pa.date32()), 1)
    except pa.ArrowInvalid:
        raise ValueError(_refusal(text, is_date=True)) from None


def _of_any_year(text: pa.Array, parse: Callable[[pa.Array], pa.Array], day: int) -> pa.Array:
    """Parse text after moving years with a sign, or of more digits, by whole cycles of the calendar to about 2000.

    ``day`` is the length of a day in the parsed values. Raises ArrowInvalid.
    """
    text = pc.ascii_trim_whitespace(text)
    is_odd = pc.match_substring_regex(text, _ODD_YEAR)
    if not pc.any(is_odd).as_py():
        return parse(text)
    parts = pc.extract_regex(pc.if_else(is_odd, text, None), _YEAR)
    years = pc.fill_null(parts.field("year").cast(pa.int64()), 2000).to_numpy()
    cycles = (years - 2000) // _CYCLE_YEARS
    near = pa.array(years - cycles * _CYCLE_YEARS).cast(pa.string())
    moved = parse(pc.if_else(is_odd, pc.binary_join_element_wise(near, parts.field("rest"), ""), text))
    width = pa.int64() if day > 1 else pa.int32()
    days = pc.multiply(pa.array(cycles), _CYCLE_DAYS)
    return pc.add_checked(moved.cast(width), pc.multiply_checked(days, day).cast(width)).cast(moved.type)


def _with_zones(text: pa.Array) -> pa.Array:
    """Give every timestamp what Arrow requires: at most six digits of fraction, a time of day and a zone."""
    text = pc.replace_substring_regex(_with_two_digits(text), r"(\.\d{6})\d+", r"\1")
    has_time = pc.match_substring_regex(text, r"[ T]\d{2}")
    text = pc.if_else(has_time, text, pc.binary_join_element_wise(text, "00:00", " "))
    has_zone = pc.match_substring_regex(text, _ZONE)
    text = pc.if_else(has_zone, text, pc.binary_join_element_wise(text, "Z", ""))
    return pc.replace_substring_regex(pc.replace_substring(text, "z", "Z"), r" +(Z|[+-][\d:]+)$", r"\1")


def _with_two_digits(text: pa.Array) -> pa.Array:
    """Write months, days, hours, minutes and seconds of one digit with two."""
    if pc.any(pc.match_substring_regex(text, r"-\d(?:\D|$)|[T :]\d(?:\D|$)")).as_py():
        for _ in range(2):  # the character after a digit may begin the next match
            text = pc.replace_substring_regex(text, r"([-T :])(\d)(\D|$)", r"\10\2\3")
    return text


def _refusal(text: pa.Array, *, is_date: bool) -> str:
    """Return what is wrong with text that does not parse, and what to write instead if it is a single value."""
    values = text.drop_null()
    value = values[0].as_py() if len(values) == 1 else ""
    what = "date" if is_date else "timestamp"
    return f"{repr(value) if value else 'a value'} is not an ISO 8601 {what}: {_remedy(value, is_date)}"


def _remedy(value: str, is_date: bool) -> str:
    if is_date:
        is_time = _WITH_TIME.fullmatch(value)
        return "declare the column TIMESTAMP, or write the date alone" if is_time else "write it like 2024-05-01"
    if number := _NUMBER.fullmatch(value):
        for digits, unit in _UNITS:
            if len(number[1]) <= digits:
                return f"set timestampFormat: {unit}"
        return "write it in microseconds, and set timestampFormat: microseconds"
    if _BEYOND_THE_DAY.match(value):
        return "hours go from 00 to 23, and minutes and seconds from 00 to 59"
    return "write it like 2024-05-01T12:30:00Z"
