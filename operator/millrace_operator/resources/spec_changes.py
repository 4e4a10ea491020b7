"""What a change of a spec does to a running query, field by field, as the model declares it; pure functions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from millrace_api.model.changes import IN_PLACE, Effect, OnChange, effects
from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.streamquery import Spec
from millrace_api.validation.connections import REFERENCE, as_written, connection_parts, without_references

_ON_CHANGE = dict(effects(Spec))
EFFECTS = {field: change.effect for field, change in _ON_CHANGE.items()}
"""Effect by field; a listed field covers all its parts, and an unlisted one has its parts listed."""

_NO_CHANGE: tuple[tuple[Any, Any], ...] = ((None, []), ([], None))
"""The default of a list, in an object that is new or gone."""

_SUSPENDED = "the driver ends after its running batch, and no results come until the query is resumed"
_RESUMED = "a driver starts, and continues from the checkpoint"

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
    return [f"spec.{name}" for name in _with(Effect.REPLACED) if old.get(name) != new.get(name)]


def changed_parts(before: Spec, after: Spec) -> list[str]:
    """Return what differs between two specs and needs another driver: changed Connections, then fields as written."""
    old, new = before.to_short_document(), after.to_short_document()
    was, now = connection_parts(old), connection_parts(new)
    names = [name for name in was if name in now and any(now[name].get(at) != part for at, part in was[name].items())]
    one, other = as_written(old), as_written(new)
    fields = [each for each in replaced_fields(before, after) if _value_at(one, each[5:]) != _value_at(other, each[5:])]
    return [f"{_CONNECTION}{name}" for name in names] + fields


def changed_connections(before: Spec, after: Spec) -> list[str]:
    """Return the Connections whose changes are all that needs another driver; none if anything else does, too."""
    parts = changed_parts(before, after)
    names = [each.removeprefix(_CONNECTION) for each in parts if each.startswith(_CONNECTION)]
    return names if len(names) == len(parts) else []


def with_in_place(spec: Spec, wanted: Spec) -> Spec:
    """Return ``spec`` with the in-place fields of ``wanted``, as far as the result is valid.

    Fields of one part, such as those of ``executors``, are taken together or not at all: other fields of ``spec`` may
    not go with them. An object that ``spec`` does not have gets no fields.
    """
    fields, source = list(_with(Effect.IN_PLACE)), wanted.to_document()
    whole = _with_values(spec, fields, source)
    if whole is not None:
        return whole
    left = list(dict.fromkeys(field.partition(".")[0] for field in fields))
    while True:  # one part may go with the spec only once another is taken
        for part in left:
            taken = _with_values(spec, [field for field in fields if field.partition(".")[0] == part], source)
            if taken is not None:
                spec = taken
                left.remove(part)
                break
        else:
            return spec


def _with_values(spec: Spec, fields: Iterable[str], source: Mapping[str, Any]) -> Spec | None:
    """Return ``spec`` with the values that ``source`` has of some fields; None if that is invalid."""
    document = spec.to_document()
    for field in fields:
        _put(document, field, _value_at(source, field))
    try:
        return Spec.model_validate(document, by_name=False)
    except ValidationError:
        return None


@dataclass(frozen=True)
class FieldChange:
    """A changed field, with its values, None if not given, and what the change does.

    ``path`` is as precise as mappings allow; lists and pod templates are one value.
    """

    path: str
    old: Any
    new: Any
    effect: Effect
    consequence: str


def spec_changes(before: Spec, after: Spec) -> list[FieldChange]:
    """Return the changed fields in the order of ``EFFECTS``. A default that is written out is no change."""
    old, new = before.to_document(), after.to_document()
    return [
        _field_change(path, was, now, change, after)
        for field, change in _ON_CHANGE.items()
        for path, was, now in _differences(_value_at(old, field), _value_at(new, field), field)
        if (was, now) not in _NO_CHANGE
    ]


def _field_change(path: str, old: Any, new: Any, change: OnChange, after: Spec) -> FieldChange:
    if path.endswith(f".{REFERENCE}"):  # another name of a Connection takes nothing, but what it leads to
        change = IN_PLACE
    consequence = change.consequence
    if path == "suspend":
        consequence = _SUSPENDED if after.suspend else _RESUMED
    return FieldChange(f"spec.{path}", old, new, change.effect, consequence)


def _replaced(spec: Spec) -> dict[str, Any]:
    document = without_references(spec.to_short_document())  # drivers do not know the names of Connections
    values = {field: _value_at(document, field) for field in _with(Effect.REPLACED)}
    return {field: value for field, value in values.items() if value is not None}


def _with(effect: Effect) -> list[str]:
    return [field for field, each in EFFECTS.items() if each is effect]


def _value_at(document: Mapping[str, Any], field: str) -> Any:
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


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts in which two values differ; a mapping that is new or gone is one part."""
    if old == new:
        return
    if not (isinstance(old, dict) and isinstance(new, dict)) or path.endswith((".podTemplate", "sparkConf")):
        yield path, old, new
        return
    for name in dict.fromkeys([*old, *new]):
        yield from _differences(old.get(name), new.get(name), f"{path}.{name}")
