"""Dates, times and decimals from text, converted whole columns at a time.

Arrow reads the usual spellings of ISO 8601 in the years 0 to 9999. The others are brought into that form first: years
with a sign, as Spark writes those outside this range (``+10000-01-01``), months and hours of one digit, blanks, and
fractions of more than six digits, of which the others are dropped as Spark does. Texts by a pattern become ISO 8601.

Decimals are rounded half up to the declared scale, as in Spark. Arrow does not notice every number that is too large
for the type that it converts to: 123456 becomes another number in a type with four digits before the point and 34
behind it. So the types here have room for all digits of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_api.sql.time_formats import TimeElement, time_pattern
from millrace_jobs.sources.formats.column_types import MAX_PRECISION, TIMESTAMP

_ZONE = r"(?:[Zz]|[+-]\d{2}(?::?\d{2})?)$"
_ZONED_TIME = re.compile(rf"[ T]\d{{2}}.*{_ZONE}")
_ODD_YEAR = r"^(?:[+-]\d{4,6}|\d{5,6})-"
_YEAR = r"^\+?(?P<year>-?\d{4,6})(?P<rest>-.*)$"
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # the length of the Gregorian calendar's cycle
_DAY = 86_400_000_000

_EPOCH_NUMBER = re.compile(r"-?(\d{9,})(?:\.\d*)?")
_UNITS = ((11, "seconds"), (14, "milliseconds"), (17, "microseconds"))
"""How many digits a time of this century has at most, by its unit."""
_WITH_TIME = re.compile(r"[+-]?\d{4,6}-\d\d?-\d\d?[ T]\d.*")
_BEYOND_THE_DAY = re.compile(r".*(?:[ T]24:|:60(?!\d))")

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_ZONES = {"X": r"Z|[+-]\d{2}(?:\d{2})?", "XX": r"Z|[+-]\d{4}", "XXX": r"Z|[+-]\d{2}:\d{2}"}
_SHOWN = 80
SHORT_DIGITS = MAX_PRECISION // 2
"""Digits that fit on either side of the point in 128 bits."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_EXACT = Context(prec=2 * MAX_PRECISION, rounding=ROUND_HALF_UP, Emax=MAX_EMAX, Emin=MIN_EMIN)


def iso_timestamps(text: pa.Array) -> pa.Array:
    """Parse times to microseconds in UTC; a time without a zone is in UTC.

    Most columns have no zone, or one in every value; only the others need regular expressions. The first value says
    which. Trying both is slow: a cast that fails takes 30 times as long as one that succeeds. Raises ValueError if a
    value is no such text.
    """
    first = pc.first(text).as_py()
    is_zoned = first is not None and _ZONED_TIME.search(first) is not None
    try:
        return text.cast(TIMESTAMP if is_zoned else pa.timestamp("us")).cast(TIMESTAMP)
    except pa.ArrowInvalid:
        pass  # some values have a zone and some have none, or they are not in Arrow's form
    try:
        return _of_any_year(text, lambda texts: _with_zones(texts).cast(TIMESTAMP), _DAY)
    except pa.ArrowInvalid:
        raise ValueError(_iso_refusal(text, is_date=False)) from None


def iso_dates(text: pa.Array) -> pa.Array:
    """Parse dates. Raises ValueError if a value is no date."""
    try:
        return text.cast(pa.date32())
    except pa.ArrowInvalid:
        pass
    try:
        return _of_any_year(text, lambda texts: _with_two_digits(texts).cast(pa.date32()), 1)
    except pa.ArrowInvalid:
        raise ValueError(_iso_refusal(text, is_date=True)) from None


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


def _iso_refusal(text: pa.Array, *, is_date: bool) -> str:
    """Return what is wrong with text that does not parse, and what to write instead if it is a single value."""
    values = text.drop_null()
    value = values[0].as_py() if len(values) == 1 else ""
    what = "date" if is_date else "timestamp"
    return f"{repr(value) if value else 'a value'} is not an ISO 8601 {what}: {_iso_remedy(value, is_date)}"


