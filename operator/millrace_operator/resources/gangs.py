"""The gang of a query: the driver and the minimum of executors, at least one: they are of no use without each other.

The driver creates its executors, so they cannot be counted before it runs: a group of pods that all have to exist would
wait forever. Room for the gang is reserved before the driver starts, where the scheduler can do that: Volcano by the
resources of a PodGroup of which one pod is enough, YuniKorn by placeholders. Further executors come one by one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.scheduling import BatchScheduler
from millrace_api.model.streamquery import DRIVER, EXECUTOR, StreamQuery

from .driver_config import source_secrets
from .names import Manifest, Owner
from .pod_defaults import PodDefaults
from .pods import made_executor, partitioner_pod
from .quota_usage import quota_usage
from .scheduling import VOLCANO_GROUP

POD_GROUP = "PodGroup"
"""Kind of Volcano's object for pods that are scheduled together."""

POD_GROUP_API = "scheduling.volcano.sh/v1beta1"

_TASK_GROUPS = "yunikorn.apache.org/task-groups"
"""Annotation of an application's first pod, the driver: number and size of the placeholders, by group."""

_PLACING = ("nodeSelector", "tolerations", "affinity")
"""Fields of a pod that its placeholder has to have, so that it holds a node that the pod may run on."""


def with_gang(driver: Manifest, query: StreamQuery, owner: Owner, defaults: PodDefaults) -> Manifest:
    """Return the driver's pod template with its gang, where the scheduler reads that from the driver."""
    scheduling = query.spec.scheduling
    if scheduling is None or scheduling.scheduler is not BatchScheduler.YUNIKORN:
        return driver
    executor = made_executor(query, owner, defaults)
    groups = [_task_group(DRIVER, 1, driver), _task_group(EXECUTOR, _executors(query), executor)]
    metadata = driver["metadata"]
    text = json.dumps(groups, separators=(",", ":"))
    return driver | {"metadata": metadata | {"annotations": {**metadata["annotations"], _TASK_GROUPS: text}}}


def pod_groups(
    driver: Manifest, query: StreamQuery, owner: Owner, defaults: PodDefaults, *, running: bool
) -> list[Manifest]:
    """Return Volcano's PodGroup of a query, if that is its scheduler; it reserves nothing for a query that is stopped.

    One pod is enough to begin with. What else the gang takes is in ``minResources``, for which the queue has to have
    room before the driver is scheduled.
    """
    scheduling = query.spec.scheduling
    if scheduling is None or scheduling.scheduler is not BatchScheduler.VOLCANO:
        return []
    total: defaultdict[str, Decimal] = defaultdict(Decimal)
    for pod, number in _gang(driver, query, owner, defaults):
        for name, amount in quota_usage(pod).requests.items():
            total[name] += amount * number * running
    spec = {  # all fields, as one that is left out later is not seen to be missing
        "minMember": 1,
        "queue": scheduling.queue,
        "priorityClassName": scheduling.priority_class or "",
        "minResources": _quantities(total),
    }
    return [owner.manifest(POD_GROUP_API, POD_GROUP, owner.name, {"spec": spec})]


def is_in_group(template: Manifest, owner: Owner) -> bool:
    """Return whether the pods of a template are in the PodGroup that has the name of their query."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get(VOLCANO_GROUP) == owner.name)


def _gang(driver: Manifest, query: StreamQuery, owner: Owner, defaults: PodDefaults) -> list[tuple[Manifest, int]]:
    gang = [(driver, 1), (made_executor(query, owner, defaults), _executors(query))]
    if query.spec.partitioner.placement is PlacementSetting.DEDICATED:
        replica = partitioner_pod(query, owner, defaults, source_secrets(query))
        gang.append((replica, query.spec.partitioner.replicas.min))
    return gang


def _executors(query: StreamQuery) -> int:
    """Return how many executors the first batch needs."""
    least: int = query.spec.executors.min
    return max(least, 1)


def _task_group(role: str, members: int, pod: Manifest) -> dict[str, Any]:
    placing = {field: pod["spec"][field] for field in _PLACING if pod["spec"].get(field)}
    resources = _quantities(quota_usage(pod).requests)
    return {"name": role, "minMember": members, "minResource": resources, **placing}


def _quantities(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    """Return amounts as Kubernetes writes them, always in the same order, since an annotation is compared as a text."""
    return {name: _quantity(name, amount) for name, amount in sorted(amounts.items())}


def _quantity(resource: str, amount: Decimal) -> str:
    """Return an amount as Kubernetes writes it: bytes as mebibytes, shares of a core as thousandths."""
    if resource == "memory" and amount % (1 << 20) == 0:
        return f"{int(amount) >> 20}Mi"
    return str(int(amount)) if amount == int(amount) else f"{int(amount * 1000)}m"
