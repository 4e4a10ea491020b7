"""Runs of a driver: how many failed in a row, when the next one may start, and whether its pod is missing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from millrace_api.model.status import Attempt, ConditionStatus, ConditionType, FailureClass

from ...resources.names import Manifest
from ..conditions import ReadyReason, condition_of, format_time, parse_time
from ..observed_query import ObservedQuery
from .driver_health import failed_runs, healthy_from, restart_policy_of, retry_at

POD_MISSING = "the driver's pod is missing: see the events of its StatefulSet"

DRIVER_LOST = "the driver's pod was deleted, or lost with its node, and another one goes on from the checkpoint"


@dataclass(frozen=True)
class FailedRuns:
    """Most recent failed runs as of ``now``, and the number of failures in a row under the current revision.

    ``upstream_since`` is when the queries before this one became ready; of missing input, only later failures count.
    """

    now: datetime
    attempts: tuple[Attempt, ...] = ()
    failures: int = 0
    upstream_since: datetime | None = None

    @property
    def last(self) -> Attempt | None:
        """Last failure; None if the driver has been healthy since."""
        return self.attempts[-1] if self.failures and self.attempts else None

    @property
    def of_last_class(self) -> int:
        """Number of failures in a row with the class of the last one; only these count towards its limit."""
        same = takewhile(lambda each: each.reason == self.attempts[-1].reason, reversed(self.attempts))
        return min(sum(1 for _ in same), self.failures)

    @property
    def given_up(self) -> bool:
        """Whether the driver has been given up."""
        return self.last is not None and restart_policy_of(self.last).gives_up(self.of_last_class)

    @property
    def due(self) -> datetime | None:
        """When the operator may start the next run; None if Kubernetes does, or if the driver is given up."""
        if self.last is None or self.given_up:
            return None
        since = self.upstream_since
        if since is None or self.last.reason != FailureClass.SOURCE_MISSING:
            return retry_at(self.last, self.failures)
        failures = sum(parse_time(each.time) >= since for each in self.attempts)
        return retry_at(self.last, min(failures, self.failures)) or since

    @property
    def retry_time(self) -> datetime | None:
        """When the next run may start; None if it may start now or Kubernetes restarts the driver."""
        due = self.due
        return due if due is not None and due > self.now else None


def own_pod(observed: ObservedQuery, wanted: str) -> Manifest | None:
    """Return the driver's pod if it was created from this revision."""
    return observed.driver if observed.revision == wanted else None


def failed_runs_of(observed: ObservedQuery, wanted: str, now: datetime) -> FailedRuns:
    """Return the failed runs counted so far plus those that the pod newly shows."""
    before, pod = observed.status, own_pod(observed, wanted)
    failures = before.failures if before.revision == wanted else 0
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return FailedRuns(now, before.attempts, failures, observed.upstream.ready_since)
    known = {each.run for each in before.attempts}
    new = [_not_later(each, now) for each in failed_runs(pod) if each.run not in known]
    healthy = healthy_from(pod)
    failures = 0 if healthy is not None and healthy <= now else failures + len(new)
    return FailedRuns(now, (*before.attempts, *new)[-10:], failures, observed.upstream.ready_since)


def pod_missing_since(observed: ObservedQuery, wanted: str, failed: FailedRuns) -> datetime | None:
    """Return since when the driver's pod of this revision has been missing; None if it exists or is not expected."""
    status = observed.status
    if status.revision != wanted:  # the revision has just been applied
        return None
    if observed.driver is not None or failed.retry_time is not None or failed.given_up:
        return None
    progress = condition_of(status, ConditionType.PROGRESSING)
    if progress is None or progress.status is not ConditionStatus.TRUE:
        return None
    changed = None if status.revision_time is None else parse_time(status.revision_time)
    raises = [] if status.memory is None else [parse_time(each.time) for each in status.memory.by_part.values()]
    times = (parse_time(progress.last_transition_time), changed, failed.due, *raises)
    return max(each for each in times if each is not None)


def is_lost(observed: ObservedQuery) -> bool:
    """Return whether the driver's pod went away while it ran, not by the operator, and its successor does not run yet.

    The status has no trace of a pod that is gone but the reason of Ready, so that goes on until another one applies.
    A successor that is found in its place is known by its start: that of a pod never changes, and a new pod has none.
    """
    ready = condition_of(observed.status, ConditionType.READY)
    if ready is None or ready.reason not in (ReadyReason.RUNNING, ReadyReason.FIRST_BATCH, ReadyReason.DRIVER_LOST):
        return False
    pod, before = observed.driver_as_created, observed.status.driver
    if ready.reason == ReadyReason.DRIVER_LOST or pod is None or "deletionTimestamp" in pod["metadata"]:
        return True
    began = None if before is None else before.start_time
    return began is not None and pod.get("status", {}).get("startTime") != began


def _not_later(attempt: Attempt, now: datetime) -> Attempt:
    """Cap the attempt's time at ``now``: a node's clock may be ahead, which would delay the retry."""
    return attempt if parse_time(attempt.time) <= now else attempt.model_copy(update={"time": format_time(now)})