def _iso_remedy(value: str, is_date: bool) -> str:
    if is_date:
        is_time = _WITH_TIME.fullmatch(value)
        return "declare the column TIMESTAMP, or write the date alone" if is_time else "write it like 2024-05-01"
    if number := _EPOCH_NUMBER.fullmatch(value):
        for digits, unit in _UNITS:
            if len(number[1]) <= digits:
                return f"set timestampFormat: {unit}"
        return "write it in microseconds, and set timestampFormat: microseconds"
    if _BEYOND_THE_DAY.match(value):
        return "hours go from 00 to 23, and minutes and seconds from 00 to 59"
    return "write it like 2024-05-01T12:30:00Z, or set timeFormats to its pattern"


def pattern_timestamps(texts: pa.Array, pattern: str) -> pa.Array:
    """Parse times to microseconds in UTC; a time without a zone is in UTC.

    Raises ValueError if a value is not written like that, or there is no such time.
    """
    return _parsed(texts, pattern, is_date=False)


def pattern_dates(texts: pa.Array, pattern: str) -> pa.Array:
    """Parse dates. Raises ValueError if a value is not written like that, or there is no such day."""
    return _parsed(texts, pattern, is_date=True)


def _parsed(texts: pa.Array, pattern: str, *, is_date: bool) -> pa.Array:
    elements = time_pattern(pattern)
    found = pc.extract_regex(texts, _regex(pattern))
    if found.null_count > texts.null_count:
        raise ValueError(_pattern_refusal(texts.filter(pc.and_(found.is_null(), texts.is_valid())), pattern))
    parts = {element.part: _part(found, element) for element in elements if element.part}
    iso = pc.binary_join_element_wise(parts["year"], parts["month"], parts["day"], "-")
    if not is_date:
        clock = [parts.get(name, "00") for name in ("hour", "minute", "second")]
        fraction = [".", parts["fraction"]] if "fraction" in parts else []
        zone = parts.get("zone", "Z")
        iso = pc.binary_join_element_wise(iso, "T", clock[0], ":", clock[1], ":", clock[2], *fraction, zone, "")
    try:
        return iso_dates(iso) if is_date else iso_timestamps(iso)
    except ValueError:
        raise ValueError(_pattern_refusal(texts.drop_null(), pattern)) from None


@lru_cache(maxsize=256)
def _regex(pattern: str) -> str:
    """Return a regular expression that matches a whole text, with a group for each part of the time."""
    return f"^{''.join(map(_group, time_pattern(pattern)))}$"


def _group(element: TimeElement) -> str:
    if not element.part:
        return re.escape(element.text)
    if element.part == "zone":
        inside = _ZONES[element.text]
    elif element.text == "MMM":
        inside = f"(?i:{'|'.join(_MONTHS)})"
    elif len(element.text) == 1 and element.part != "fraction":
        inside = r"\d{1,2}"
    else:
        inside = rf"\d{{{len(element.text)}}}"
    return f"(?P<{element.part}>{inside})"


def _part(found: pa.Array, element: TimeElement) -> pa.Array:
    text = pc.struct_field(found, element.part)
    if element.text == "MMM":
        places = pc.index_in(pc.ascii_lower(text), pa.array(_MONTHS))
        text = pc.add(places, 1).cast(pa.string())
    return text if element.part in ("year", "fraction", "zone") else pc.utf8_lpad(text, 2, "0")


def _pattern_refusal(values: pa.Array, pattern: str) -> str:
    """Return what is wrong with text that does not parse; the value itself if it is a single one."""
    value = repr(values[0].as_py()[:_SHOWN]) if len(values) == 1 else "a value"
    return f"{value} is no time that is written like {pattern}: correct it, or the format in timeFormats"


assert 2 * MAX_PRECISION < MAX_PREC


