"""Schemas that the schemas of a registry refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from millrace_jobs.schemas.registry import SchemaRegistry

AVRO = "AVRO"
"""The type of schemas of which a registry does not say it."""

MOST_SCHEMAS = 1024
"""Most schemas that a process keeps."""

_MOST_REFERENCES = 256


class Referenced(NamedTuple):
    """A schema that another one refers to by a name, and where the registry has it."""

    name: str
    subject: str
    version: int
    document: Mapping[str, Any]


def referenced(
    registry: SchemaRegistry, document: Mapping[str, Any], *, is_known: Callable[[str], bool] = lambda _: False
) -> Iterator[Referenced]:
    """Yield the schemas that a schema refers to, each once and after those that it refers to itself.

    Those whose name ``is_known`` are left out.

    Raises:
        ValueError: the registry does not have one of them, or they are too many.
    """
    found: dict[str, Referenced] = {}
    waiting = [(each, False) for each in reversed(_references(document))]
    while waiting:
        reference, ready = waiting.pop()
        name, subject, version = reference["name"], reference["subject"], reference["version"]
        if ready:
            yield found[name]
            continue
        if name in found or is_known(name):
            continue
        if len(found) == _MOST_REFERENCES:
            raise ValueError(f"it refers to more than {_MOST_REFERENCES} schemas")
        answer = registry.version(subject, version)
        if answer is None:
            raise ValueError(f"it refers to version {version} of {subject}, which the registry does not have")
        found[name] = Referenced(name, subject, version, answer)
        waiting.append((reference, True))
        waiting += [(each, False) for each in reversed(_references(answer))]


def _references(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the references of a schema. Raises ValueError if the answer has them in another form."""
    found = document.get("references") or []
    kinds = {"name": str, "subject": str, "version": int}
    for each in found:
        if not isinstance(each, dict) or not all(isinstance(each.get(key), kind) for key, kind in kinds.items()):
            raise ValueError("its references have no name, subject and version")
    return list(found)
