"""Whether a changed spec is rolled back: only for a failure that the last healthy spec would not have. Pure functions.

Each failure is of the changed spec or of the cluster. What the driver itself reports about its query is of the spec.
Where the cluster has no node, image, quota, broker or input, it is of the spec only if that asks the cluster for
something else than before; otherwise the last healthy spec would fail in the same way, and the changed one waits. In
case of doubt the healthy driver is worth more, and the changed spec is tried again later if the cause may pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from millrace_api.model.status import Attempt, ConditionType, FailureClass
from millrace_api.model.streamquery import DRIVER, EXECUTOR, Spec, StreamQuery
from millrace_api.validation.connections import without_references

from ..resources.names import Manifest
from ..resources.pod_defaults import PodDefaults
from ..resources.scheduling import is_announced, queue_wait
from ..resources.spec_changes import revision
from .chains.chain_status import was_too_early
from .conditions import DegradedReason, ReadyReason, condition_of, parse_time
from .observed_query import ObservedQuery
from .pod_changes import PodChange, image_of
from .pods.driver_health import (
    CONFIG_REASONS,
    HEALTH_DEADLINE,
    IMAGE_REASONS,
    created,
    ready_since,
    restart_policy_of,
    started_at,
    turn_of,
    waiting_for,
)
from .pods.driver_runs import POD_MISSING, FailedRuns, own_pod, pod_missing_since
from .pods.executor_failures import executor_trouble
from .pods.pending_executors import missing_executors, pending_pods, running_executors

QUEUE_DEADLINE = timedelta(minutes=30)
"""Time that a driver may wait in a queue if its spec asks the queue for something else than the last healthy one."""

RUNS_TO_ROLL_BACK = 3
"""Failed runs of a changed spec before a rollback to the last healthy one, unless the failure class allows fewer."""

FIRST_RETRY, LONGEST_RETRY = timedelta(hours=1), timedelta(hours=24)
"""Time from a rollback until the spec is tried again: at first, and at most. Each time it is twice as long."""

MAX_RETRIES = 6
"""Number of further tries: each one ends a driver that is healthy, for up to ``HEALTH_DEADLINE``."""

_REGISTRY_AWAY = re.compile(
    r"\b(?:429|5\d\d)\b|too ?many ?requests|timeout|timed out|deadline exceeded|connection re(?:fused|set)|"
    r"no route to host|unreachable|server misbehaving|temporary failure|\bEOF\b",
    re.IGNORECASE,
)
"""Pattern of the messages of a registry that does not answer, as opposed to one that has no such image."""

_NAMES_IN_MESSAGE = re.compile(r'"[^"]*"|\bhttps?://\S*?(?=:? )')
"""Pattern of the names of images and addresses in such a message, which may contain any word."""

_PULLING, _NO_ERROR = ("ErrImagePull", "ImagePullBackOff"), ("", "Back-off pulling image")
"""Reasons of an image that is being pulled, and messages that do not say why it cannot be."""

_NOT_READ_BY = {"watermark", "table"}
"""Settings of a source that do not decide whether it can be read."""

_MINUTES = HEALTH_DEADLINE.seconds // 60
_SAME_SIZE = "the last healthy spec asks for the same size and nodes"
_SAME_POD = "the last healthy spec has the same pod"
_NO_FAULT = "{} is no fault of a spec"


class Setback(NamedTuple):
    """What has kept a changed spec from becoming healthy, for as long as it may.

    Attributes:
        message: what is wrong.
        waits: why the spec is not rolled back for it; empty if it is.
        may_pass: whether the spec may become healthy later, as it is.
    """

    message: str
    waits: str = ""
    may_pass: bool = True


def setback_of(
    observed: ObservedQuery, query: StreamQuery, failed: FailedRuns, defaults: PodDefaults, now: datetime
) -> Setback | None:
    """Return what keeps a changed spec from becoming healthy; None if nothing does, or not for long enough.

    The last healthy spec must be known, and be another one.
    """
    assert observed.healthy is not None
    healthy, wanted, last = observed.query_with(observed.healthy[1]), revision(query.spec), failed.last
    if last is not None and _is_of_query(last) and (failed.given_up or failed.of_last_class >= RUNS_TO_ROLL_BACK):
        return Setback(f"{last.reason}: {last.message}", may_pass=False)
    pod, since = own_pod(observed, wanted), _pod_since(observed, wanted, failed, now)
    if pod is not None:
        of_spec = (each for each in observed.failed_executors if each.attempt.reason != FailureClass.LOST_NODE)
        if (failing := executor_trouble(of_spec, pod, now)) is not None:
            return Setback(failing[1], may_pass=False)
        if ready_since(pod) is not None:
            return None
        if (queued := _of_queue(observed, query, healthy, pod, defaults, now)) is not None:
            return queued
    late = since is not None and now >= since + HEALTH_DEADLINE
    if late:
        change = PodChange.of(healthy, query, observed.owner, defaults)
        found = _of_missing_pod(observed, change) if pod is None else _of_pod(pod, change)
        if found is not None:
            return found
    if pod is not None and started_at(pod) is not None:
        change = PodChange.of(healthy, query, observed.owner, defaults, EXECUTOR)
        return _of_first_batch(observed, query, change, now) if late else None
    if last is not None and not _is_of_query(last):
        if was_too_early(observed.upstream, last) or now < _runs_since(observed, wanted, failed, now) + HEALTH_DEADLINE:
            return None
        return _of_run(last, healthy.spec, query.spec)
    hangs = late and last is None  # runs that fail are counted
    return Setback(_not_ready(pod), may_pass=False) if pod is not None and hangs else None


def setback_at(observed: ObservedQuery, wanted: str, failed: FailedRuns, now: datetime) -> datetime | None:
    """Return when next to check whether a changed spec of this revision has become healthy; None if by an event."""
    times = [_pod_since(observed, wanted, failed, now)]
    times += [] if failed.last is None else [_runs_since(observed, wanted, failed, now)]
    pod = own_pod(observed, wanted)
    if pod is not None and queue_wait(pod) is not None:
        times.append(created(pod) + (QUEUE_DEADLINE - HEALTH_DEADLINE))
    if observed.driver is not None and started_at(observed.driver) is not None:
        times += [_turn_of(observed, each, now) for each in pending_pods(observed) if is_announced(each)]
    due = (each + HEALTH_DEADLINE for each in times if each is not None)
    return min((each for each in due if each > now), default=None)


def retry_after(tries: int) -> timedelta | None:
    """Return the time until a spec is tried again that was rolled back so often; None if it is not."""
    return None if tries > MAX_RETRIES else min(FIRST_RETRY * 2 ** (tries - 1), LONGEST_RETRY)


def _is_of_query(last: Attempt) -> bool:
    """Return whether a run failed because of the query itself, so that the driver is given up at some time."""
    return restart_policy_of(last).max_failures is not None


def _pod_since(observed: ObservedQuery, wanted: str, failed: FailedRuns, now: datetime) -> datetime | None:
    """Return since when the driver's pod has had to start, or has been missing; None if neither is the case."""
    pod = own_pod(observed, wanted)
    return pod_missing_since(observed, wanted, failed) if pod is None else _turn_of(observed, pod, now)


