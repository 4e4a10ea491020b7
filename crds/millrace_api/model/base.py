"""Base of all API models: camelCase in YAML, frozen in Python, and cross-field rules declared once.

A :class:`Rule` is enforced twice from one declaration: by pydantic when a file is read, and by the API server
as CEL when an object is applied (``crd.py`` writes ``x-kubernetes-validations`` from it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import (
    AliasGenerator,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

PROBLEM = "millrace"
"""Error type of our own checks; its context has ``message``, ``hint`` and, for a rule, its ``fields``."""


def problem(message: str, hint: str, fields: tuple[str, ...] = ()) -> PydanticCustomError:
    """Return the error for a validator to raise: what is wrong, with the value, and what to write instead."""
    return PydanticCustomError(PROBLEM, "{message}; {hint}", {"message": message, "hint": hint, "fields": fields})


@dataclass(frozen=True)
class Rule:
    """A condition over several fields of one model.

    ``fields`` are the attributes it is about: their values are quoted, and it is reported at the last of
    them that the user wrote. ``cel`` is None where CEL cannot see the mistake (durations are text to it),
    ``check`` is None where only the API server can (a transition from the stored object), or where the rule is about
    references to Connections, which are resolved before models are made (``validation/connections.py``).
    """

    message: str
    hint: str
    fields: tuple[str, ...]
    cel: str | None
    check: Callable[[Any], bool] | None

    def as_cel(self) -> dict[str, str]:
        """Return the rule as an entry of ``x-kubernetes-validations``."""
        if self.cel is None:
            raise ValueError(f"no CEL for: {self.message}")
        return {"rule": self.cel, "message": f"{self.message}; {self.hint}"}


AUTHORED = "x-millrace-authored"
"""Keyword of a field that users write elsewhere: its value says what the schema of a StreamQuery has in its place."""


class Authored(StrEnum):
    """What users may write in the place of a field that resolved documents have: see ``validation/connections.py``."""

    NOTHING = "nothing"
    """Only a Connection has it."""
    OPTIONAL = "optional"
    """It may be left out, since a Connection has it."""

    @property
    def keywords(self) -> dict[str, JsonValue]:
        """The keywords of such a field."""
        return {AUTHORED: self.value}


class Model(BaseModel):
    """Base of every API model; instances are immutable, and unknown fields are errors."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(alias=to_camel),
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    def to_document(self) -> dict[str, Any]:
        """Return plain dicts, lists and scalars with the names of the YAML; unset optional fields are left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_short_document(self) -> dict[str, Any]:
        """Return ``to_document`` without the fields at their defaults.

        An earlier version, which refuses fields that it does not know, reads it as long as no new field is used.
        """
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)

    def to_json(self) -> str:
        """Return ``to_document`` as one line of JSON; equal models give the same text."""
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the model that ``to_json`` wrote.

        Raises:
            pydantic.ValidationError: the text is anything else.
        """
        return cls.model_validate_json(text, by_name=False)

    @model_validator(mode="after")
    def _obey_rules(self) -> Model:
        broken = [rule for rule in self.rules if rule.check is not None and not rule.check(self)]
        if broken:
            raise ValidationError.from_exception_data(type(self).__name__, [self._report(rule) for rule in broken])
        return self

    def _report(self, rule: Rule) -> InitErrorDetails:
        shown = [self._quote(name) for name in rule.fields if getattr(self, name) is not None]
        message = f"{rule.message} (got {', '.join(shown)})" if shown else rule.message
        fields = tuple(_yaml_name(type(self), name) for name in rule.fields)
        written = [name for name in rule.fields if name in self.model_fields_set]
        location = (_yaml_name(type(self), written[-1]),) if written else ()
        return InitErrorDetails(type=problem(message, rule.hint, fields), loc=location, input=None)

    def _quote(self, name: str) -> str:
        value, alias = getattr(self, name), _yaml_name(type(self), name)
        return f"{alias}: {value}" if isinstance(value, str | int | float | Decimal) else alias

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        validations = [rule.as_cel() for rule in cls.rules if rule.cel is not None]
        if validations:
            schema["x-kubernetes-validations"] = validations
        return schema


def _yaml_name(model: type[BaseModel], name: str) -> str:
    return model.model_fields[name].serialization_alias or name


def exactly_one(*fields: str, hint: str) -> Rule:
    """Require that exactly one of these optional fields is set."""
    message = f"exactly one of {_listed(fields)} is needed"
    return Rule(message, hint, fields, f"{_how_many(fields)} == 1", lambda model: _count(model, fields) == 1)


def at_most_one(*fields: str, hint: str) -> Rule:
    """Require that at most one of these optional fields is set."""
    message = f"{_listed(fields)} exclude one another"
    return Rule(message, hint, fields, f"{_how_many(fields)} <= 1", lambda model: _count(model, fields) <= 1)


def ascending(*fields: str) -> Rule:
    """Require that the values of these fields, where set, do not decrease."""
    pairs = [(a, b) for i, a in enumerate(fields) for b in fields[i + 1 :]]
    cel = " && ".join(
        f"(!has(self.{a}) || !has(self.{b}) || self.{a} <= self.{b})"
        for a, b in ((to_camel(a), to_camel(b)) for a, b in pairs)
    )

    def check(model: Model) -> bool:
        values = [getattr(model, name) for name in fields if getattr(model, name) is not None]
        return values == sorted(values)

    return Rule(
        " <= ".join(to_camel(name) for name in fields) + " does not hold",
        "write values in that order",
        fields,
        cel,
        check,
    )


def _listed(fields: tuple[str, ...]) -> str:
    return ", ".join(to_camel(name) for name in fields)


def _how_many(fields: tuple[str, ...]) -> str:
    return f"[{', '.join(f'has(self.{to_camel(name)})' for name in fields)}].filter(given, given).size()"


def _count(model: Model, fields: tuple[str, ...]) -> int:
    return sum(getattr(model, name) is not None for name in fields)
