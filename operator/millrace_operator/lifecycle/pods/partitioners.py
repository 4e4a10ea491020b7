"""Partitioner replicas in pods of their own: how many should run, what their pods show, and what is wrong with them.

Kubernetes restarts a replica that fails, with growing pauses, and the operator never gives it up: what is wrong with
the query is the driver's to report, and what replicas have not placed waits in the topic. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from millrace_api.model.deployment import Placement
from millrace_api.model.plan import Plan
from millrace_api.model.status import FailureClass, PartitionerStatus
from millrace_api.model.streamquery import DRIVER, PARTITIONER, Spec

from ...resources.driver_config import image_in
from ...resources.names import Manifest
from ...resources.partitioner import Partitioners
from ..conditions import DegradedReason, format_time, parse_time
from ..observed_query import ObservedQuery
from .driver_health import HEALTHY_AFTER, blocked, failed_runs, ready_since, started_at, states, waiting_for

NOT_READY_AFTER = timedelta(minutes=5)
"""Time that a replica may not be ready, while the driver runs, before this is reported."""

FAILURES_TO_REPORT = 2
"""Restarts of a replica from which its failures are reported; the first one may be chance."""

_ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Trouble:
    """What is wrong with replicas from the time ``due`` on, unless something changes before."""

    due: datetime
    reason: str
    message: str


def partitioners_for(
    observed: ObservedQuery, spec: Spec, plan: Plan, default_image: str, *, running: bool
) -> Partitioners | None:
    """Return the replicas that should run in pods of their own; None if there are no objects for them.

    As many as the plan says place records while the query runs. When the plan goes back to Inline, they stay until the
    driver has acknowledged that, because a batch of the plan before may need what they write. They have the
    driver's image and configuration, so that a new default image reaches both at once: with the driver's next start.
    """
    found = observed.partitioner_set
    if plan.placement is Placement.INLINE and found is None:
        return None
    configuration = observed.configuration
    found = None if configuration is None else observed.objects.get(("ConfigMap", configuration))
    image = spec.image or _image(observed.driver, found) or default_image
    if found is None:
        configuration = None
    if not running:
        replicas = 0
    elif plan.placement is Placement.DEDICATED:
        replicas = plan.replicas
    else:
        acknowledged = observed.applied is not None and observed.applied.epoch >= plan.epoch
        replicas = 0 if acknowledged else _wanted(observed)
    return Partitioners(replicas, image, configuration)


def partitioner_status(observed: ObservedQuery, now: datetime) -> PartitionerStatus | None:
    """Return what the pods of replicas show; None without pods, now or soon."""
    wanted, pods, before = _wanted(observed), observed.partitioner_pods, observed.status.partitioner
    if not wanted and not pods:
        return None
    ready = sum(ready_since(pod) is not None for pod in pods)
    since = format_time(now) if before is None or before.not_ready_since is None else before.not_ready_since
    return PartitionerStatus(
        replicas=wanted,
        ready=ready,
        restarts=sum(each.get("restartCount", 0) for pod in pods for each in states(pod, PARTITIONER)),
        not_ready_since=since if ready < wanted else None,
    )


def trouble(observed: ObservedQuery, now: datetime) -> tuple[str, str] | None:
    """Return reason and message of what is wrong with replicas, with a pod's own error; None if nothing is."""
    found = [each for each in _troubles(observed, now) if each.due <= now]
    return (found[0].reason, found[0].message) if found else None


def trouble_at(observed: ObservedQuery, now: datetime) -> list[datetime]:
    """Return when to look at replicas again, because something may be wrong or well by then."""
    times = [each.due for each in _troubles(observed, now)]
    healthy = [since + HEALTHY_AFTER for pod in observed.partitioner_pods if (since := ready_since(pod)) is not None]
    return [each for each in (*times, *healthy) if each > now]


def _troubles(observed: ObservedQuery, now: datetime) -> Iterator[Trouble]:
    """Yield what is wrong with replicas now or will be: what a pod shows first, then pods that take too long."""
    wanted, pods = _wanted(observed), observed.partitioner_pods
    if not wanted:
        return
    for pod in pods:
        if (shown := _shown(pod, now)) is not None:
            yield Trouble(_ALWAYS, shown[0], f"partitioner replica {pod['metadata']['name']}: {shown[1]}")
    driver, reported = None if observed.driver is None else started_at(observed.driver), observed.status.partitioner
    if driver is None or reported is None or reported.not_ready_since is None:  # they wait for the driver, or are ready
        return
    since = max(driver, parse_time(reported.not_ready_since))
    yield Trouble(since + NOT_READY_AFTER, DegradedReason.REPLICAS_NOT_READY, _why_not_ready(pods, wanted))


def _why_not_ready(pods: list[Manifest], wanted: int) -> str:
    """Return what a pod that is not ready waits for; if there is none, how many pods are missing."""
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    for pod in staying:
        if ready_since(pod) is None:
            return f"partitioner replica {pod['metadata']['name']}: {waiting_for(pod, PARTITIONER)}"
    return f"{len(staying)} of {wanted} partitioner pods exist: see the events of their StatefulSet"


def _shown(pod: Manifest, now: datetime) -> tuple[str, str] | None:
    """Return the class and the message of what keeps a replica from starting, or of failures in a row."""
    if (blockage := blocked(pod, now, PARTITIONER)) is not None:
        return blockage
    runs, since = failed_runs(pod, PARTITIONER), ready_since(pod)
    restarts = sum(each.get("restartCount", 0) for each in states(pod, PARTITIONER))
    recovered = since is not None and since + HEALTHY_AFTER <= now
    if not runs or restarts < FAILURES_TO_REPORT or recovered:
        return None
    of_no_class = runs[-1].reason == FailureClass.OTHER
    reason = DegradedReason.REPLICA_FAILED if of_no_class else runs[-1].reason
    return reason, f"failed {restarts} times, last with: {runs[-1].message}"


def _wanted(observed: ObservedQuery) -> int:
    """Return the number of replicas that their StatefulSet keeps running."""
    found = observed.partitioner_set
    return 0 if found is None else int(found["spec"].get("replicas", 1))


def _image(driver: Manifest | None, configuration: Manifest | None) -> str | None:
    """Return the image that the driver was given; None without a pod.

    Its pod may have another one: that of a mirror, which admission has put there and would put before it again.
    """
    if configuration is not None and (given := image_in(configuration.get("data", {}).get("spark-defaults.conf", ""))):
        return given
    containers = [] if driver is None else driver["spec"].get("containers", ())
    return next((each.get("image") for each in containers if each["name"] == DRIVER), None)
