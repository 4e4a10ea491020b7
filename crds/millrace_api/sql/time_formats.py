"""How times are written in text: ISO 8601, a number since 1970, or a pattern such as ``dd.MM.yyyy HH:mm:ss``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NoReturn

UNITS: Final = ("seconds", "milliseconds", "microseconds")
"""Formats that are numbers since 1970."""

ISO: Final = "iso"

_ELEMENTS = {
    "yyyy": "year",
    "M": "month",
    "MM": "month",
    "MMM": "month",
    "d": "day",
    "dd": "day",
    "H": "hour",
    "HH": "hour",
    "m": "minute",
    "mm": "minute",
    "s": "second",
    "ss": "second",
    **{"S" * digits: "fraction" for digits in range(1, 10)},
    "X": "zone",
    "XX": "zone",
    "XXX": "zone",
}
"""What the letters of a pattern stand for, as in Spark and Java."""

_TOKENS = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<other>[^A-Za-z'])|(?P<open>')")
_LETTERS_SHOWN = "yyyy, M, MM, MMM, d, dd, H, HH, m, mm, s, ss, S to SSSSSSSSS, X, XX and XXX"


@dataclass(frozen=True)
class TimeElement:
    """One element of a pattern: the letters of a part of the time, or text that stands there as it is.

    ``part`` is year, month, day, hour, minute, second, fraction or zone; empty for text.
    """

    text: str
    part: str = ""


class TimePatternError(ValueError):
    """Error of a pattern: what is wrong, and what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}: {hint}")
        self.message = message
        self.hint = hint


def is_pattern(time_format: str) -> bool:
    """Whether a format of times is a pattern."""
    return time_format != ISO and time_format not in UNITS


def time_pattern(pattern: str) -> tuple[TimeElement, ...]:
    """Return the elements of a pattern. Raises TimePatternError if it is none, or says no day."""
    elements: list[TimeElement] = []
    for token in _TOKENS.finditer(pattern):
        if letters := token["letters"]:
            if letters not in _ELEMENTS:
                _fail(pattern, f'has "{letters}"', f"write {_LETTERS_SHOWN}, and other letters in single quotes")
            elements.append(TimeElement(letters, _ELEMENTS[letters]))
        elif token["open"]:
            _fail(pattern, "has a single quote that is not closed", "close it, or write two for one that is text")
        else:
            quoted = token["quoted"]
            elements.append(TimeElement(token["other"] if quoted is None else quoted.replace("''", "'") or "'"))
    parts = [element.part for element in elements if element.part]
    for part in parts:
        if parts.count(part) > 1:
            _fail(pattern, f"has the {part} twice", "write it once")
    for needed, by in (("year", "yyyy"), ("month", "MM"), ("day", "dd")):
        if needed not in parts:
            _fail(pattern, f"has no {needed}", f"add {by}")
    times = ("hour", "minute", "second", "fraction")
    for larger, smaller in pairwise(times):
        if smaller in parts and larger not in parts:
            _fail(pattern, f"has the {smaller} without the {larger}", f"add the {larger}")
    for one, other in pairwise(elements):
        if one.part and other.part and len(one.text) == 1 and other.text[0] != "X":
            _fail(pattern, f'has "{one.text}" right before "{other.text}"', f"write {one.text * 2}, or a separator")
    return tuple(elements)


def _fail(pattern: str, what: str, hint: str) -> NoReturn:
    raise TimePatternError(f'the pattern "{pattern}" {what}', hint)
