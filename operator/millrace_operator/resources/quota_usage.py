"""What a pod counts for a ResourceQuota: the requests and limits of its containers, as Kubernetes adds them up. Pure.

https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from kubernetes.utils.quantity import parse_quantity

from .names import Manifest

Amounts = Mapping[str, Decimal]
"""Amounts of resources, by name."""

Kind = Literal["requests", "limits"]


@dataclass(frozen=True)
class QuotaUsage:
    """Requests and limits that a pod, or a container, counts for."""

    requests: Amounts
    limits: Amounts

    def counts(self, resource: str) -> Decimal:
        """Return what the pod counts for a resource of a quota, such as ``requests.cpu``, ``memory`` or ``pods``."""
        if resource in ("pods", "count/pods"):
            return Decimal(1)
        kind, dot, name = resource.partition(".")
        if dot and kind in ("requests", "limits"):
            return (self.requests if kind == "requests" else self.limits).get(name, Decimal(0))
        return self.requests.get(resource, Decimal(0))


def quota_usage(pod: Manifest, limit_ranges: Iterable[Manifest] = ()) -> QuotaUsage:
    """Return what a pod counts once LimitRanges have given it their defaults."""
    defaults, spec = defaults_of(limit_ranges), pod["spec"]
    usages = {container["name"]: container_usage(container, defaults) for container in containers(spec)}
    return QuotaUsage(
        _total(spec, "requests", lambda each: usages[each["name"]].requests),
        _total(spec, "limits", lambda each: usages[each["name"]].limits),
    )


def container_usage(container: Mapping[str, Any], defaults: QuotaUsage) -> QuotaUsage:
    """Return requests and limits of a container; a limit without a request is one, too."""
    resources = container.get("resources") or {}
    limits = amounts(resources.get("limits"))
    requests = limits | amounts(resources.get("requests"))
    return QuotaUsage({**defaults.requests, **requests}, {**defaults.limits, **limits})


def defaults_of(limit_ranges: Iterable[Manifest]) -> QuotaUsage:
    """Return what LimitRanges give to a container that does not name it; of several, the first counts."""
    requests: Amounts = {}
    limits: Amounts = {}
    for item in range_items(limit_ranges, "Container"):
        requests = {**amounts(item.get("defaultRequest")), **requests}
        limits = {**amounts(item.get("default")), **limits}
    return QuotaUsage(requests, limits)


def containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all containers of a pod, those that run before the others included."""
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def range_items(limit_ranges: Iterable[Manifest], type: str) -> Iterator[Mapping[str, Any]]:
    """Yield the items of LimitRanges that are about a type: ``Container`` or ``Pod``."""
    for each in limit_ranges:
        yield from (item for item in each["spec"].get("limits") or () if item["type"] == type)


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, Decimal]:
    """Parse quantities such as ``500m`` or ``2Gi``."""
    return {name: Decimal(parse_quantity(each)) for name, each in (quantities or {}).items()}  # type: ignore[no-untyped-call]


def _total(spec: Mapping[str, Any], kind: Kind, of: Callable[[Mapping[str, Any]], Amounts]) -> Amounts:
    """Return the larger of what runs side by side and of what an init container takes beside earlier sidecars."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for each in spec.get("initContainers") or ():
        running = _sum(sidecars, of(each))
        if each.get("restartPolicy") == "Always":
            sidecars = running
        peak = _largest(peak, running)
    together = _sum(sidecars, *(of(each) for each in spec.get("containers") or ()))
    total = dict(_largest(peak, together))
    total |= amounts((spec.get("resources") or {}).get(kind))  # of the pod as a whole, which overrides
    return _sum(total, amounts(spec.get("overhead")))


def _sum(*parts: Amounts) -> dict[str, Decimal]:
    result: defaultdict[str, Decimal] = defaultdict(Decimal)
    for part in parts:
        for name, amount in part.items():
            result[name] += amount
    return dict(result)


def _largest(first: Amounts, second: Amounts) -> Amounts:
    return {name: max(first.get(name, Decimal(0)), second.get(name, Decimal(0))) for name in {*first, *second}}
