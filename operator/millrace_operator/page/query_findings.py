"""Findings on a query in order of urgency, from what the operator has reported of it. The first one is the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from millrace_api.model.deployment import ScalingMode
from millrace_api.model.status import Condition, ConditionStatus, ConditionType, FailureClass, Phase
from millrace_support.pages.verdict import PageFinding, Severity, by_urgency

from ..lifecycle.autoscaling.scaling_status import ActiveReason, MetricsReason
from ..lifecycle.conditions import DegradedReason, ReadyReason
from ..lifecycle.pods.driver_health import HEALTH_DEADLINE
from ..lifecycle.query_facts import age, ago, count, figure
from ..lifecycle.query_view import QueryView

RECENT = timedelta(hours=1)
"""Time for which a failure of a driver that runs again is worth a note."""

UNSEEN = timedelta(minutes=2)
"""Age from which a query that no operator has observed is in trouble."""

OLD = timedelta(minutes=5)
"""Age from which the load of a running query is old; an operator reports it every two minutes while batches end."""

_BATCHES = 3
"""Batch intervals, or processing times if longer, within which an operator reports the load of long batches."""

_STATES: Mapping[str, str] = {
    ReadyReason.SUSPENDED: "Suspended",
    ReadyReason.DRAINING: "Stopping",
    ReadyReason.DEPLOYING: "Deploying",
    ReadyReason.DRIVER_LOST: "Driver is replaced",
    ReadyReason.FIRST_BATCH: "First batch is running",
    ReadyReason.DELETING: "Being deleted",
}
"""Titles of states that are no trouble."""

_LOG = "read the driver's log by `millrace logs {name} -n {namespace} --previous` and correct the cause"
_AWAITED = "`millrace logs {name} -n {namespace}` has more; once a server answers again, the query goes on by itself"
"""Remedy for a server that does not answer, a failure after which the query starts again, and own code that lasts."""

_TROUBLE: Mapping[str, tuple[str, str]] = {
    ReadyReason.INVALID_QUERY: ("Spec is invalid", "correct the spec; `millrace validate FILE` checks a file"),
    ReadyReason.NOT_ALLOWED: (
        "Spec is not allowed",
        "change what the message names, or ask the administrator of the operator to allow it",
    ),
    ReadyReason.CONNECTION_NOT_FOUND: ("Connection is missing", "create or correct the Connection"),
    ReadyReason.NAME_TAKEN: (
        "A name is taken",
        "delete the object that the message names, or give the query another name",
    ),
    ReadyReason.QUOTA_EXCEEDED: ("Quota is used up", "raise the quota of the namespace, or let the query ask for less"),
    ReadyReason.POD_REFUSED: (
        "Driver's pod is refused",
        "change what the message names in the spec, or what refuses it in the namespace",
    ),
    ReadyReason.QUEUED: ("Waits in a queue", "raise the quota of the queue, or let the query ask for less"),
    ReadyReason.FAILED: ("Failed", f"{_LOG}, then start it again by `millrace restart {{name}} -n {{namespace}}`"),
    ReadyReason.BACKING_OFF: ("Failing and starting again", f"{_LOG}; it starts again by itself"),
    ReadyReason.WAITING: (
        "Waits for another query",
        "start the query that writes what this one reads, or see why it does not run",
    ),
}
"""Titles and remedies of what keeps a query from being ready."""

_DEGRADED: Mapping[str, tuple[str, str]] = {
    DegradedReason.ROLLED_BACK: ("Rolled back", "correct the spec: the last healthy one runs instead"),
    DegradedReason.UPGRADE_REJECTED: (
        "Changed spec is rejected",
        "correct the spec, or let it through by spec.upgrade.expectChanges: true; the version before runs on",
    ),
    DegradedReason.QUOTA_EXCEEDED: (
        "Quota is used up",
        "raise the quota of the namespace, or lower spec.executors.max",
    ),
    DegradedReason.POD_REFUSED: ("Pods are refused", "change what the message names"),
    DegradedReason.EXECUTORS_FAILING: (
        "Executors fail",
        "read their logs by `millrace logs {name} -n {namespace} --executors`; more memory helps if they are killed",
    ),
    DegradedReason.MEMORY_FILLING: (
        "Memory is nearly full",
        "set maxMemory in spec.driver or spec.executors, up to which the operator raises it, or raise memory there",
    ),
    DegradedReason.EXECUTORS_PENDING: ("Executors are pending", "make room on nodes, or lower spec.executors"),
    DegradedReason.EXECUTORS_QUEUED: (
        "Executors wait in a queue",
        "raise the quota of the queue, or lower spec.executors",
    ),
    DegradedReason.REPLICA_FAILED: ("A partitioner replica fails", "read the log of its pod"),
    DegradedReason.REPLICAS_NOT_READY: ("Partitioner replicas are not ready", "see why by `kubectl get pods`"),
    # of a driver that has no log, since it did not begin to run or its node is gone
    FailureClass.IMAGE: ("Image is unavailable", "correct spec.image, or let the nodes pull it"),
    FailureClass.SCHEDULING: ("No node takes the driver", "make room on a node, or let the driver ask for less"),
    FailureClass.LOST_NODE: ("Node is lost", "bring the node back, or remove it from the cluster once it is off"),
}
"""Titles and remedies by reason or class of failure; for other classes, the log has the cause."""

_METRICS: Mapping[str, str] = {
    MetricsReason.UNREACHABLE: "check that the operator reaches Prometheus",
    MetricsReason.NO_ANSWER: "check that Prometheus scrapes the driver's pod",
}
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def query_findings(view: QueryView, now: datetime) -> list[PageFinding]:
    """Return the findings on a query, the most urgent first; there is at least one."""
    if not view.is_readable:
        reason = "another version of Millrace wrote its status, which this one cannot read"
        return [PageFinding(Severity.WARNING, "Status cannot be read", reason, "run operators of one version")]
    found = [*_ready(view, now), *_conditions(view, now), *_load(view), *_old_load(view, now), *_history(view, now)]
    if all(each.severity < Severity.WARNING for each in found):
        return [_state(view, now), *found]
    return by_urgency(found)


def _with_names(remedy: str, view: QueryView) -> str:
    return remedy.format(name=view.name, namespace=view.namespace)


def _said(condition: Condition) -> str:
    """Return a condition's message without its full stop, or its reason in words."""
    return condition.message.rstrip(". ") or _WORDS.sub(" ", condition.reason).lower()


