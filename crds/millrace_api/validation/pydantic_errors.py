"""Pydantic's errors in words for users, and the salvage of broken documents, so that no mistake hides another."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from millrace_api.errors import nearest, quote, suggest
from millrace_api.model.base import PROBLEM, Model
from millrace_api.model.streamquery import API_VERSION, KIND, StreamQuery

Location = tuple[str | int, ...]

_WORDINGS = {
    "string_type": ("{value} is not text", "write it in quotes"),
    "int_type": ("{value} is not a whole number", "write a number without quotes, such as 4"),
    "int_from_float": ("{value} is not a whole number", "write a number such as 4"),
    "float_type": ("{value} is not a number", "write a number without quotes, such as 0.9"),
    "bool_type": ("{value} is not true or false", "write true or false, without quotes"),
    "invalid_key": ("the name {value} is not text", "write it in quotes"),
    "dict_type": ("{value} is not a mapping", "write names and values below it"),
    "mapping_type": ("{value} is not a mapping", "write names and values below it"),
    "model_type": ("{value} is not a mapping", "write its fields below it"),
    "tuple_type": ("{value} is not a list", "write a list such as [a, b]"),
    "greater_than": ("{value} is not greater than {gt}", "write a number greater than {gt}"),
    "greater_than_equal": ("{value} is less than {ge}", "write a number of at least {ge}"),
    "less_than": ("{value} is not less than {lt}", "write a number less than {lt}"),
    "less_than_equal": ("{value} is greater than {le}", "write a number of at most {le}"),
    "string_too_short": ("the text is empty", "write at least {min_length} character"),
    "string_too_long": ("the text is too long", "write at most {max_length} characters"),
    "too_short": ("there are {actual_length} entries", "write at least {min_length}"),
    "too_long": ("there are more than {max_length} entries", "write at most {max_length}"),
    "finite_number": ("{value} is not a finite number", "write an ordinary number"),
}
"""Message and hint by pydantic's type of error; ``value`` is the user's."""

_FREE_FORM = {"options", "podTemplate"}
"""Fields with free-form content, in which null is a valid value."""

_SYNONYMS = {"separator": "delimiter", "sep": "delimiter"}
"""What others call a field, in lower case, for which similar names are not found."""

_OUTPUT_MODES = {
    "append": "append is OnWindowClose here",
    "update": "update is OnUpdate here",
    "complete": "write OnUpdate and sink.table, which holds the newest result of each key",
}
"""Hints for the output modes of Structured Streaming, in lower case."""

_STAND_INS: dict[Location, Any] = {("metadata",): {"name": "unnamed"}, ("spec", "sink"): {"console": {}}}
"""Replacements for required sections that are broken."""

_NEEDED = ("sources", "query")
"""Sections without which no further check is possible."""


def dotted(location: Location) -> str:
    """Return a path as users write it: ``spec.sources.trips.files``, ``spec.sink.kafka.key[0]``."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def field_location(error: ErrorDetails) -> Location:
    """Return the location of the error. An error about a mapping's key is located at the entry."""
    location = error["loc"]
    return location[:-1] if location and location[-1] == "[key]" else location


def explain(root: type[Model], error: ErrorDetails) -> tuple[str, str]:
    """Return message and hint for one error of validating ``root``."""
    kind, value, location = error["type"], error["input"], field_location(error)
    context = error.get("ctx", {})
    if kind == PROBLEM:
        return context["message"], context["hint"]
    if kind == "missing":
        return "is required", _example(root, location)
    if kind == "extra_forbidden":
        known = siblings(root, location)
        meant = _meant(str(location[-1]), known)
        return f'there is no field "{location[-1]}" here', suggest(str(location[-1]) if meant is None else meant, known)
    if kind in ("enum", "literal_error"):
        allowed = _allowed(root, location)
        if len(allowed) == 1:
            return f"{quote(value)} is not allowed here", f"write {allowed[0]}"
        hint = suggest(value, allowed, "write one of these") if isinstance(value, str) else "write one of these"
        if location[-1] == "emit" and str(value).lower() in _OUTPUT_MODES:
            hint = _OUTPUT_MODES[str(value).lower()]
        if value is False and "Off" in allowed:
            hint = 'write "Off" in quotes: without them, YAML reads it as false'
        return f"{quote(value)} is not one of {', '.join(allowed)}", hint
    if kind in _WORDINGS:
        message, hint = _WORDINGS[kind]
        return message.format(value=_shown(value), **context), hint.format(**context)
    return f"{_shown(value)}: {error['msg']}", "correct the value"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "nothing" if value is None else quote(value)