def decimals(texts: pa.Array, declared: pa.DataType) -> pa.Array:
    """Parse decimals. Raises ValueError if a value is none, or has too many digits before the point."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    characters = bytes_of(texts)
    # no others than digits, signs and points
    is_short = max(longest, declared.scale) <= SHORT_DIGITS
    if is_short and (not len(characters) or (characters.min() >= ord("+") and characters.max() <= ord("9"))):
        return rounded_decimals(texts.cast(pa.decimal128(MAX_PRECISION, SHORT_DIGITS)), declared)
    texts = pc.ascii_trim_whitespace(texts)
    whole, scale = declared.precision - declared.scale, declared.scale
    is_plain = pc.match_substring_regex(texts, rf"^[+-]?0*[0-9]{{0,{whole}}}(?:\.[0-9]*)?$")
    if pc.all(is_plain).as_py() is False:
        others = pc.unique(texts.filter(pc.invert(is_plain)))
        plain = pa.array([_plain(text, scale) for text in others.to_pylist()], pa.string())
        texts = pc.if_else(is_plain, texts, plain.take(pc.index_in(texts, others)))
    # A digit after the first one that is rounded away does not change how the number is rounded.
    texts = pc.replace_substring_regex(texts, rf"(\.[0-9]{{{scale + 1}}})[0-9]+$", r"\1")
    return rounded_decimals(texts.cast(pa.decimal256(2 * MAX_PRECISION, scale + 1)), declared)


def bytes_of(texts: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of all texts in a column, end to end; several times faster to look at than value by value."""
    _, offsets, data = texts.buffers()
    if data is None:
        return np.empty(0, np.uint8)
    begin, end = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    return np.frombuffer(data, np.uint8)[begin:end]


def rounded_decimals(numbers: pa.Array, declared: pa.DataType) -> pa.Array:
    """Round decimals of 128 bits, or with one digit more, to a scale that is not larger.

    Raises ArrowInvalid if a number has too many digits before the point.
    """
    return pc.round(numbers, declared.scale, "half_towards_infinity").cast(declared)


def narrowed_decimals(numbers: pa.Array, declared: pa.DataType) -> pa.Array:
    """Round decimals of 256 bits that have at most 38 digits, as Arrow's JSON reader makes them.

    Arrow divides numbers of 256 bits wrongly by powers of ten that have more than 64 bits: -36893488147419103231 with a
    scale of 38 is rounded to -36893488140111595045. So they become numbers of 128 bits first, or text. Raises
    ValueError if a number has too many digits before the point.
    """
    wide = numbers.view(pa.decimal256(2 * MAX_PRECISION, numbers.type.scale))  # there may be 38 digits before the point
    if declared.scale <= numbers.type.scale == SHORT_DIGITS:
        bounds = [pa.scalar(sign * Decimal(10**SHORT_DIGITS), wide.type) for sign in (-1, 1)]
        if pc.all(pc.and_(pc.greater(wide, bounds[0]), pc.less(wide, bounds[1]))).as_py() is not False:
            return rounded_decimals(wide.cast(pa.decimal128(MAX_PRECISION, SHORT_DIGITS)), declared)
    return decimals(wide.cast(pa.string()), declared)


def rescaled_decimals(numbers: pa.Array, declared: pa.DataType) -> pa.Array:
    """Return decimals with another precision and scale.

    Arrow does not notice numbers that are too large once their scale has grown. Raises ValueError if a number has too
    many digits before the point, or would lose some behind it.
    """
    whole = declared.precision - declared.scale
    if numbers.type.precision - numbers.type.scale > whole:
        bounds = pc.min_max(numbers)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and max(-low, high) >= 10**whole:
            raise ValueError("does not fit")
    return numbers.cast(declared)


def _plain(text: str, scale: int) -> str:
    """Return a number without an exponent, rounded to a scale."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a number")
    try:
        number = Decimal(text).quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation:
        raise ValueError(f"{text!r} has too many digits") from None
    if number.adjusted() >= MAX_PRECISION:
        raise ValueError(f"{text!r} has too many digits")
    return f"{number:f}"
