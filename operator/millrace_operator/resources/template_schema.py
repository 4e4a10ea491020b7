"""Pod templates by Kubernetes' own schema, decoded strictly, so that what is checked is what is made.

The API server refuses ``runAsUser: "0"``, and Spark's client, which makes the executors, reads it as the number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from millrace_api.errors import quote

_METADATA = frozenset({"labels", "annotations"})
_QUANTITIES = frozenset({"limits", "requests", "sizeLimit", "divisor"})
"""Fields with quantities, or mappings of them, for which Kubernetes also takes numbers."""

_OF_ANY_NAME = frozenset(
    (name,)
    for name in ("annotations", "labels", "limits", "matchLabels", "nodeSelector", "requests", "volumeAttributes")
)
"""Fields whose entries have names that Kubernetes does not choose."""

_KINDS = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}

Place = tuple[int | str, ...]


def schema_problems(template: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield places in a pod template that Kubernetes' schema does not have, each with a message and a hint.

    What is missing is not reported, since the template is merged into the pod that the operator makes, and a null takes
    something away from that.
    """
    for name in sorted(set(template.get("metadata") or {}) - _METADATA):
        hint = "leave it out: a template has labels and annotations"
        yield f"metadata.{name}", "is not for a pod template of a query to set", hint
    given = _without_nulls({name: part for name, part in template.items() if name in ("metadata", "spec")})
    for place in _in_python(given, ()):
        yield _text(place), "is not a field of Kubernetes here", "write its name as Kubernetes does"
    if not given:
        return
    from kubernetes.client import V1PodTemplateSpec  # whose models take 0.3 s, and few queries need them

    try:
        V1PodTemplateSpec.model_validate(given)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            if each["type"] == "missing" or _is_quantity(each["loc"], each["input"]):
                continue
            if each["type"] == "extra_forbidden":
                yield _text(each["loc"]), "is not a field of Kubernetes here", "correct its name, or leave it out"
            else:
                kind = _KINDS.get(each["type"], "what Kubernetes takes here")
                yield _text(each["loc"]), f"{_shown(each['input'])} is not {kind}", f"write {kind}"


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _is_quantity(place: Place, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not _QUANTITIES.isdisjoint(place[-2:])


def _in_python(value: object, at: Place) -> Iterator[Place]:
    """Yield the fields that the client's models also take by their names in Python, which have underscores."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if "_" in name and at[-1:] not in _OF_ANY_NAME:
                yield (*at, name)
            yield from _in_python(each, (*at, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _in_python(each, (*at, number))


def _text(place: Place) -> str:
    parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in place)
    return "".join(parts).removeprefix(".")


def _shown(value: object) -> str:
    return quote(value) if isinstance(value, str | int | float) else "this"
