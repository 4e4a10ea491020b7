"""Times and dates in text by a pattern, converted whole columns at a time: by way of ISO 8601."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.sql.time_formats import TimeElement, time_pattern
from millrace_jobs.sources.formats import iso_texts

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_ZONES = {"X": r"Z|[+-]\d{2}(?:\d{2})?", "XX": r"Z|[+-]\d{4}", "XXX": r"Z|[+-]\d{2}:\d{2}"}
_SHOWN = 80


def timestamps(texts: pa.Array, pattern: str) -> pa.Array:
    """Parse times to microseconds in UTC; a time without a zone is in UTC.

    Raises:
        ValueError: a value is not written like that, or there is no such time.
    """
    return _parsed(texts, pattern, is_date=False)


def dates(texts: pa.Array, pattern: str) -> pa.Array:
    """Parse dates. Raises ValueError if a value is not written like that, or there is no such day."""
    return _parsed(texts, pattern, is_date=True)


def _parsed(texts: pa.Array, pattern: str, *, is_date: bool) -> pa.Array:
    elements = time_pattern(pattern)
    found = pc.extract_regex(texts, _regex(pattern))
    if found.null_count > texts.null_count:
        raise ValueError(_refusal(texts.filter(pc.and_(found.is_null(), texts.is_valid())), pattern))
    parts = {element.part: _part(found, element) for element in elements if element.part}
    iso = pc.binary_join_element_wise(parts["year"], parts["month"], parts["day"], "-")
    if not is_date:
        clock = [parts.get(name, "00") for name in ("hour", "minute", "second")]
        fraction = [".", parts["fraction"]] if "fraction" in parts else []
        zone = parts.get("zone", "Z")
        iso = pc.binary_join_element_wise(iso, "T", clock[0], ":", clock[1], ":", clock[2], *fraction, zone, "")
    try:
        return iso_texts.dates(iso) if is_date else iso_texts.timestamps(iso)
    except ValueError:
        raise ValueError(_refusal(texts.drop_null(), pattern)) from None


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


def _refusal(values: pa.Array, pattern: str) -> str:
    """Return what is wrong with text that does not parse; the value itself if it is a single one."""
    value = repr(values[0].as_py()[:_SHOWN]) if len(values) == 1 else "a value"
    return f"{value} is no time that is written like {pattern}: correct it, or the format in timeFormats"