def _ready(view: QueryView, now: datetime) -> Iterator[PageFinding]:
    ready = view.condition(ConditionType.READY)
    if ready is None:
        if _seconds_since(view.created, now) > UNSEEN.total_seconds():
            reason = f"no operator has observed it in {age(view.created, now)}"
            yield PageFinding(Severity.WARNING, "Not observed", reason, "check that an operator watches its namespace")
        return
    waits = ready.message.partition("; ")[2]
    if ready.reason in (ReadyReason.RUNNING, ReadyReason.FIRST_BATCH) and waits:
        title = "Driver waits" if ready.reason == ReadyReason.RUNNING else "First batch waits"
        yield PageFinding(Severity.WARNING, title, waits.rstrip(". "), _with_names(_AWAITED, view))
        return
    if ready.status is ConditionStatus.TRUE:
        return
    if ready.reason in _TROUBLE:
        title, remedy = _TROUBLE[ready.reason]
        failing = ready.reason in (ReadyReason.FAILED, ReadyReason.BACKING_OFF) or view.status.phase is Phase.FAILED
        # what runs goes on beside an invalid spec; without it, nothing runs
        severe = failing or (view.status.phase is not Phase.RUNNING and ready.reason != ReadyReason.WAITING)
        severity = Severity.FAILURE if severe else Severity.WARNING
        yield PageFinding(severity, title, _said(ready), _with_names(remedy, view))
    elif ready.reason in (ReadyReason.DEPLOYING, ReadyReason.DRIVER_LOST, ReadyReason.FIRST_BATCH):
        if _seconds_since(ready.last_transition_time, now) > HEALTH_DEADLINE.total_seconds():
            reason = f"not ready for {age(ready.last_transition_time, now)}: {_said(ready)}"
            remedy = "see what the driver waits for by `millrace logs {name} -n {namespace}`"
            yield PageFinding(Severity.WARNING, "Does not become ready", reason, _with_names(remedy, view))
    elif ready.reason not in _STATES:
        yield PageFinding(Severity.WARNING, "Not ready", _said(ready))


def _conditions(view: QueryView, now: datetime) -> Iterator[PageFinding]:
    """Yield what other conditions have to say; Ready has its own function."""
    for each in view.abnormal_conditions:
        if each.status is ConditionStatus.UNKNOWN:
            continue
        match each.type:
            case ConditionType.DEGRADED:
                title, remedy = _DEGRADED.get(each.reason, (_title(each.reason), _LOG))
                yield PageFinding(Severity.WARNING, title, _said(each), _with_names(remedy, view))
            case ConditionType.UPSTREAM_READY:
                remedy = "see why that query does not run"
                yield PageFinding(Severity.WARNING, "A query before it does not run", _said(each), remedy)
            case ConditionType.METRICS_AVAILABLE if view.status.phase is Phase.RUNNING:
                remedy = _METRICS.get(each.reason, "")
                severity = Severity.WARNING if remedy else Severity.NOTE
                yield PageFinding(severity, "No metrics", _said(each), remedy)
            case ConditionType.SCALING_LIMITED:
                yield PageFinding(Severity.NOTE, "Scaling is limited", _said(each))
            case ConditionType.SCALING_INEFFECTIVE:
                yield PageFinding(Severity.WARNING, "More executors do not help", _said(each))
            case ConditionType.SCALING_ACTIVE if each.reason in (ActiveReason.ADVISE, ActiveReason.OFF):
                yield PageFinding(Severity.NOTE, "Not scaled by the operator", _said(each))
            case ConditionType.PROGRESSING if view.phase == Phase.RUNNING:
                yield PageFinding(Severity.NOTE, "Change in progress", _said(each))
    if view.pauses:
        reason = f"annotations pause {', '.join(view.pauses)}"
        remedy = f"`millrace resume {view.name} -n {view.namespace}` ends that"
        yield PageFinding(Severity.NOTE, "Paused", reason, remedy)
    if view.pending and view.condition(ConditionType.READY) is not None:
        yield PageFinding(Severity.NOTE, "Change is pending", "the operator has not observed the newest spec")


