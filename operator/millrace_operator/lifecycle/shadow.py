"""A changed spec that is compared with the one that runs before it is followed: whether, and how far that is.

Pure functions. ``target`` asks which spec to follow, and ``step`` which objects there are to be; ``resources.shadow``
has those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from millrace_api.model.status import FailureClass, RejectedSpec, UpgradeStatus
from millrace_api.model.streamquery import DRIVER, ROLE_LABEL, SHADOW, Spec, StreamQuery
from millrace_api.model.upgrade import UpgradeMode, UpgradeReport, UpgradeSpec, UpgradeVerdict

from ..resources.names import Manifest
from ..resources.pod_defaults import PodDefaults
from ..resources.shadow import COMPARED, comparison_id, longest_seconds, shadow_objects
from ..resources.spec_changes import changed_connections, replaced_fields, revision
from .conditions import ProgressingReason, format_time, parse_time
from .connections.connection_turns import is_down
from .observed_query import ObservedQuery
from .pods.driver_health import created, failed_runs, states, waiting_for

MOST_PODS = 3
"""Pods for a comparison: one that is lost with its node, or evicted, is followed by another."""

START_DEADLINE = timedelta(minutes=30)
"""Time from the creation of the pod within which its container has to run; a queue or a new node may take long."""

_MINUTES = START_DEADLINE.seconds // 60


@dataclass(frozen=True)
class ShadowRun:
    """A comparison that precedes the replacement of the driver: how far it is, and the changed query."""

    status: UpgradeStatus
    changed: StreamQuery

    @property
    def is_running(self) -> bool:
        """Whether it has not come to a verdict."""
        return self.status.verdict is None

    def progress(self, refused: tuple[str, datetime] | None) -> tuple[ProgressingReason, str]:
        """Return reason and message of Progressing while it runs; ``refused`` is what keeps it from beginning."""
        if refused is not None:
            why, until = refused
            message = f"generation {self.status.generation} cannot be compared with the version that runs"
            return ProgressingReason.COMPARING, f"{message}: {why}; tried again at {format_time(until)}"
        message = (
            f"generation {self.status.generation} is compared with the version that runs, by pod {self.status.pod}; "
            "it takes over if their results are equal"
        )
        return ProgressingReason.COMPARING, message


def shadow_of(observed: ObservedQuery, query: StreamQuery, now: datetime) -> ShadowRun | None:
    """Return the comparison that precedes the replacement of the driver; None if the spec is followed at once.

    None begins where the driver of the last healthy spec does not run, or has not computed for long: the change may be
    what helps it. One that has begun goes on, whatever befalls that driver. Connections have turns of their own.

    Args:
        observed: the query, with a last healthy spec.
        query: the query with its current spec, which needs another driver.
        now: the time of the step.
    """
    assert observed.healthy is not None
    healthy, running = observed.healthy
    if not is_asked_for(query.spec) or not COMPARED & set(replaced_fields(running, query.spec)):
        return None
    if changed_connections(running, query.spec):
        return None
    before = observed.status.upgrade
    if is_compared(observed, query.spec) and before is not None and _is_of(observed, before, query):
        return ShadowRun(_followed(observed, before, query, now), query)
    if not observed.wants_pods or observed.revision_to_run != healthy or is_down(observed, now):
        return None
    if before is not None and before.verdict is not None and _is_of(observed, before, query):
        return ShadowRun(before, query)
    return ShadowRun(
        UpgradeStatus(
            revision=revision(query.spec),
            generation=observed.generation,
            pod=_name(observed, query, 1),
            start_time=format_time(now),
        ),
        query,
    )


def held_comparison(observed: ObservedQuery, query: StreamQuery) -> ShadowRun | None:
    """Return the comparison that a suspended query goes on with when it is resumed; None if none has begun."""
    before = observed.status.upgrade
    return None if before is None or not is_compared(observed, query.spec) else ShadowRun(before, query)


def is_asked_for(spec: Spec) -> bool:
    """Return whether changes of the query are to be compared before they are followed."""
    return spec.upgrade is not None and spec.upgrade.mode is UpgradeMode.SHADOW


def is_passed(upgrade: UpgradeStatus, spec: Spec) -> bool:
    """Return whether a comparison that has ended lets the changed spec be followed."""
    if upgrade.verdict is UpgradeVerdict.EQUAL:
        return True
    expects = spec.upgrade is not None and spec.upgrade.expect_changes
    return expects and upgrade.verdict is not UpgradeVerdict.NOT_COMPARED


def is_reconsidered(observed: ObservedQuery, rejected: RejectedSpec, query: StreamQuery) -> bool:
    """Return whether a spec that its comparison has rejected is no longer: ``spec.upgrade`` asks for another one."""
    upgrade = observed.status.upgrade
    if rejected.verdict is None:
        return False
    if not is_asked_for(query.spec) or upgrade is None or not _is_of(observed, upgrade, query):
        return True
    return is_passed(upgrade, query.spec)


def is_compared(observed: ObservedQuery, spec: Spec) -> bool:
    """Return whether this spec is being compared, as the status says, so that the last healthy one runs."""
    upgrade = observed.status.upgrade
    return upgrade is not None and upgrade.verdict is None and upgrade.revision == revision(spec)


def compared_at(observed: ObservedQuery, shadow: ShadowRun) -> datetime | None:
    """Return when to look at a comparison again, if no event comes before; None if only events matter."""
    if not shadow.is_running:
        return None
    if observed.comparison_refused is not None:
        return observed.comparison_refused[1]
    pod = observed.objects.get(("Pod", shadow.status.pod))
    return None if pod is None else created(pod) + START_DEADLINE


def missing_objects(
    observed: ObservedQuery, shadow: ShadowRun | None, running: StreamQuery, defaults: PodDefaults, now: datetime
) -> list[Manifest]:
    """Return the next object of a comparison that runs, if it does not exist: its ConfigMap, and then its pod.

    The pod follows a ConfigMap that was observed with its content. Another client may have made one of that name, with
    other specs or without what the pod has to enforce: that is in ``forged_objects``.
    """
    refused = observed.comparison_refused
    if shadow is None or not shadow.is_running or (refused is not None and now < refused[1]):
        return []
    config_map, pod = _desired(observed, shadow, running, defaults)
    found = observed.objects.get(("ConfigMap", config_map["metadata"]["name"]))
    if found is None:
        return [config_map]
    if _is_forged(found, config_map):
        return []
    return [] if ("Pod", shadow.status.pod) in observed.objects else [pod]


def forged_objects(
    observed: ObservedQuery, shadow: ShadowRun | None, running: StreamQuery, defaults: PodDefaults
) -> list[Manifest]:
    """Return the ConfigMap in the place of a comparison's own that another client has made with other content."""
    if shadow is None or not shadow.is_running:
        return []
    config_map, _ = _desired(observed, shadow, running, defaults)
    found = observed.objects.get(("ConfigMap", config_map["metadata"]["name"]))
    return [found] if found is not None and observed.owner.owns(found) and _is_forged(found, config_map) else []


