"""Avro schemas that refer to others by name, written as one: each definition stands where its name is first used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_NAMED = ("record", "error", "enum", "fixed")


def with_named(schema: Any, named: Sequence[Any]) -> Any:
    """Return a schema with the definitions of the ``named`` schemas that it refers to, directly or through others."""
    return _Writer({_full_name(each, ""): each for each in named if isinstance(each, dict)}).written(schema, "")


class _Writer:
    """Writes definitions where they are first used; a name that is defined already stays a name."""

    def __init__(self, definitions: dict[str, dict[str, Any]]) -> None:
        self._definitions = definitions
        self._written: set[str] = set()

    def written(self, schema: Any, namespace: str) -> Any:
        """Return a schema of a namespace."""
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
