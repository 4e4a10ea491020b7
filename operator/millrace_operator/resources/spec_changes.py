"""What a change of a spec does to a running query, field by field; pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millrace_api.model.streamquery import Spec
from millrace_api.validation.connections import REFERENCE

from .spec_fields import EFFECTS, Effect, value_at

_IN_PLACE = "in place, from the next batch"

_IN_PLACE_MORE = {
    "partitioner.pod": "in place: partitioner replicas in pods of their own are replaced one by one",
    "parallelism.min": "in place: a bound of the next plan",
    "parallelism.max": "in place: a bound of the next plan",
    "executors.min": "in place: a bound of the next plan",
    "executors.max": "in place: a bound of the next plan",
    "scaling.mode": "in place, from the next scaling decision",
    "scaling.target": "in place, from the next scaling decision",
    "scaling.step": "in place, from the next scaling decision",
    "scaling.window": "in place, from the next scaling decision",
    "scaling.grace": "in place, from the next scaling decision",
    "lookups.namespaces": "in place: the NetworkPolicy opens the port to these",
}
"""What in-place fields do beyond a new plan for the next batch."""

_NO_CHANGE: tuple[tuple[Any, Any], ...] = ((None, []), ([], None))
"""The default of a list, in an object that is new or gone."""

_SUSPENDED = "the driver ends after its running batch, and no results come until the query is resumed"
_RESUMED = "a driver starts, and continues from the checkpoint"


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
        FieldChange(f"spec.{path}", was, now, _effect(path, effect), _consequence(field, _effect(path, effect), after))
        for field, effect in EFFECTS.items()
        for path, was, now in _differences(value_at(old, field), value_at(new, field), field)
        if (was, now) not in _NO_CHANGE
    ]


def _effect(path: str, effect: Effect) -> Effect:
    """Return what a change of a part takes: another name of a Connection nothing, but what it leads to."""
    return Effect.IN_PLACE if path.endswith(f".{REFERENCE}") else effect


def _consequence(field: str, effect: Effect, after: Spec) -> str:
    if field == "suspend":
        return _SUSPENDED if after.suspend else _RESUMED
    if effect is Effect.FIXED:
        return "the API server rejects the change"
    if effect is Effect.REPLACED:
        return "replaces the driver"
    return _IN_PLACE_MORE.get(field, _IN_PLACE)


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts in which two values differ; a mapping that is new or gone is one part."""
    if old == new:
        return
    if not (isinstance(old, dict) and isinstance(new, dict)) or path.endswith((".podTemplate", "sparkConf")):
        yield path, old, new
        return
    for name in dict.fromkeys([*old, *new]):
        yield from _differences(old.get(name), new.get(name), f"{path}.{name}")
