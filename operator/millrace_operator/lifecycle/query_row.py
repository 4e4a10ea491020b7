"""What the metrics of a query show, read from the cache; plain documents, since a scrape reads a thousand queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from millrace_api.model.deployment import Scaling
from millrace_api.model.status import Phase
from millrace_api.model.streamquery import EXECUTOR, ROLE_LABEL

from ..resources.names import Manifest
from ..resources.quota_usage import quota_usage
from ..telemetry.contract import ROLES
from ..telemetry.query_metrics import QueryCounts, QueryRow
from .canary import is_canary
from .observation_cache import ObservationCache
from .observed_query import ObservedQuery

_ENDED = ("Failed", "Succeeded")
_MODE = str(Scaling.model_fields["mode"].default)


def query_rows(observations: ObservationCache) -> Iterator[QueryRow]:
    """Yield the rows of all queries but the canaries, each computed again only when it or an object of it changed."""
    for key, version, memory in observations.versions():
        if memory.row is None or memory.row[0] != version:
            observed = observations.of(key)
            if observed is None or is_canary(observed.body):
                continue
            memory.row = version, _row_of(observed, memory.counts)
        yield memory.row[1]


def _row_of(observed: ObservedQuery, counts: QueryCounts) -> QueryRow:
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
        cores=_cores(observed.objects[key] for key in observed.objects if key[0] == "Pod"),
        counts=counts,
    )


def _cores(pods: Iterable[Manifest]) -> dict[str, float]:
    """Return the cores that pods request which have not ended, by role."""
    found = defaultdict[str, float](float)
    for each in pods:
        if "spec" in each and (each.get("status") or {}).get("phase") not in _ENDED:
            found[each["metadata"]["labels"].get(ROLE_LABEL)] += float(quota_usage(each).counts("cpu"))
    return {role: cores for role, cores in found.items() if role in ROLES}


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