def _desired(observed: ObservedQuery, shadow: ShadowRun, running: StreamQuery, defaults: PodDefaults) -> list[Manifest]:
    confinement = observed.permissions.confinement(shadow.changed, observed.owner.namespace)
    name = shadow.status.pod
    return shadow_objects(running, shadow.changed, observed.owner, defaults, name, confinement)


def _is_forged(found: Manifest, config_map: Manifest) -> bool:
    return (found.get("data"), found.get("immutable")) != (config_map["data"], config_map["immutable"])


def unused_objects(observed: ObservedQuery, upgrade: UpgradeStatus | None) -> list[Manifest]:
    """Return the objects of comparisons that are of no more use, pods first.

    The pod of the last comparison is kept for its log if it has ended, as long as what it has found holds.
    """
    kept = set()
    if upgrade is not None:
        pod = _own_pod(observed, upgrade.pod)
        if upgrade.verdict is None or (pod is not None and _phase(pod) in ("Succeeded", "Failed")):
            kept.add(upgrade.pod)
        if upgrade.verdict is None:
            kept.add(upgrade.pod.rpartition("-")[0])
    found = [
        each
        for (kind, name), each in sorted(observed.objects.items(), reverse=True)
        if kind in ("Pod", "ConfigMap") and observed.owner.is_shadow(name) and name not in kept
    ]
    return [each for each in found if observed.owner.owns(each) and "deletionTimestamp" not in each["metadata"]]