def _turn_of(observed: ObservedQuery, pod: Manifest, now: datetime) -> datetime | None:
    """Return from when on a driver or an executor has to start; None while it waits in a queue.

    A pod that was admitted and finds no node does not show since when: the condition that says so keeps the time of the
    one about the gate. Degraded has it, ``now`` before that is reported.
    """
    turn, degraded = turn_of(pod), condition_of(observed.status, ConditionType.DEGRADED)
    if turn is not None or queue_wait(pod) is not None:
        return turn
    if degraded is None or degraded.reason not in (FailureClass.SCHEDULING, DegradedReason.EXECUTORS_PENDING):
        return now
    since = parse_time(degraded.last_transition_time)
    return since if degraded.reason == DegradedReason.EXECUTORS_PENDING else max(since, created(pod))


def _runs_since(observed: ObservedQuery, wanted: str, failed: FailedRuns, now: datetime) -> datetime:
    """Return since when runs may have failed: not before the first one had its turn.

    A pod may be another one for each run, so that the turn of this one may be later than the first failure.
    """
    status, pod = observed.status, own_pod(observed, wanted)
    since = parse_time(status.revision_time) if status.revision == wanted and status.revision_time else now
    turns = [parse_time(each.time) for each in failed.attempts[-failed.failures :][:1]]
    if pod is not None and (turn := turn_of(pod)) is not None:
        turns.append(turn)
    return max(since, min(turns))


def _of_run(last: Attempt, healthy: Spec, changed: Spec) -> Setback:
    """Return the setback of runs that fail for a cause outside of the query, such as a broker's outage."""
    part = _PARTS.get(last.reason)
    if part is None:
        return Setback(last.message, _NO_FAULT.format(last.reason))
    name, of = part
    same = f"the last healthy spec has the same {name}" if of(healthy) == of(changed) else ""
    return Setback(f"{last.reason}: {last.message}", same)


def _of_queue(
    observed: ObservedQuery,
    query: StreamQuery,
    healthy: StreamQuery,
    pod: Manifest,
    defaults: PodDefaults,
    now: datetime,
) -> Setback | None:
    """Return the setback of a driver whose queue may never admit it; None if it would keep the last healthy one, too.

    That driver has given up its quota, so whatever both ask for alike is worth the wait.
    """
    if queue_wait(pod) is None or now < created(pod) + QUEUE_DEADLINE:
        return None
    is_other = healthy.spec.scheduling != query.spec.scheduling
    if not is_other and healthy.spec.executors.min >= query.spec.executors.min:
        changes = [PodChange.of(healthy, query, observed.owner, defaults, role) for role in (DRIVER, EXECUTOR)]
        if not any(each.asks_for_more or each.is_placed_otherwise for each in changes):
            return None
    return Setback(f"not admitted within {QUEUE_DEADLINE.seconds // 60} minutes: {waiting_for(pod)}")


