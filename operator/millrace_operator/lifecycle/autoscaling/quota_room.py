"""Room for more pods in a namespace, by its ResourceQuotas and LimitRanges; pure functions.

https://kubernetes.io/docs/concepts/policy/resource-quotas/ and https://kubernetes.io/docs/concepts/policy/limit-range/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from ...resources.names import Manifest
from ...resources.quota_usage import (
    QuotaUsage,
    amounts,
    container_usage,
    containers,
    defaults_of,
    quota_usage,
    range_items,
)

_REQUIRED = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""Resources that each container must name in a namespace with a quota for them."""

_MEBI = Decimal(1 << 20)


class Room(NamedTuple):
    """Number of further ``pods`` that a namespace has room for, and ``why`` there is no room for more."""

    pods: int
    why: str


def room_for(pod: Manifest, limits: Iterable[Manifest]) -> Room | None:
    """Return how many further pods like this one a namespace takes; None for no limit.

    Args:
        pod: the pod, or its template.
        limits: ResourceQuotas and LimitRanges of the namespace. A quota that Kubernetes has not counted yet, or whose
            scopes are not known here, does not limit.
    """
    found = list(limits)
    ranges = [each for each in found if each["kind"] == "LimitRange"]
    quotas = [each for each in found if each["kind"] == "ResourceQuota"]
    usage, defaults = quota_usage(pod, ranges), defaults_of(ranges)
    usages = [(str(each["name"]), container_usage(each, defaults)) for each in containers(pod["spec"])]
    if (why := next(_out_of_range(usages, usage, ranges), None)) is not None:
        return Room(0, why)
    counted = [quota for quota in quotas if all(_in_scope(pod, usage, *scope) for scope in _scopes(quota))]
    without = {
        resource: next((name for name, each in usages if not each.counts(resource)), None)
        for resource in (_REQUIRED if counted else ())
    }
    rooms = (room for quota in counted for room in _rooms_in(quota, usage, without))
    return min(rooms, key=lambda room: room.pods, default=None)


def _rooms_in(quota: Manifest, usage: QuotaUsage, without: Mapping[str, str | None]) -> Iterator[Room]:
    """Yield the room in each resource that a quota counts."""
    name, status = quota["metadata"]["name"], quota.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    amounts_used = amounts(used)
    for resource, most in amounts(hard).items():
        if without.get(resource) is not None:
            hint = "set it in the pod's template, or give the namespace a LimitRange with a default"
            yield Room(
                0, f"container {without[resource]} has no {resource}, which ResourceQuota {name} counts ({hint})"
            )
        elif (each := usage.counts(resource)) > 0 and resource in used:
            free = max(most - amounts_used[resource], Decimal(0))
            counted = f"{used[resource]} of {hard[resource]} {resource} in ResourceQuota {name}"
            hint = "raise the quota, or use fewer or smaller pods"
            yield Room(int(free // each), f"{counted} are used, and a pod takes {quantity(resource, each)} ({hint})")


def _out_of_range(usages: list[tuple[str, QuotaUsage]], usage: QuotaUsage, ranges: list[Manifest]) -> Iterator[str]:
    """Yield what LimitRanges refuse of a pod."""
    for each in ranges:
        name = each["metadata"]["name"]
        for item in range_items([each], "Container"):
            for container, used in usages:
                yield from _outside(f"container {container}", used, item, name)
        for item in range_items([each], "Pod"):
            yield from _outside("a pod", usage, item, name)


def _outside(what: str, usage: QuotaUsage, item: Mapping[str, Any], name: str) -> Iterator[str]:
    for resource, most in amounts(item.get("max")).items():
        has = usage.limits.get(resource)
        if has is None:
            yield f"{what} has no {resource} limit, and LimitRange {name} demands one"
        elif has > most:
            allowed = f"LimitRange {name} allows {item['max'][resource]} at most"
            yield f"{what} takes {quantity(resource, has)} of {resource}, and {allowed}"
    for resource, least in amounts(item.get("min")).items():
        has = usage.requests.get(resource)
        if has is None or has < least:
            takes = "requests no" if has is None else f"requests {quantity(resource, has)} of"
            yield f"{what} {takes} {resource}, and LimitRange {name} demands {item['min'][resource]} at least"


def _scopes(quota: Manifest) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, operator and values of all scopes of a quota; it counts a pod that is in all of them."""
    spec = quota.get("spec") or {}
    for name in spec.get("scopes") or ():
        yield name, "Exists", []
    for each in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        yield each["scopeName"], each["operator"], each.get("values") or []


def _in_scope(pod: Manifest, usage: QuotaUsage, name: str, operator: str, values: list[str]) -> bool:
    """Return whether a pod is in a scope; not in one that is unknown here."""
    if name == "PriorityClass":
        return _matches(pod["spec"].get("priorityClassName"), operator, values)
    holds = _SCOPES.get(name)
    return holds is not None and operator == "Exists" and holds(pod["spec"], usage)


def _matches(priority: str | None, operator: str, values: list[str]) -> bool:
    match operator:
        case "In":
            return priority in values
        case "NotIn":
            return priority not in values
        case "Exists":
            return bool(priority)
        case _:
            return operator == "DoesNotExist" and not priority


def _is_best_effort(spec: Mapping[str, Any], usage: QuotaUsage) -> bool:
    return not any(part.get(name) for part in (usage.requests, usage.limits) for name in ("cpu", "memory"))


def _reaches_other_namespaces(spec: Mapping[str, Any], usage: QuotaUsage) -> bool:
    """Return whether the pod has affinities to pods of other namespaces."""
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [each["podAffinityTerm"] for each in preferred]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


_SCOPES: Mapping[str, Callable[[Mapping[str, Any], QuotaUsage], bool]] = {
    "Terminating": lambda spec, _: spec.get("activeDeadlineSeconds") is not None,
    "NotTerminating": lambda spec, _: spec.get("activeDeadlineSeconds") is None,
    "BestEffort": _is_best_effort,
    "NotBestEffort": lambda spec, usage: not _is_best_effort(spec, usage),
    "CrossNamespacePodAffinity": _reaches_other_namespaces,
}
"""Whether a pod is in a scope, by the scope's name, but for PriorityClass."""


def quantity(resource: str, amount: Decimal) -> str:
    """Format an amount: memory and storage in Mi or Gi, others as plain numbers."""
    if resource.endswith(("memory", "storage")) and amount % _MEBI == 0:
        mebi = int(amount / _MEBI)
        return f"{mebi // 1024}Gi" if mebi % 1024 == 0 else f"{mebi}Mi"
    return f"{amount.normalize():f}"
