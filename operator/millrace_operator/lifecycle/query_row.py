"""What the metrics of a query show, read from the cache; plain documents, since a scrape reads a thousand queries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millrace_api.model.deployment import Scaling
from millrace_api.model.status import Phase
from millrace_api.model.streamquery import EXECUTOR, ROLE_LABEL

from ..resources.names import Manifest
from ..telemetry.query_metrics import QueryRow
from .canary import is_canary
from .observations import Observations
from .observe import ObservedQuery, QueryKey

_ENDED = ("Failed", "Succeeded")
_MODE = str(Scaling.model_fields["mode"].default)


class QueryRows:
    """Rows of all queries but the canaries, each computed again only when the query or an object of it has changed."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._rows: dict[QueryKey, tuple[object, QueryRow]] = {}

    def __call__(self) -> list[QueryRow]:
        """Return the rows."""
        before, self._rows = self._rows, {}
        for key, version in self._observations.versions():
            if key in before and before[key][0] == version:
                self._rows[key] = before[key]
            elif (observed := self._observations.of(key)) is not None and not is_canary(observed.body):
                self._rows[key] = version, row_of(observed)
        return [row for _, row in self._rows.values()]


def row_of(observed: ObservedQuery) -> QueryRow:
    """Return the row of one query."""
    body, owner = observed.body, observed.owner
    status: dict[str, Any] = body.get("status") or {}
    plan: dict[str, Any] = status.get("plan") or {}
    dimensions = (("executors", "executors"), ("workers", "parallelism"), ("replicas", "replicas"))
    return QueryRow(
        key=(owner.namespace, owner.name),
        phase=status.get("phase") or str(Phase.PENDING),
        algorithm=plan.get("algorithm", ""),
        mode=((body.get("spec") or {}).get("scaling") or {}).get("mode", _MODE),
        placement=plan.get("placement", ""),
        conditions=tuple((each["type"], each["status"], each["reason"]) for each in status.get("conditions", ())),
        executors={
            "wanted": plan.get("executors", 0) if observed.wants_pods else 0,
            **_executors(observed.objects[key] for key in observed.objects if key[0] == "Pod"),
        },
        plan={name: plan[field] for name, field in dimensions if field in plan},
    )


def _executors(pods: Iterable[Manifest]) -> dict[str, int]:
    """Return how many executor pods are ready, and how many exist and are not; ended and deleted ones do not count."""
    found = {"ready": 0, "pending": 0}
    for each in pods:
        if each["metadata"]["labels"].get(ROLE_LABEL) != EXECUTOR:
            continue
        status = each.get("status") or {}
        if "deletionTimestamp" not in each["metadata"] and status.get("phase") not in _ENDED:
            found["ready" if _is_ready(status) else "pending"] += 1
    return found


def _is_ready(status: Manifest) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
