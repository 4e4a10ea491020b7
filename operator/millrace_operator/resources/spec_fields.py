"""Effects of changing each spec field: applied in place, or by replacing the driver."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.streamquery import Spec
from millrace_api.validation.connections import as_written, connection_parts, without_references


class Effect(StrEnum):
    """Action needed for a field's change to take effect."""

    IN_PLACE = "in place"
    """The driver keeps running."""
    REPLACED = "driver replaced"
    """The driver is drained, and another one continues from its checkpoint."""
    FIXED = "fixed"
    """The API server rejects the change."""


EFFECTS = {
    "suspend": Effect.IN_PLACE,
    "sources": Effect.REPLACED,
    "query": Effect.REPLACED,
    "sink": Effect.REPLACED,
    "emit": Effect.REPLACED,
    "additionalOutputs": Effect.REPLACED,
    "batchInterval": Effect.REPLACED,
    "partitioner.algorithm": Effect.IN_PLACE,
    "partitioner.parameters": Effect.IN_PLACE,
    "partitioner.placement": Effect.IN_PLACE,
    "partitioner.replicas": Effect.IN_PLACE,
    "partitioner.pod": Effect.IN_PLACE,
    "parallelism.initial": Effect.IN_PLACE,
    "parallelism.min": Effect.IN_PLACE,
    "parallelism.max": Effect.IN_PLACE,
    "executors.initial": Effect.IN_PLACE,
    "executors.min": Effect.IN_PLACE,
    "executors.max": Effect.IN_PLACE,
    "executors.cores": Effect.REPLACED,
    "executors.memory": Effect.REPLACED,
    "executors.podTemplate": Effect.REPLACED,
    "driver.cores": Effect.REPLACED,
    "driver.memory": Effect.REPLACED,
    "driver.podTemplate": Effect.REPLACED,
    "scaling.mode": Effect.IN_PLACE,
    "scaling.target": Effect.IN_PLACE,
    "scaling.step": Effect.IN_PLACE,
    "scaling.window": Effect.IN_PLACE,
    "scaling.grace": Effect.IN_PLACE,
    "checkpoint": Effect.FIXED,
    "s3": Effect.REPLACED,
    "azure": Effect.REPLACED,
    "lookups.tokens": Effect.REPLACED,
    "lookups.tls": Effect.REPLACED,
    "lookups.namespaces": Effect.IN_PLACE,
    "image": Effect.REPLACED,
    "code": Effect.REPLACED,
    "serviceAccountName": Effect.REPLACED,
    "sparkConf": Effect.REPLACED,
    "labels": Effect.REPLACED,
    "eventLog": Effect.REPLACED,
    "lineage": Effect.REPLACED,
    "restartNonce": Effect.REPLACED,
}
"""Effect by field; a listed field covers all its parts, and an unlisted one has its parts listed."""

_CONNECTION = "Connection "

REVISION = "millrace.io/revision"
"""Annotation of a driver's pod and of a healthy spec: the ``revision`` of the spec it was created from."""


def revision(spec: Spec) -> str:
    """Return ten hexadecimal digits that differ for every change that needs another driver.

    Another version of the operator may generate different objects from the same spec. This does not replace drivers,
    which use the new objects from their next start. Default values do not count, so neither a new field in a later
    version nor a default written out is a change.
    """
    text = json.dumps(_replaced(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def placement_subject(spec: Spec) -> str | None:
    """Return what placement ``Auto`` is decided for: the query as it runs, and its algorithm; None without Auto.

    A plan goes back to Inline when this changes, because a driver whose first plan it cannot follow fails.
    """
    partitioner = spec.partitioner
    if partitioner.placement is not PlacementSetting.AUTO:
        return None
    parameters = json.dumps(dict(partitioner.parameters), sort_keys=True, separators=(",", ":"))
    return f"{revision(spec)} {partitioner.algorithm} {parameters}"


def replaced_fields(before: Spec, after: Spec) -> list[str]:
    """Return the fields that differ between two specs and need another driver."""
    old, new = _replaced(before), _replaced(after)
    return [f"spec.{name}" for name in EFFECTS if old.get(name) != new.get(name)]


def changed_parts(before: Spec, after: Spec) -> list[str]:
    """Return what differs between two specs and needs another driver: changed Connections, then fields as written."""
    old, new = before.to_short_document(), after.to_short_document()
    was, now = connection_parts(old), connection_parts(new)
    names = [name for name in was if name in now and any(now[name].get(at) != part for at, part in was[name].items())]
    one, other = as_written(old), as_written(new)
    fields = [each for each in replaced_fields(before, after) if value_at(one, each[5:]) != value_at(other, each[5:])]
    return [f"{_CONNECTION}{name}" for name in names] + fields


def changed_connections(before: Spec, after: Spec) -> list[str]:
    """Return the Connections whose changes are all that needs another driver; none if anything else does, too."""
    parts = changed_parts(before, after)
    names = [each.removeprefix(_CONNECTION) for each in parts if each.startswith(_CONNECTION)]
    return names if len(names) == len(parts) else []


def with_in_place(spec: Spec, wanted: Spec) -> Spec:
    """Return ``spec`` with the in-place fields of ``wanted``; if the result is invalid, only with its ``suspend``.

    An object that ``spec`` does not have gets no fields.
    """
    document, source = spec.to_document(), wanted.to_document()
    for field, effect in EFFECTS.items():
        if effect is Effect.IN_PLACE:
            _put(document, field, value_at(source, field))
    try:
        return Spec.model_validate(document, by_name=False)
    except ValidationError:
        return spec.model_copy(update={"suspend": wanted.suspend})


def _replaced(spec: Spec) -> dict[str, Any]:
    document = without_references(spec.to_short_document())  # drivers do not know the names of Connections
    values = {field: value_at(document, field) for field, effect in EFFECTS.items() if effect is Effect.REPLACED}
    return {field: value for field, value in values.items() if value is not None}


def value_at(document: Mapping[str, Any], field: str) -> Any:
    """Return the value of a field of ``EFFECTS`` in a spec's document; None if it is not given."""
    value: Any = document
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _put(document: dict[str, Any], field: str, value: Any) -> None:
    """Set a field of an object that is there; None removes it."""
    *above, last = field.split(".")
    for part in above:
        if part not in document:
            return
        document = document[part]
    document.pop(last, None)
    if value is not None:
        document[last] = value
