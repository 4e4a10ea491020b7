"""Salvage of broken documents, so that one mistake does not hide another."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from millrace_api.explain_errors import Location, field_location, nearest, siblings
from millrace_api.model.streamquery import API_VERSION, KIND, StreamQuery

_FREE_FORM = {"options", "podTemplate"}
"""Fields with free-form content, in which null is a valid value."""

_STAND_INS: dict[Location, Any] = {("metadata",): {"name": "unnamed"}, ("spec", "sink"): {"console": {}}}
"""Replacements for required sections that are broken."""

_NEEDED = ("sources", "query")
"""Sections without which no further check is possible."""


def nulls(value: Any, location: Location = ()) -> Iterator[Location]:
    """Yield the location of every null value outside free-form fields; the API server rejects these too."""
    if value is None and location:
        yield location
    elif isinstance(value, dict):
        for key, below in value.items():
            if key not in _FREE_FORM:
                yield from nulls(below, (*location, str(key)))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from nulls(below, (*location, index))


def details(error: ValidationError) -> list[ErrorDetails]:
    """Return the errors without the consequences of others: pydantic counts only the valid entries of a list."""
    every = error.errors(include_url=False)

    def follows(detail: ErrorDetails) -> bool:
        at = detail["loc"]
        return detail["type"] == "too_short" and any(d["loc"][: len(at)] == at != d["loc"] for d in every)

    return [detail for detail in every if not follows(detail)]


def is_consequence(error: ErrorDetails, unusable: set[Location]) -> bool:
    """Return whether a broken rule only follows from a field that is present but unusable."""
    fields = error.get("ctx", {}).get("fields", ())
    location = field_location(error)
    model = location[:-1] if location and location[-1] in fields else location
    return any((*model, name) in unusable for name in fields)


def salvage(document: Any) -> tuple[StreamQuery | None, list[ErrorDetails]]:
    """Return the query with its mistakes removed, and the broken rules that these mistakes had hidden.

    Wrong values, unknown fields and empty fields are dropped; then broken sections are replaced by their defaults. The
    query is None if ``sources`` or ``query`` itself is wrong.
    """
    if not isinstance(document, dict) or not isinstance(document.get("spec"), dict):
        return None, []
    value = copy.deepcopy(document) | {"apiVersion": API_VERSION, "kind": KIND}
    unusable = set(nulls(value))
    for location in unusable:
        _drop(value, location)
    rules: list[ErrorDetails] = []
    while True:
        try:
            return StreamQuery.model_validate(value, by_name=False), rules
        except ValidationError as error:
            dropped = False
            for detail in details(error):
                if detail.get("ctx", {}).get("fields") and not is_consequence(detail, unusable):
                    rules.append(detail)
                unusable |= _meant(detail)
                dropped |= _take_out(value, detail)
            if not dropped:
                return None, rules


def _meant(error: ErrorDetails) -> set[Location]:
    """Return the wrong field and, if it is unknown, the field that was probably meant."""
    location = field_location(error)
    if error["type"] != "extra_forbidden":
        return {location}
    close = nearest(str(location[-1]), siblings(StreamQuery, location))
    return {location} if close is None else {location, (*location[:-1], close)}


def _take_out(value: Any, error: ErrorDetails) -> bool:
    """Drop the value in error, or its whole section; return False if that is not possible."""
    location = field_location(error)
    if error["type"] == "extra_forbidden":
        return _drop(value, location)
    section = location[:2] if location[:1] == ("spec",) else location[:1]
    if section[-1] in _NEEDED:
        return False
    is_rule = bool(error.get("ctx", {}).get("fields"))
    return (not is_rule and _drop(value, location)) or _drop(value, section)


def _drop(value: Any, location: Location) -> bool:
    """Remove an entry of a mapping, or replace it by its stand-in; return False if there is nothing to do."""
    *parents, last = location
    for step in parents:
        if not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    if not isinstance(value, dict):
        return False
    if location in _STAND_INS:
        done: bool = value.get(last) != _STAND_INS[location]
        value[last] = copy.deepcopy(_STAND_INS[location])
        return done
    return value.pop(last, value) is not value
