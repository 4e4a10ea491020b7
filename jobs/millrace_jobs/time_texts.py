"""Single times and dates as the text that Spark writes, of any year: ``+10000-01-01T00:00:00.000000Z``.

Python's own types end at the years 1 and 9999. A window of an event in their last hours ends beyond them.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ODD_YEAR = re.compile(r"([+-]\d{4,6}|0000)(-.*)")
_CYCLE_YEARS = 400
_CYCLE = timedelta(days=146_097)
"""The length of the Gregorian calendar's cycle."""
_MICROSECOND = timedelta(microseconds=1)
_NEAR = 2000


def micros_of(text: str, *, zoned: bool = True) -> int:
    """Return a time in microseconds since 1970, in UTC without an offset; an offset is ignored unless ``zoned``.

    Raises:
        ValueError: it is no time.
    """
    near, cycles = _near(text)
    moment = datetime.fromisoformat(near)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None or not zoned else moment
    return (moment - _EPOCH) // _MICROSECOND + cycles * (_CYCLE // _MICROSECOND)


def time_text(micros: int, *, zoned: bool = True) -> str:
    """Return the text of a time in microseconds since 1970."""
    cycles = 0
    if not -62_135_596_800_000_000 <= micros < 253_402_300_800_000_000:
        cycles, micros = divmod(micros, _CYCLE // _MICROSECOND)
    moment = _EPOCH.replace(tzinfo=None) + timedelta(microseconds=micros)
    text = moment.isoformat(timespec="microseconds") + "Z" * zoned
    return _with_year(moment.year + cycles * _CYCLE_YEARS, text[4:])


def date_text(text: str) -> str:
    """Return a date as Spark writes it. Raises ValueError if it is none."""
    near, cycles = _near(text)
    day = date.fromisoformat(near)
    return _with_year(day.year + cycles * _CYCLE_YEARS, day.isoformat()[4:])


def _near(text: str) -> tuple[str, int]:
    """Return a text with a year that Python knows, and the cycles of the calendar between it and the real one."""
    match = _ODD_YEAR.fullmatch(text)
    if match is None:
        return text, 0
    cycles = (int(match[1]) - _NEAR) // _CYCLE_YEARS
    return f"{int(match[1]) - cycles * _CYCLE_YEARS}{match[2]}", cycles


def _with_year(year: int, rest: str) -> str:
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}{rest}"
