"""What a change of a field takes, for a query that runs and for its checkpoint.

A field declares both in its model, such as ``image: Annotated[Text | None, REPLACED, FREE]``. The
operator, ``millrace diff``, the warning of ``kubectl apply`` and the check of a checkpoint are loops over what is
declared, so a new field is known to all of them by its model alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, TypeVar, get_args, get_origin

from millrace_api.model.base import Model

_Declared = TypeVar("_Declared")


class Effect(StrEnum):
    """Action needed for a field's change to take effect."""

    IN_PLACE = "in place"
    """The driver keeps running."""
    REPLACED = "driver replaced"
    """The driver is drained, and another one continues from its checkpoint."""
    FIXED = "fixed"
    """The API server rejects the change."""


@dataclass(frozen=True)
class OnChange:
    """A declaration of what a change of a field, and of all its parts, takes while the query runs.

    Attributes:
        effect: the action.
        consequence: what ``millrace diff`` says about it.
    """

    effect: Effect
    consequence: str


IN_PLACE = OnChange(Effect.IN_PLACE, "in place, from the next batch")
REPLACED = OnChange(Effect.REPLACED, "replaces the driver")
FIXED = OnChange(Effect.FIXED, "the API server rejects the change")


class CheckpointChange(Enum):
    """Whether a query may go on from its checkpoint with a changed field; the value is the reason in messages.

    Limits of SCHEMA and SQL are checked; all others but FREE forbid the change. It holds for the parts of a field that
    declare nothing themselves.
    """

    FREE = "it may change"
    NAME = "the sink identifies its earlier results by it"
    RECORDS = "the offsets in the checkpoint belong to other records"
    EMIT = "the state was built for another emit mode"
    STATE = "the state in the checkpoint depends on it"
    START = "it only applies to the first run"
    SCHEMA = "columns and fields may be added and removed, and numbers be wider, but no other type may change"
    SQL = "filter and output may change, but not what the state depends on"


class ChangeVerdict(StrEnum):
    """Whether a changed query can have the results that it asks for, on its checkpoint or otherwise."""

    POSSIBLE = "possible"
    """It goes on from its checkpoint."""
    IN_SHADOW = "possible in shadow"
    """The state cannot give the results. Its records can: another run reads them again, beside the one that runs."""
    NOT = "not possible"
    """It is another query: neither its checkpoint nor the same records lead to it."""

    @property
    def advice(self) -> str:
        """What to do with the changed query; empty if it can simply be applied."""
        return _ADVICE.get(self, "")


_ADVICE = {
    ChangeVerdict.IN_SHADOW: "run it beside this one under another metadata.name, with another place for its results, "
    "and remove this one when that has read the same records",
    ChangeVerdict.NOT: "run it under another metadata.name, with another place for its results",
}


_OTHER_QUERY = frozenset({CheckpointChange.NAME, CheckpointChange.RECORDS, CheckpointChange.START})


def verdict_of(change: CheckpointChange, *, objection: bool) -> ChangeVerdict:
    """Return the verdict on a changed field; ``objection``: the checkpoint does not allow the change."""
    if not objection:
        return ChangeVerdict.POSSIBLE
    return ChangeVerdict.NOT if change in _OTHER_QUERY else ChangeVerdict.IN_SHADOW


FREE, RECORDS, START = CheckpointChange.FREE, CheckpointChange.RECORDS, CheckpointChange.START


def effects(model: type[Model]) -> Iterator[tuple[str, OnChange]]:
    """Yield the fields of a model that declare an effect, by their paths in YAML."""
    return _declared(model, OnChange, "", inside=False)


def checkpoint_changes(model: type[Model]) -> Iterator[tuple[str, CheckpointChange]]:
    """Yield the fields of a model that say whether a checkpoint allows their change, also those within such fields.

    In paths, ``*`` is any key of a mapping.
    """
    return _declared(model, CheckpointChange, "", inside=True)


def _declared(
    model: type[Model], kind: type[_Declared], above: str, *, inside: bool
) -> Iterator[tuple[str, _Declared]]:
    for name, info in model.model_fields.items():
        path = f"{above}{info.serialization_alias or name}"
        own = next((each for each in info.metadata if isinstance(each, kind)), None)
        if own is not None:
            yield path, own
        if own is None or inside:
            for part, keys in _parts(info.annotation):
                yield from _declared(part, kind, f"{path}{keys}.", inside=inside)


def _parts(annotation: Any, keys: str = "") -> Iterator[tuple[type[Model], str]]:
    """Yield the models that a field of this type can hold, each with the path of its key; a list is one value."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation, keys
    kind = get_origin(annotation)
    for part in get_args(annotation) if kind is not tuple else ():
        yield from _parts(part, f"{keys}.*" if kind is dict else keys)
