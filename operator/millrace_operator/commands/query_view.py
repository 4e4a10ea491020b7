"""A query as the commands show it: what the API server says of it, under the names of the models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from millrace_api.model.annotations import PAUSED, PAUSED_SCALE_IN, PAUSED_SCALE_OUT, is_set
from millrace_api.model.status import Condition, ConditionStatus, ConditionType, LastScaling, Status
from millrace_api.model.streamquery import QueryState

PAUSES = {PAUSED: "everything", PAUSED_SCALE_IN: "scale-in", PAUSED_SCALE_OUT: "scale-out"}
"""Annotations by which a query is paused, and what each of them holds back."""

_ABNORMAL = {ConditionType.PROGRESSING, ConditionType.AT_CAPACITY, ConditionType.DEGRADED}
"""Conditions that do not hold when all is in order."""


@dataclass(frozen=True)
class QueryView:
    """One object of the API server."""

    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.body["metadata"]["namespace"])

    @property
    def generation(self) -> int:
        """Of the spec."""
        return int(self.body["metadata"]["generation"])

    @property
    def state(self) -> QueryState:
        """What the spec wants it to be."""
        return QueryState(self.body["spec"].get("state", QueryState.RUNNING))

    @cached_property
    def status(self) -> Status:
        """What the operator reported; empty where that is nothing, or nothing that this version understands."""
        try:
            return Status.model_validate(self.body.get("status") or {}, by_name=False)
        except ValidationError:
            return Status()

    @property
    def understood(self) -> bool:
        """Whether ``status`` is all that was reported."""
        return not self.body.get("status") or self.status != Status()

    @property
    def pauses(self) -> list[str]:
        """What is paused: ``everything``, ``scale-in``, ``scale-out``."""
        annotations = self.body["metadata"].get("annotations") or {}
        return [what for name, what in PAUSES.items() if is_set(annotations, name)]

    @property
    def pending(self) -> bool:
        """Whether the operator has yet to look at the spec as it is now."""
        return self.status.observed_generation != self.generation

    @property
    def phase(self) -> str:
        """Where it is in its life."""
        return self.status.phase.value if self.status.phase is not None else "unknown"

    def condition(self, type: ConditionType) -> Condition | None:
        """One condition; None where it was never reported."""
        return next((each for each in self.status.conditions if each.type is type), None)

    @property
    def not_in_order(self) -> list[Condition]:
        """Conditions besides Ready that are not what they should be."""
        return [
            each
            for each in self.status.conditions
            if each.type is not ConditionType.READY
            and each.status is not (ConditionStatus.FALSE if each.type in _ABNORMAL else ConditionStatus.TRUE)
        ]


def change_of(scaling: LastScaling) -> str:
    """From which plan to which, as executors/parallelism/replicas."""
    before, after = (f"{each.executors}/{each.parallelism}/{each.replicas}" for each in (scaling.from_, scaling.to))
    return f"{before} -> {after}" if before != after else f"{after} stays"
