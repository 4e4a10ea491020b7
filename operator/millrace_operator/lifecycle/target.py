"""Which spec a query's driver shall run: the one that was applied, or the last healthy one where that failed: pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from millrace_api.failures import FailureClass
from millrace_api.status import Attempt, Rejected
from millrace_api.streamquery import State, StreamQuery

from ..resources.names import Manifest
from ..resources.spec_fields import revision
from .conditions import moment, shortened, stamp
from .failures import PATIENCE, failed_runs, retry_at
from .health import HEALTH_DEADLINE, HEALTHY_AFTER, created, ready_since, waiting_for
from .observe import Seen

RUNS_TO_ROLL_BACK = 3
"""Runs of a changed spec that may fail before the last healthy one is put back, if its class does not say less."""


@dataclass(frozen=True)
class Tally:
    """The failed runs: the last ones, and how many of them there were in a row under this revision."""

    attempts: tuple[Attempt, ...] = ()
    failures: int = 0

    @property
    def last(self) -> Attempt | None:
        """The last failure, where the driver has not been healthy since."""
        return self.attempts[-1] if self.failures and self.attempts else None

    @property
    def given_up(self) -> bool:
        """Whether no other run is begun."""
        return self.last is not None and PATIENCE[FailureClass(self.last.reason)].is_over(self.failures)

    def retry_time(self, now: datetime) -> datetime | None:
        """When the next run may begin; None where that is now, or Kubernetes' affair."""
        due = None if self.last is None or self.given_up else retry_at(self.last, self.failures)
        return due if due is not None and due > now else None


@dataclass(frozen=True)
class Target:
    """What the driver shall run.

    ``rejected``: the spec that was applied is not it, since it did not become healthy. ``wake``: when to look again
    at whether the driver is healthy.
    """

    query: StreamQuery
    revision: str
    tally: Tally
    rejected: Rejected | None = None
    wake: datetime | None = None

    @property
    def running(self) -> bool:
        """Whether the user wants a driver."""
        return self.query.spec.state is State.RUNNING


def target_of(seen: Seen, query: StreamQuery, now: datetime) -> Target:
    """The spec to follow now."""
    wanted, rejected = revision(query.spec), seen.status.rejected
    if rejected is not None and rejected.revision == wanted and seen.healthy is not None:
        return _rolled_back(seen, query, rejected, now)
    target = Target(query, wanted, _tally(seen, wanted, now))
    if not target.running:  # whoever lets it run again wants another try
        return replace(target, tally=replace(target.tally, failures=0))
    if seen.healthy is None or seen.healthy[0] == wanted:
        return target
    if reason := _unhealthy(seen, target, now):
        given_up = Rejected(
            revision=wanted, generation=seen.generation, time=stamp(now), message=shortened(reason, 2048)
        )
        back = _rolled_back(seen, query, given_up, now)
        return replace(back, tally=replace(back.tally, attempts=target.tally.attempts))
    pod = _own_pod(seen, wanted)
    return target if pod is None else replace(target, wake=moment(created(pod)) + HEALTH_DEADLINE)


def healthy_from(pod: Manifest | None) -> datetime | None:
    """From when on what a driver runs counts as healthy, if it stays ready."""
    since = None if pod is None else ready_since(pod)
    return None if since is None else since + HEALTHY_AFTER


def _rolled_back(seen: Seen, query: StreamQuery, rejected: Rejected, now: datetime) -> Target:
    """The last healthy spec; whether it runs at all is as the user wants it now."""
    assert seen.healthy is not None
    healthy, spec = seen.healthy
    spec = spec.model_copy(update={"state": query.spec.state})
    return Target(query.model_copy(update={"spec": spec}), healthy, _tally(seen, healthy, now), rejected)


def _unhealthy(seen: Seen, target: Target, now: datetime) -> str:
    """Why a changed spec is given up; empty where it is not."""
    tally, pod = target.tally, _own_pod(seen, target.revision)
    if tally.last is not None and (tally.given_up or tally.failures >= RUNS_TO_ROLL_BACK):
        return f"{tally.last.reason}: {tally.last.message}"
    if pod is None or ready_since(pod) is not None or now < moment(created(pod)) + HEALTH_DEADLINE:
        return ""
    return f"not ready within {HEALTH_DEADLINE.seconds // 60} minutes: {waiting_for(pod)}"


def _own_pod(seen: Seen, wanted: str) -> Manifest | None:
    """The driver's pod, where it was made from this revision."""
    return seen.driver if seen.revision == wanted else None


def _tally(seen: Seen, wanted: str, now: datetime) -> Tally:
    """What was counted before, and the runs that failed since."""
    before, pod = seen.status, _own_pod(seen, wanted)
    failures = before.failures if before.revision == wanted else 0
    if pod is None or "deletionTimestamp" in pod["metadata"]:
        return Tally(before.attempts, failures)
    known = {each.run for each in before.attempts}
    new = [each for each in failed_runs(pod) if each.run not in known]
    healthy = healthy_from(pod)
    failures = 0 if healthy is not None and healthy <= now else failures + len(new)
    return Tally((*before.attempts, *new)[-10:], failures)
