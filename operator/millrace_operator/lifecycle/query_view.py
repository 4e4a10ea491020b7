"""Read access to a StreamQuery of the API server, for the commands and the page that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from millrace_api.model.status import Condition, ConditionStatus, ConditionType, LastScaling, Status
from millrace_api.model.streamquery import Annotation

PAUSES = {
    Annotation.PAUSED: "everything",
    Annotation.PAUSED_SCALE_IN: "scale-in",
    Annotation.PAUSED_SCALE_OUT: "scale-out",
}
"""Annotations that pause a query, each with what it pauses."""

_ABNORMAL = {
    ConditionType.PROGRESSING,
    ConditionType.SCALING_LIMITED,
    ConditionType.SCALING_INEFFECTIVE,
    ConditionType.DEGRADED,
}
"""Condition types that are false in a healthy query."""


@dataclass(frozen=True)
class QueryView:
    """A StreamQuery object as the API server returned it."""

    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the query."""
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Namespace of the query."""
        return str(self.body["metadata"]["namespace"])

    @property
    def created(self) -> str | None:
        """When the query was created, as a Kubernetes timestamp; None if that is unknown."""
        found = self.body["metadata"].get("creationTimestamp")
        return None if found is None else str(found)

    @property
    def generation(self) -> int:
        """Generation of the spec."""
        return int(self.body["metadata"]["generation"])

    @property
    def is_suspended(self) -> bool:
        """Whether the spec asks that the query does not run."""
        return bool(self.body["spec"].get("suspend"))

    @cached_property
    def status(self) -> Status:
        """Status reported by the operator, as far as this version can read it; empty if none was reported."""
        return Status.reported(self.body.get("status") or {})

    @property
    def is_readable(self) -> bool:
        """Whether the reported status could be parsed."""
        return not self.body.get("status") or self.status != Status()

    @property
    def pauses(self) -> list[str]:
        """Paused operations: ``everything``, ``scale-in``, ``scale-out``."""
        annotations = self.body["metadata"].get("annotations") or {}
        return [what for name, what in PAUSES.items() if name.is_set(annotations)]

    @property
    def pending(self) -> bool:
        """Whether the operator has not observed the current spec yet."""
        return self.status.observed_generation != self.generation

    @property
    def phase(self) -> str:
        """Phase of the query; ``unknown`` if none was reported."""
        return self.status.phase.value if self.status.phase is not None else "unknown"

    def condition(self, type: ConditionType) -> Condition | None:
        """Return a condition by its type; None if it was never reported."""
        return next((each for each in self.status.conditions if each.type is type), None)

    @property
    def abnormal_conditions(self) -> list[Condition]:
        """Conditions other than Ready that indicate a problem."""
        return [
            each
            for each in self.status.conditions
            if each.type is not ConditionType.READY
            and each.status is not (ConditionStatus.FALSE if each.type in _ABNORMAL else ConditionStatus.TRUE)
        ]


def change_of(scaling: LastScaling) -> str:
    """Return the change of plan of a scaling, each plan as executors/parallelism/replicas."""
    before, after = scaling.from_.shape, scaling.to.shape
    return f"{before} -> {after}" if before != after else f"{after} stays"