def _declared(root: type[Model], location: Location) -> tuple[Any, FieldInfo | None]:
    """Return the type at ``location`` and its field's declaration; None for what does not exist."""
    found: tuple[Any, FieldInfo | None] = (root, None)
    for step in location:
        found = _down(found[0], step)
    return found


def _down(annotation: Any, step: str | int) -> tuple[Any, FieldInfo | None]:
    annotation = _plain(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Model):
        for field in annotation.model_fields.values():
            if field.serialization_alias == step:
                return field.annotation, field
        return None, None
    arguments = get_args(annotation)
    if not arguments:
        return None, None
    return (arguments[0] if get_origin(annotation) is tuple else arguments[-1]), None


def _plain(annotation: Any) -> Any:
    """Strip ``Annotated`` and ``| None`` from a type."""
    if hasattr(annotation, "__metadata__"):
        return _plain(annotation.__origin__)
    if get_origin(annotation) in (Union, types.UnionType):
        return _plain(next(part for part in get_args(annotation) if part is not type(None)))
    return annotation


def siblings(root: type[Model], location: Location) -> list[str]:
    """Return the names of all fields that are allowed at ``location``."""
    model = _plain(_declared(root, location[:-1])[0])
    return [field.serialization_alias or name for name, field in model.model_fields.items()]


def _meant(name: str, known: list[str]) -> str | None:
    """Return the field that an unknown one probably means; None if no name is similar."""
    synonym = _SYNONYMS.get(name.lower())
    return synonym if synonym in known else nearest(name, known)


def _allowed(root: type[Model], location: Location) -> list[str]:
    _, field = _declared(root, location)
    annotation = _plain(field.annotation) if field is not None else None
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return [member.value for member in annotation]
    return [str(value) for value in get_args(annotation)] if get_origin(annotation) is Literal else []


def _example(root: type[Model], location: Location) -> str:
    _, field = _declared(root, location)
    examples = field.examples if field is not None else None
    return f"write {location[-1]}: {examples[0]}" if examples else "add it"


def null_locations(value: Any, location: Location = ()) -> Iterator[Location]:
    """Yield the location of every null value outside free-form fields; the API server rejects these too."""
    if value is None and location:
        yield location
    elif isinstance(value, dict):
        for key, below in value.items():
            if key not in _FREE_FORM:
                yield from null_locations(below, (*location, str(key)))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from null_locations(below, (*location, index))


def primary_errors(error: ValidationError) -> list[ErrorDetails]:
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
    unusable = set(null_locations(value))
    for location in unusable:
        _drop(value, location)
    rules: list[ErrorDetails] = []
    while True:
        try:
            return StreamQuery.model_validate(value, by_name=False), rules
        except ValidationError as error:
            dropped = False
            for detail in primary_errors(error):
                if detail.get("ctx", {}).get("fields") and not is_consequence(detail, unusable):
                    rules.append(detail)
                unusable |= _wrong_fields(detail)
                dropped |= _remove(value, detail)
            if not dropped:
                return None, rules


def _wrong_fields(error: ErrorDetails) -> set[Location]:
    """Return the wrong field and, if it is unknown, the field that was probably meant."""
    location = field_location(error)
    if error["type"] != "extra_forbidden":
        return {location}
    close = _meant(str(location[-1]), siblings(StreamQuery, location))
    return {location} if close is None else {location, (*location[:-1], close)}


def _remove(value: Any, error: ErrorDetails) -> bool:
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
