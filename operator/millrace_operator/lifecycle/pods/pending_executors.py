"""Executors that the plan wants and that do not run, as their pods show it; pure functions.

Nothing else reports them: Spark asks for them forever, and a driver without executors only waits.
"""

from __future__ import annotations

from datetime import datetime

from millrace_api.model.status import ConditionType
from millrace_api.model.streamquery import EXECUTOR

from ...resources.names import Manifest
from ...resources.scheduling import queue_wait
from ..conditions import DegradedReason, condition_of
from ..observed_query import ObservedQuery
from .driver_health import UNSCHEDULABLE_AFTER, created, ready_since, started_at, waiting_for

_PENDING = (DegradedReason.EXECUTORS_PENDING, DegradedReason.EXECUTORS_QUEUED)
_CANNOT_RUN = (*_PENDING, DegradedReason.QUOTA_EXCEEDED, DegradedReason.POD_REFUSED)
"""Reasons of Degraded for which the plan has more executors than can run."""


def own_executors(observed: ObservedQuery) -> list[Manifest]:
    """Return the executors of the driver's pod; those of the pod before it may still be about to end."""
    driver = None if observed.driver is None else observed.driver["metadata"]["uid"]
    return [
        each
        for each in observed.live_executors
        if any(owner["uid"] == driver for owner in each["metadata"].get("ownerReferences", ()))
    ]


def running_executors(observed: ObservedQuery) -> int:
    """Return the number of executors whose pods are ready."""
    return sum(ready_since(each) is not None for each in own_executors(observed))


def pending_pods(observed: ObservedQuery) -> list[Manifest]:
    """Return the pods of executors that are not ready: first those that may start, oldest first, then those in queues.

    What is wrong with a pod that holds quota would not be seen behind one that waits for it.
    """
    pending = (each for each in own_executors(observed) if ready_since(each) is None)
    return sorted(pending, key=lambda each: (queue_wait(each) is not None, created(each)))


def missing_executors(observed: ObservedQuery) -> str:
    """Return how many executors run of those that the plan wants, and why another one does not; empty if all do."""
    wanted, running = 0 if observed.plan is None else observed.plan.executors, running_executors(observed)
    if running >= wanted:
        return ""
    if (refused := observed.refused_pods(EXECUTOR)) is not None:
        return refused.message
    text = f"{running} of {wanted} executors run"
    pending = pending_pods(observed)
    return f"{text}: {pending[0]['metadata']['name']}: {waiting_for(pending[0], EXECUTOR)}" if pending else text


def executors_pending(observed: ObservedQuery, now: datetime) -> tuple[DegradedReason, str] | None:
    """Return reason and message of Degraded where executors have been pending for long; None where none has.

    Spark replaces pods that are pending for long by new ones, so what was reported stays until enough executors run.
    """
    missing = missing_executors(observed)
    if not missing or observed.driver is None or started_at(observed.driver) is None:
        return None
    before = condition_of(observed.status, ConditionType.DEGRADED)
    reported = before is not None and before.reason in _PENDING
    if not reported and not any(each <= now for each in executors_pending_at(observed)):
        return None
    queued = executors_queue(observed)
    return DegradedReason.EXECUTORS_QUEUED if queued else DegradedReason.EXECUTORS_PENDING, missing


def executors_queue(observed: ObservedQuery) -> bool:
    """Return whether all executors that are pending wait in the queue of a batch scheduler."""
    pending = pending_pods(observed)
    return bool(pending) and queue_wait(pending[0]) is not None


def available_executors(observed: ObservedQuery) -> int | None:
    """Return how many executors run where the plan wants more than can; None where all can, as far as is known.

    It counts once it is reported, since after an eviction another executor is on its way. A disruption budget of more
    executors than there can be would never let a node be drained.
    """
    degraded = condition_of(observed.status, ConditionType.DEGRADED)
    return running_executors(observed) if degraded is not None and degraded.reason in _CANNOT_RUN else None


def executors_pending_at(observed: ObservedQuery) -> list[datetime]:
    """Return when executors that are pending now begin to count."""
    return [created(each) + UNSCHEDULABLE_AFTER for each in pending_pods(observed)]
