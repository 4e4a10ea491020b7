"""Cores and memory of a query's pods: whole ones with what templates add, and all together at their largest number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from kubernetes.utils.quantity import parse_quantity

from millrace_api.errors import MillraceError, Problem, quote
from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.streamquery import EXECUTOR, StreamQuery

from .memory import at_most, executor_memory
from .names import Manifest, Owner
from .pod_defaults import PodDefaults
from .pods import driver_pod, executor_pod, partitioner_pod

_DEFAULTS = PodDefaults("")
"""Neither the image nor another default of the operator changes a size."""

_MOST = Decimal(1 << 63)
"""Kubernetes caps quantities below this number."""

UNLIMITED = Decimal("Infinity")
"""Memory of a pod with a container that has no limit."""


@dataclass(frozen=True)
class PodFootprint:
    """Cores that pods request or are limited to, the larger of the two, and the bytes of memory that they may take."""

    cores: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)

    def __add__(self, other: PodFootprint) -> PodFootprint:
        return PodFootprint(self.cores + other.cores, self.memory + other.memory)

    def at_least(self, other: PodFootprint) -> PodFootprint:
        """Return the larger of both in each dimension."""
        return PodFootprint(max(self.cores, other.cores), max(self.memory, other.memory))


class Pods(NamedTuple):
    """Pods of one kind: the field that they are from, the size of one, and the largest number of them."""

    field: str
    size: PodFootprint
    most: int


def total(pods: Iterable[Pods]) -> PodFootprint:
    """Return the size of all pods together."""
    sizes = (PodFootprint(each.size.cores * each.most, each.size.memory * each.most) for each in pods)
    return sum(sizes, PodFootprint())


def pods_of(query: StreamQuery) -> list[Pods]:
    """Return the pods of a query with the most memory that they may have.

    Partitioners count where the placement may be Dedicated.

    Raises:
        MillraceError: a pod template has a quantity that is not one.
    """
    query = at_most(query)
    spec, owner = query.spec, Owner(query.metadata.namespace or "", query.name, "")
    pods = [
        Pods("spec.driver", _footprint("spec.driver", driver_pod(query, owner, _DEFAULTS, {})["spec"]), 1),
        Pods("spec.executors", _footprint("spec.executors", _as_spark_makes_it(query, owner)), spec.executors.max),
    ]
    if spec.partitioner.placement is not PlacementSetting.INLINE:
        size = _footprint("spec.partitioner.pod", partitioner_pod(query, owner, _DEFAULTS, {})["spec"])
        pods.append(Pods("spec.partitioner.pod", size, spec.partitioner.replicas.max))
    return pods


def _as_spark_makes_it(query: StreamQuery, owner: Owner) -> Manifest:
    """Return the pod of an executor with the resources that Spark writes over those in the template."""
    executors = query.spec.executors
    pod: Manifest = executor_pod(query, owner, _DEFAULTS, {})["spec"]
    memory = f"{executor_memory(query.spec).limit}Mi"
    containers = [
        each | {"resources": _with_own(each.get("resources") or {}, executors.cores.quantity, memory)}
        if each.get("name") == EXECUTOR
        else each
        for each in pod["containers"]
    ]
    return pod | {"containers": containers}


def _with_own(resources: Mapping[str, Any], cores: str, memory: str) -> Manifest:
    requested, limited = (resources.get(part) or {} for part in ("requests", "limits"))
    requests = {**requested, "cpu": requested.get("cpu", cores), "memory": memory}
    return {"requests": requests, "limits": {**limited, "memory": memory}}


def _footprint(field: str, pod: Manifest) -> PodFootprint:
    """Return the size that the scheduler counts: of all containers that run side by side, or of the largest init one.

    A container without a limit of memory may take all of its node, unless the pod has one as a whole.
    """
    running = PodFootprint()
    first = PodFootprint()
    for each in pod.get("initContainers") or ():
        if each.get("restartPolicy") == "Always":  # a sidecar, which stays
            running += _requested(field, each)
        else:
            first = first.at_least(running + _requested(field, each))
    running = sum((_requested(field, each) for each in pod["containers"]), running).at_least(first)
    whole = _requested(field, pod)
    memory = min(running.memory, whole.memory)
    return PodFootprint(max(running.cores, whole.cores), memory)


def _requested(field: str, holder: Mapping[str, Any]) -> PodFootprint:
    """Return what a container, or a pod as a whole, asks for."""
    resources = holder.get("resources") or {}
    requested, limited = (resources.get(part) or {} for part in ("requests", "limits"))
    cores = max(_amount(field, each.get("cpu") or 0) for each in (requested, limited))
    return PodFootprint(cores, _amount(field, limited["memory"]) if limited.get("memory") is not None else UNLIMITED)


def _amount(field: str, quantity: object) -> Decimal:
    try:
        amount = Decimal(parse_quantity(quantity))  # type: ignore[no-untyped-call]
    except (ValueError, ArithmeticError):
        amount = _MOST
    if not amount.is_finite() or not 0 <= amount < _MOST:
        message, hint = f"{quote(quantity)} is not a quantity", "write one such as 500m or 2Gi"
        raise MillraceError(Problem(message, hint, field=f"{field}.podTemplate"))
    return amount
