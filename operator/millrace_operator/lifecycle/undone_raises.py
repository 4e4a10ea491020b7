"""Memory that was raised ahead, and for which there is no room: what was in force before is so again. Pure functions.

Either no node has room, or a ResourceQuota of the namespace.

A query that was healthy must not be without pods because it might have run out of memory. Memory that did run out is
another matter: with less of it, the pods would fail again.

A raise can be undone until an executor of the raised pods has had a node: the executors come last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from millrace_api.model.status import FailureClass, MemoryStatus, RaisedMemory
from millrace_api.model.streamquery import DRIVER, EXECUTOR

from ..resources.names import Manifest
from .conditions import format_time, parse_time
from .observed_query import ObservedQuery, RefusedPods
from .pods.driver_health import blocked, ready_since, started_at
from .pods.out_of_memory import has_memory
from .pods.pending_executors import own_executors, pending_pods

UNPLACED_AFTER = timedelta(minutes=10)
"""Time that pods wait for room before a raise is undone: a node from an autoscaler takes some minutes."""

_AWAY = ("unreachable", "not-ready", "unschedulable")
"""Words of the scheduler on nodes that are away for a while, and may have room when they are back."""


def undone_at(memory: MemoryStatus) -> datetime | None:
    """Return when a raise is undone if there is no room for its pods until then; None if none will be."""
    since = [each.waiting_since for each in memory.by_part.values() if each.waiting_since is not None]
    return min((parse_time(each) + UNPLACED_AFTER for each in since), default=None)


def with_waiting(observed: ObservedQuery, memory: MemoryStatus, now: datetime) -> MemoryStatus:
    """Return the memory with what is known now of the pods that were raised ahead: whether they wait, or have a node.

    ``memory`` is that in force.
    """
    raised = {part: each for part, each in memory.by_part.items() if each.before is not None}
    if not raised or not has_memory(observed, memory):
        return memory
    if any(_has_node(each) for each in own_executors(observed)):
        return memory.model_copy(update={part: _settled(each) for part, each in raised.items()})
    parts, lack = _waiting(observed, now)
    waits = None if lack is False else next((part for part in parts if part in raised), None)
    changed = {}
    for part, each in raised.items():
        since = each.waiting_since or (format_time(now) if lack else None)
        changed[part] = each.model_copy(update={"waiting_since": since if part == waits else None})
    return memory.model_copy(update=changed)


def with_undone_raise(memory: MemoryStatus, now: datetime) -> MemoryStatus | None:
    """Return the memory in force once a raise is undone; None if none is."""
    at = undone_at(memory)
    if at is None or now < at:
        return None
    waits = {part: each for part, each in memory.by_part.items() if each.waiting_since is not None}
    return memory.model_copy(update={part: _undone(part, each, now) for part, each in waits.items()})


def _has_node(pod: Manifest) -> bool:
    return bool(pod.get("spec", {}).get("nodeName")) or ready_since(pod) is not None


def _waiting(observed: ObservedQuery, now: datetime) -> tuple[Sequence[str], bool | None]:
    """Return the parts whose raise may keep pods waiting, and whether they lack memory; None if it is not known yet.

    It is not known of new pods. Spark replaces executors that are pending for long by others.
    """
    driver = observed.driver
    if driver is None:
        return ("driver",), _exceeds_quota(observed.refused_pods(DRIVER))
    if "deletionTimestamp" in driver["metadata"]:
        return (), False
    if started_at(driver) is None:
        return ("driver",), not driver.get("spec", {}).get("nodeName") and _lacks_memory(driver, DRIVER, now)
    return ("executors", "driver"), _executors_lack_memory(observed, now)


def _executors_lack_memory(observed: ObservedQuery, now: datetime) -> bool | None:
    """Return whether executors wait because they lack memory; None if not known yet."""
    pods = pending_pods(observed)
    if pods:
        return _lacks_memory(pods[0], EXECUTOR, now)
    if _exceeds_quota(observed.refused_pods(EXECUTOR)):
        return True
    return None if observed.plan is not None and observed.plan.executors > 0 else False


def _exceeds_quota(refused: RefusedPods | None) -> bool:
    """Return whether pods are refused because a quota has too little memory left, and enough of all else.

    Of what was requested, the API server names only what exceeds the quota.
    """
    requested = None if refused is None else re.search(r"exceeded quota: .*?requested: (\S+?),? ", refused.message)
    return requested is not None and all(each.partition("=")[0].endswith("memory") for each in requested[1].split(","))


def _lacks_memory(pod: Manifest, role: str, now: datetime) -> bool | None:
    """Return whether the scheduler finds no node for a pod, and it is memory that they lack; None if not known yet."""
    found = blocked(pod, now, role)
    if found is None:
        return None
    if found[0] is not FailureClass.SCHEDULING:
        return False
    said = found[1].partition("preemption:")[0]
    nodes, reasons = re.search(r"0/(\d+) nodes", said), re.findall(r"(\d+) ([^,.]+)", said.rpartition("available:")[2])
    others = [count for count, why in reasons if why != "Insufficient memory"]
    has_others = nodes is not None and nodes[1] in others  # with less memory, no node would take it either
    return len(others) < len(reasons) and not has_others and not any(each in said for each in _AWAY)


def _settled(raised: RaisedMemory) -> RaisedMemory:
    return raised.model_copy(update={"before": None, "waiting_since": None})


def _undone(part: str, raised: RaisedMemory, now: datetime) -> RaisedMemory:
    """Return the memory of a part before it was raised."""
    assert raised.before is not None
    minutes, had = UNPLACED_AFTER // timedelta(minutes=1), raised.before
    message = (
        f"with {raised.memory} for the {part}, there was no room within {minutes} minutes; memory of the {part} is "
        f"{had.memory} again"
    )
    changes = {"memory": had.memory, "heap": had.heap, "no_room_for": raised.memory, "message": message}
    return _settled(raised).model_copy(update=changes | {"time": format_time(now)})
