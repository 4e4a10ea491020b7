"""Every field of a model and of the models in it, by its path in YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from millrace_api.model.base import Model


@dataclass(frozen=True)
class Field:
    """A field by its path: ``*`` stands for a name that the user chooses, ``[]`` for an entry of a list.

    ``values`` are all the values that it can have, if these are few: those of an enum, or of a flag.
    ``default`` is None for a field that must be given, too.
    """

    path: str
    values: tuple[Any, ...] = ()
    default: Any = None


def fields(model: type[BaseModel], path: str) -> Iterator[Field]:
    """Yield the fields of a model at a path.

    A field that is a model, and that always has a value, is nothing but its parts. One that may be left out is a field
    besides.
    """
    for name, info in model.model_fields.items():
        here = f"{path}.{info.serialization_alias or name}"
        parts = list(_parts(info.annotation, here))
        if not parts or not _is_model(info):
            default = None if info.is_required() else info.default
            yield Field(here, () if parts else _values(info), default)
        yield from parts


def _parts(annotation: Any, path: str) -> Iterator[Field]:
    """Yield the fields of the models in a type."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield from fields(annotation, path)
    elif get_origin(annotation) in (dict, Mapping):
        yield from _parts(get_args(annotation)[1], f"{path}.*")
    elif get_origin(annotation) is tuple:
        yield from _parts(get_args(annotation)[0], f"{path}[]")
    elif get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _parts(each, path)


def _is_model(info: FieldInfo) -> bool:
    return isinstance(info.annotation, type) and issubclass(info.annotation, Model)


def _values(info: FieldInfo) -> tuple[Any, ...]:
    """Return the values of a flag or an enum; such a field may also be left out, but has no other effect then."""
    given = info.annotation
    for kind in get_args(given) if get_origin(given) in (Union, UnionType) else (given,):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return tuple(each.value for each in kind)
        if kind is bool:
            return (False, True)
    return ()
