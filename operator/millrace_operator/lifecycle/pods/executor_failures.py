"""Executors that fail again and again, which neither Spark nor a driver's health shows.

Spark deletes the pod of an executor that failed and asks for another, forever, so what a pod showed is kept here for
as long as it counts. An operator that has just started knows of none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from millrace_api.model.status import Attempt, FailureClass
from millrace_api.model.streamquery import DRIVER, EXECUTOR, ROLE_LABEL

from ...resources.names import Manifest
from ...telemetry.contract import EXECUTOR_FAILED
from ..conditions import DegradedReason, parse_time
from .driver_health import created, exceeded_limit, failed_runs, states

WINDOW = timedelta(minutes=10)
"""Time for which a failure counts."""

TOLERATED = 2
"""Failures within the window that are not reported: a node may end, or run short of memory."""

SETTLED_AFTER = timedelta(seconds=5)
"""Time from a failure until it counts: executors end by themselves when their driver does, which may be seen later."""

MOST_KEPT = 100
"""Number of failures of a query that are kept."""


class FailedExecutor(NamedTuple):
    """An executor that failed: the uids of its pod and of its driver's, when it was created, and how it ended.

    ``over_limit`` is whether its container exceeded its memory limit.
    """

    uid: str
    driver: str
    created: datetime
    attempt: Attempt
    over_limit: bool = False

    @classmethod
    def of(cls, pod: Manifest) -> FailedExecutor | None:
        """Return the failure that a pod shows; None if it is no executor, runs, ended well or is being deleted.

        Spark deletes the pod as soon as its container has ended, which may be before its phase is Failed.
        """
        metadata = pod["metadata"]
        if pod["kind"] != "Pod" or metadata["labels"].get(ROLE_LABEL) != EXECUTOR or "deletionTimestamp" in metadata:
            return None
        if not (runs := failed_runs(pod, EXECUTOR)):
            return None
        attempt = runs[-1]
        if attempt.reason == FailureClass.OTHER:
            attempt = attempt.model_copy(update={"reason": EXECUTOR_FAILED})
        driver = next((each["uid"] for each in metadata.get("ownerReferences", ()) if each["kind"] == "Pod"), "")
        return cls(metadata["uid"], driver, created(pod), attempt, exceeded_limit(pod, attempt.run, EXECUTOR))


def recent_failures(failed: Iterable[FailedExecutor], driver: Manifest | None, now: datetime) -> list[FailedExecutor]:
    """Return the failures within the window of executors that the driver's current run has asked for."""
    return [each for each in _of_run(failed, driver) if _settled(each) <= now < parse_time(each.attempt.time) + WINDOW]


def executor_trouble(
    failed: Iterable[FailedExecutor], driver: Manifest | None, now: datetime
) -> tuple[DegradedReason, str] | None:
    """Return reason and message of Degraded where executors fail again and again; None where they do not."""
    found = recent_failures(failed, driver, now)
    if len(found) <= TOLERATED:
        return None
    message = f"executors fail again and again, the last one with: {found[-1].attempt.message}"
    return DegradedReason.EXECUTORS_FAILING, message


def executor_trouble_at(failed: Iterable[FailedExecutor], driver: Manifest | None) -> list[datetime]:
    """Return when executors' failures begin and cease to count."""
    found = list(_of_run(failed, driver))
    return [*map(_settled, found), *(parse_time(each.attempt.time) + WINDOW for each in found)]


def _of_run(failed: Iterable[FailedExecutor], driver: Manifest | None) -> Iterator[FailedExecutor]:
    """Yield the failures of executors that belong to the driver's current run; none without one."""
    if driver is None:
        return
    running = (each.get("state", {}).get("running") for each in states(driver, DRIVER))
    started = next((parse_time(each["startedAt"]) for each in running if each), None)
    if started is not None:
        uid = driver["metadata"]["uid"]
        yield from (each for each in failed if each.driver == uid and each.created >= started)


def _settled(failed: FailedExecutor) -> datetime:
    return parse_time(failed.attempt.time) + SETTLED_AFTER
