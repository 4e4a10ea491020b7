"""Translation of pydantic's errors into messages for users: what is wrong, the value, what to write instead."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from millrace_api.model.base import PROBLEM, Model

Location = tuple[str | int, ...]

_TYPES = {
    "string_type": ("text", "write it in quotes"),
    "int_type": ("a whole number", "write a number without quotes, such as 4"),
    "int_from_float": ("a whole number", "write a number such as 4"),
    "float_type": ("a number", "write a number without quotes, such as 0.9"),
    "bool_type": ("true or false", "write true or false, without quotes"),
    "dict_type": ("a mapping", "write names and values below it"),
    "mapping_type": ("a mapping", "write names and values below it"),
    "model_type": ("a mapping", "write its fields below it"),
    "tuple_type": ("a list", "write a list such as [a, b]"),
}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to ``name``, or None if none is similar."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.65)
    return by_lower[close[0]] if close else None


def suggest(name: str, known: Sequence[str]) -> str:
    """Return a hint that names the nearest of the known names, or all of them."""
    close = nearest(name, known)
    if close is not None:
        return f"did you mean {quote(close)}?"
    return f"write one of {', '.join(known)}" if known else "remove it"


def quote(value: object, limit: int = 80) -> str:
    """Return the value as messages show it: text in double quotes, cut to ``limit`` characters."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


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
        return f'there is no field "{location[-1]}" here', suggest(str(location[-1]), siblings(root, location))
    if kind in ("enum", "literal_error"):
        allowed = _allowed(root, location)
        hint = suggest(value, allowed) if isinstance(value, str) else f"write one of {', '.join(allowed)}"
        return f"{quote(value)} is not one of {', '.join(allowed)}", hint
    if kind in _TYPES:
        what, hint = _TYPES[kind]
        return f"{_shown(value)} is not {what}", hint
    if kind in _LIMITS:
        what, hint = _LIMITS[kind]
        return what.format(value=_shown(value), **context), hint.format(**context)
    return f"{_shown(value)}: {error['msg']}", "correct the value"


_LIMITS = {
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


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "nothing" if value is None else quote(value)


def _field(root: type[Model], location: Location) -> FieldInfo | None:
    """Return the declaration of the field at ``location``, if there is one."""
    annotation: Any = root
    field: FieldInfo | None = None
    for step in location:
        annotation, field = _down(annotation, step)
        if annotation is None:
            return None
    return field


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
    annotation: Any = root
    for step in location[:-1]:
        annotation, _ = _down(annotation, step)
    model = _plain(annotation)
    return [field.serialization_alias or name for name, field in model.model_fields.items()]


def _allowed(root: type[Model], location: Location) -> list[str]:
    field = _field(root, location)
    annotation = _plain(field.annotation) if field is not None else None
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return [member.value for member in annotation]
    return [str(value) for value in get_args(annotation)] if get_origin(annotation) is Literal else []


def _example(root: type[Model], location: Location) -> str:
    field = _field(root, location)
    examples = field.examples if field is not None else None
    return f"write {location[-1]}: {examples[0]}" if examples else "add it"
