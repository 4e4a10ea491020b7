"""Avro schemas that refer to others by name, written as one; and unions of several types.

Each definition stands where its name is first used.

Unions become the columns that Spark's own reader of Avro makes of them. NULL is no branch, wherever it stands. ``int``
and ``long`` are read as ``long``, ``float`` and ``double`` as ``double``. Any other union of several types is a struct
with a field for each branch in order, ``member0``, ``member1`` and so on, of which the one that the value has is not
NULL.

fastavro returns the value of a union without its branch, and 5 may be an ``int`` or a ``long``. So messages are read by
a schema in which each branch is a record with one field, ``member0`` or another. A record has the same bytes as its
fields, and the decoded value is then a row of the struct.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_NAMED = ("record", "error", "enum", "fixed")

_MERGED = (({"int", "long"}, "long"), ({"float", "double"}, "double"))
_MEMBER = re.compile(r"member\d+")


def with_named(schema: Any, named: Sequence[Any]) -> Any:
    """Return a schema with the definitions of the ``named`` schemas that it refers to, directly or through others."""
    return _Writer({_full_name(each, ""): each for each in named if isinstance(each, dict)}).written(schema, "")


class _Writer:
    """Writes definitions where they are first used; a name that is defined already stays a name."""

    def __init__(self, definitions: dict[str, dict[str, Any]]) -> None:
        self._definitions = definitions
        self._written: set[str] = set()

    def written(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, list):
            return [self.written(branch, namespace) for branch in schema]
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if not isinstance(schema, dict):
            return schema
        kind, copy = schema.get("type"), dict(schema)
        if kind in _NAMED:
            name = _full_name(schema, namespace)
            self._written.add(name)
            inner, _, _ = name.rpartition(".")
            copy["name"], copy["namespace"] = name.rpartition(".")[2], inner
            if isinstance(schema.get("fields"), list):
                copy["fields"] = [
                    field | {"type": self.written(field.get("type"), inner)} for field in schema["fields"]
                ]
            return copy
        for part in ("type", "items", "values"):
            if part in copy:
                copy[part] = self.written(copy[part], namespace)
        return copy

    def _by_name(self, name: str, namespace: str) -> Any:
        within = f"{namespace}.{name}" if namespace and "." not in name else name
        for full in (within, name):
            if full in self._written:
                return full
            if full in self._definitions:
                return self.written(self._definitions[full], "")
        return name


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    name, within = str(schema.get("name")), schema.get("namespace", namespace)
    return f"{within}.{name}" if within and "." not in name else name


def branches_of(union: Sequence[Any]) -> list[Any]:
    """Return the branches of a union but ``null``."""
    return [branch for branch in union if _kind(branch) != "null"]


def merged_type(branches: Sequence[Any]) -> str | None:
    """Return the wider one of two types of numbers, as which a union of both is read; None for other branches."""
    kinds = [_kind(branch) for branch in branches]
    return next((wider for both, wider in _MERGED if len(kinds) == 2 and set(kinds) == both), None)


def member(number: int) -> str:
    """Return the name of a branch's field."""
    return f"member{number}"


def is_member(name: str) -> bool:
    """Whether a field may be that of a branch, also of one that another schema has."""
    return _MEMBER.fullmatch(name) is not None


def is_union(kind: pa.DataType) -> bool:
    """Whether a type is the struct of a union's branches."""
    if not pa.types.is_struct(kind) or kind.num_fields < 2:
        return False
    return [each.name for each in kind] == [member(number) for number in range(kind.num_fields)]


def reading_schema(schema: Any) -> Any:
    """Return the schema by which fastavro reads records.

    It has the same encoding as ``schema``, and no logical types, except for decimals: times and dates are the plain
    numbers of their encoding. Nor does it have defaults, which are for records of other schemas.
    """
    return _ReadingSchema().of(schema)


def _kind(schema: Any) -> Any:
    """Return the name of a type; that of a union is a list."""
    while isinstance(schema, dict):
        schema = schema.get("type")
    return schema if isinstance(schema, str) else ""


class _ReadingSchema:
    """One schema: its records of branches have names that no other type in it has."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def of(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self._union(schema)
        if not isinstance(schema, dict):
            return schema
        kept = {
            name: self.of(value) if name in ("type", "items", "values") else value
            for name, value in schema.items()
            if name != "default" and (name != "logicalType" or value == "decimal")
        }
        if isinstance(schema.get("fields"), list):
            kept["fields"] = [self.of(field) for field in schema["fields"]]
        return kept

    def _union(self, union: list[Any]) -> list[Any]:
        branches = branches_of(union)
        if len(branches) < 2 or merged_type(branches) is not None:
            return [self.of(branch) for branch in union]
        found, number = [], 0
        for branch in union:
            if _kind(branch) == "null":
                found.append(branch)
                continue
            name = f"_millrace_{next(self._numbers)}"  # without a namespace, names in it mean what they meant before
            fields = [{"name": member(number), "type": self.of(branch)}]
            found.append({"type": "record", "name": name, "fields": fields})
            number += 1
        return found