def _of_missing_pod(observed: ObservedQuery, change: PodChange) -> Setback:
    """Return the setback of a driver's pod that does not exist."""
    refused = observed.refused_pods(DRIVER)
    message = POD_MISSING if refused is None else refused.message
    if refused is not None and refused.reason is ReadyReason.QUOTA_EXCEEDED:
        return Setback(message, _scheduling(change))
    return Setback(message, "" if change.is_other else _SAME_POD)


def _of_first_batch(observed: ObservedQuery, query: StreamQuery, change: PodChange, now: datetime) -> Setback | None:
    """Return the setback of a driver whose first batch has not finished; None while executors have time to start.

    A batch may take hours, of a backlog for example. If no task finishes, the liveness probe ends the driver.
    """
    if running_executors(observed) >= query.spec.executors.min:
        return Setback("", "its first batch is running")
    message = f"no batch within {_MINUTES} minutes: {missing_executors(observed)}"
    refused, pending = observed.refused_pods(EXECUTOR), pending_pods(observed)
    queued = [wait for each in pending if (wait := queue_wait(each)) is not None]
    admitted = [each for each in pending if queue_wait(each) is None]
    late = [each for each in admitted if _is_late(observed, each, now)]
    if admitted and not late:
        return None
    if queued and not late:
        return Setback(message, f"an executor {queued[0]}")
    if refused is not None and refused.reason is ReadyReason.QUOTA_EXCEEDED:
        return Setback(message, _scheduling(change))
    if refused is not None:
        return Setback(message, "" if change.is_other else _SAME_POD)
    found = _of_pod(late[0], change, EXECUTOR) if late else None
    return Setback(message, "" if found is None else found.waits, found is None or found.may_pass)


def _is_late(observed: ObservedQuery, executor: Manifest, now: datetime) -> bool:
    """Return whether an executor has had its time to start; without a queue, that of the driver counts."""
    turn = _turn_of(observed, executor, now) if is_announced(executor) else None
    return turn is None or now >= turn + HEALTH_DEADLINE


def _not_ready(pod: Manifest, role: str = DRIVER) -> str:
    return f"not ready within {_MINUTES} minutes: {waiting_for(pod, role)}"


def _of_pod(pod: Manifest, change: PodChange, role: str = DRIVER) -> Setback | None:
    """Return the setback of a pod that is not ready; None if its container runs, or has run."""
    message, status = _not_ready(pod, role), pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return Setback(message, _NO_FAULT.format(FailureClass.LOST_NODE))
    for each in status.get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return Setback(message, _scheduling(change))
    found = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    for each in found:
        waiting = each.get("state", {}).get("waiting") or {}
        if (reason := waiting.get("reason", "")) in IMAGE_REASONS:
            return _of_image(message, reason, waiting.get("message", ""), each["name"], change)
        if reason in CONFIG_REASONS:
            return Setback(message, "" if change.is_other else _SAME_POD)
    if any("running" in each.get("state", {}) or each.get("lastState") for each in found):
        return None
    return Setback(message, "" if change.is_other else _SAME_POD)


def _scheduling(change: PodChange) -> str:
    """Return why an unschedulable pod is not the spec's fault; empty if it is."""
    return "" if change.asks_for_more or change.is_placed_otherwise else _SAME_SIZE


def _of_image(message: str, reason: str, error: str, container: str, change: PodChange) -> Setback:
    if not change.is_pulled_otherwise(container):
        return Setback(message, "the last healthy spec has the same image")
    text = _NAMES_IN_MESSAGE.sub("", error).replace(image_of(change.changed, container), "").strip()
    if _REGISTRY_AWAY.search(text):
        return Setback(message, "the registry does not answer, which may pass")
    unknown = reason in _PULLING and text in _NO_ERROR
    return Setback(message, may_pass=unknown)


def _sources(spec: Spec) -> dict[str, Any]:
    """Return the sources, as far as their settings decide whether they can be read."""
    sources = without_references(spec.to_short_document())["sources"]
    return {name: {at: it for at, it in each.items() if at not in _NOT_READ_BY} for name, each in sources.items()}


def _sinks(spec: Spec) -> list[Any]:
    document = without_references(spec.to_short_document())
    return [document["sink"], *(each["sink"] for _, each in sorted(document.get("additionalOutputs", {}).items()))]


_PARTS: Mapping[str, tuple[str, Callable[[Spec], Any]]] = {
    FailureClass.SOURCE: ("sources", _sources),
    FailureClass.SOURCE_MISSING: ("sources", _sources),
    FailureClass.SINK: ("sinks", _sinks),
    FailureClass.CODE: ("code", lambda spec: spec.code),
}
"""The part of a spec that a failure is about, with its name, by the failure's class."""