def _title(reason: str) -> str:
    """Return a class of failure, or another reason, in words."""
    return _WORDS.sub(" ", reason).capitalize()


def _load(view: QueryView) -> Iterator[PageFinding]:
    load = view.status.load
    if view.status.phase is not Phase.RUNNING or load is None or load.utilization is None or load.utilization <= 1:
        return
    waiting = "" if load.lag is None else f", and {count(load.lag)} records wait"
    reason = f"batches take {load.utilization:.2g} times their interval (W {figure(load.utilization)}){waiting}"
    yield PageFinding(Severity.WARNING, "Falling behind", reason, _more(view))


def _old_load(view: QueryView, now: datetime) -> Iterator[PageFinding]:
    """Yield that the load was not observed lately, as where no operator leads the query's shard."""
    load = view.status.load
    if view.status.phase is not Phase.RUNNING or load is None:
        return
    batch = load.processing_seconds or 0.0
    interval = batch / load.utilization if load.utilization else 0.0
    if _seconds_since(load.observed_time, now) <= max(OLD.total_seconds(), _BATCHES * max(batch, interval)):
        return
    seen = f"its load was last observed {ago(load.observed_time, now)}"
    is_idle = load.lag == 0 and load.input_rate == 0  # a stream without records may have no batches
    reason = f"{seen}: no batch has ended since, or no operator observes it"
    remedy = "check that an operator leads, and that batches end"
    yield PageFinding(Severity.NOTE if is_idle else Severity.WARNING, "Figures are old", reason, remedy)


def _more(view: QueryView) -> str:
    """Return how a query that falls behind gets more executors."""
    ineffective = view.condition(ConditionType.SCALING_INEFFECTIVE)
    if ineffective is not None and ineffective.status is ConditionStatus.TRUE:
        return f"more executors do not help; the condition {ineffective.type} says what does"
    limited, active = view.condition(ConditionType.SCALING_LIMITED), view.condition(ConditionType.SCALING_ACTIVE)
    if limited is not None and limited.status is ConditionStatus.TRUE:
        return f"lift what limits scaling: {_said(limited)}"
    if active is not None and active.reason in (ScalingMode.OFF, ActiveReason.ADVISE, ActiveReason.OFF):
        return "raise spec.executors.initial, or write spec.scaling.mode: Active to have it scaled"
    if active is not None and active.status is ConditionStatus.FALSE:
        return f"it is not scaled: {_said(active)}"
    return f"wait for the operator to scale it; `millrace explain {view.name} -n {view.namespace}` says what it decides"


def _history(view: QueryView, now: datetime) -> Iterator[PageFinding]:
    """Yield the last failure of a driver that runs again."""
    attempts = view.status.attempts
    if view.status.phase is Phase.RUNNING and attempts:
        last = attempts[-1]
        if _seconds_since(last.time, now) < RECENT.total_seconds():
            message = last.message.strip().rstrip(".")
            reason = f"{ago(last.time, now)}, {last.reason}{': ' if message else ''}{message}"
            killed = last.reason == FailureClass.OUT_OF_MEMORY
            yield PageFinding(Severity.NOTE, "Failed a while ago", reason, "raise spec.driver.memory" if killed else "")


def _state(view: QueryView, now: datetime) -> PageFinding:
    """Return the state of a query that is not in trouble."""
    ready, load = view.condition(ConditionType.READY), view.status.load
    if ready is None:
        return PageFinding(Severity.NOTE, "New", f"created {ago(view.created, now)}, and not observed yet")
    if ready.status is not ConditionStatus.TRUE:
        severity = Severity.WELL if ready.reason == ReadyReason.SUSPENDED else Severity.NOTE
        return PageFinding(severity, _STATES.get(ready.reason, "Not ready"), _said(ready))
    if load is None or load.utilization is None:
        return PageFinding(Severity.WELL, "Running", "its load is not known")
    waiting = "" if load.lag is None else f", and {count(load.lag) if load.lag else 'no'} records wait"
    return PageFinding(Severity.WELL, "Keeping up", f"batches take {load.utilization:.0%} of their interval{waiting}")


def _seconds_since(time: str | None, now: datetime) -> float:
    """Return the age of a Kubernetes timestamp in seconds; 0 if it is unknown."""
    try:
        return 0.0 if time is None else (now - datetime.fromisoformat(time)).total_seconds()
    except (TypeError, ValueError):
        return 0.0