def _is_of(observed: ObservedQuery, upgrade: UpgradeStatus, query: StreamQuery) -> bool:
    """Return whether a comparison is of this spec, with these settings."""
    return upgrade.pod.rpartition("-")[0] == _name(observed, query, None)


def _name(observed: ObservedQuery, query: StreamQuery, number: int | None) -> str:
    """Return the name of a comparison's ConfigMap, or of its pod of this number; another version has another one."""
    running = "" if observed.healthy is None else observed.healthy[0]
    return observed.owner.shadow(comparison_id(running, query), number)


def _followed(observed: ObservedQuery, before: UpgradeStatus, query: StreamQuery, now: datetime) -> UpgradeStatus:
    """Return the status of a comparison after a look at its pod."""
    refused = observed.comparison_refused
    if refused is not None and now >= parse_time(before.start_time) + START_DEADLINE:
        return _without_report(before, f"its pod was not made within {_MINUTES} minutes: {refused[0]}", now)
    if _is_ending(observed, before.pod):
        return _after_loss(observed, before, query, "its pod was deleted", now)
    pod = _own_pod(observed, before.pod)
    if pod is None:
        return before  # it is made next
    if (ended := _ended(pod)) is not None:
        try:
            report = UpgradeReport.model_validate_json(ended.get("message") or "", by_name=False)
        except ValidationError:
            pass
        else:
            return _with_verdict(before, report, now)
    if ended is None and _phase(pod) != "Failed":
        runs = any("running" in each.get("state", {}) for each in states(pod, DRIVER))
        if runs or now < created(pod) + START_DEADLINE:
            return before
        return _without_report(before, f"it has not started within {_MINUTES} minutes: {waiting_for(pod, SHADOW)}", now)
    failed = failed_runs(pod)
    if failed and failed[-1].reason == FailureClass.LOST_NODE:
        return _after_loss(observed, before, query, failed[-1].message, now)
    if pod.get("status", {}).get("reason") == "DeadlineExceeded":
        minutes = longest_seconds(query.spec.upgrade or UpgradeSpec()) // 60
        return _without_report(before, f"it has taken longer than {minutes} minutes", now)
    return _without_report(before, failed[-1].message if failed else "its pod has ended without a report", now)


def _after_loss(
    observed: ObservedQuery, before: UpgradeStatus, query: StreamQuery, why: str, now: datetime
) -> UpgradeStatus:
    """Return the status after the loss of a pod: another one follows, as long as there were not too many."""
    if before.tries >= MOST_PODS:
        return _without_report(before, why, now)
    number = before.tries + 1
    return before.model_copy(update={"tries": number, "pod": _name(observed, query, number)})


def _with_verdict(before: UpgradeStatus, report: UpgradeReport, now: datetime) -> UpgradeStatus:
    update = {"verdict": report.verdict, "message": report.message, "end_time": format_time(now)}
    return before.model_copy(update=update)


def _without_report(before: UpgradeStatus, why: str, now: datetime) -> UpgradeStatus:
    hint = "change spec.restartNonce to compare again, or set spec.upgrade.mode to Replace"
    message = f"the comparison has failed: {why}"[:1900]
    return _with_verdict(before, UpgradeReport(verdict=UpgradeVerdict.NOT_COMPARED, message=f"{message}; {hint}"), now)


def _ended(pod: Manifest) -> Mapping[str, Any] | None:
    """Return how the container of a comparison has ended; None if it has not."""
    for each in states(pod, DRIVER):
        if (ended := each.get("state", {}).get("terminated")) is not None:
            return dict(ended)
    return None


def _is_ending(observed: ObservedQuery, name: str) -> bool:
    found = observed.objects.get(("Pod", name))
    return found is not None and "deletionTimestamp" in found["metadata"]


def _own_pod(observed: ObservedQuery, name: str) -> Manifest | None:
    found = observed.objects.get(("Pod", name))
    if found is None or "deletionTimestamp" in found["metadata"]:
        return None
    owners = found["metadata"].get("ownerReferences") or ()
    is_own = any(each.get("uid") == observed.owner.uid for each in owners)
    return found if is_own and found["metadata"]["labels"].get(ROLE_LABEL) == SHADOW else None


def _phase(pod: Manifest) -> str:
    return str(pod.get("status", {}).get("phase", ""))
