"""A compared version that takes over in the running driver, without another pod. Pure functions.

A version can do so that differs from the running one in nothing but the query document: process, session and executors
are then those that another driver would have. The steps, each of which any operator finds done or not:

1. The StatefulSet gets the new template, which restarts nothing: a pod that is lost from now on is followed by one of
   the new version. This step decides for the pod.
2. The plan's ConfigMap names the version for the pod that runs, by uid: its container, if it starts again, runs the new
   version. This step decides for the process. Only the Role, which users cannot write, lets the driver read the
   configuration, whose name is a hash of its content.
3. The driver ends the old version after its running batch, begins the new one on the checkpoint as any start does, and
   reports that. So the checkpoint is never that of two versions at once.
4. From that report on, the pod counts as created for the new version (``pods.driver_versions``): it becomes healthy, or
   is rolled back, as after a replacement.

If the driver refuses, or does not report in time, it is replaced, whichever of both versions it runs by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from millrace_api.model.deployment import Placement
from millrace_api.model.streamquery import DRIVER, Spec
from millrace_api.model.takeover import NEXT_VERSION_KEY, NextVersion

from ..resources.manifests import to_json, with_plan_entry
from ..resources.names import Manifest, Owner
from ..resources.shadow import COMPARED
from ..resources.spec_changes import REVISION, replaced_fields
from .conditions import ProgressingReason, parse_time
from .observed_query import ObservedQuery
from .pods.driver_health import ready_since, states
from .shadow import is_asked_for, is_passed
from .target import DriverTarget, runs_healthy

TAKEOVER_WITHIN = timedelta(minutes=2)
"""Time in which the driver reports that it runs the new version; a batch may have to end before."""

IN_PROCESS = frozenset(COMPARED - {"spec.image", "spec.code", "spec.sparkConf"})
"""Fields that a running driver can follow; the others are those of its process, its session or its executors."""

_QUERY_FILE = "query.yaml"


def may_take_over(observed: ObservedQuery, target: DriverTarget, now: datetime) -> bool:
    """Return whether the target is to take over in the running driver, as far as its spec and its pod say.

    Only a version that was compared does: what the driver's process has done before is no part of what a plain
    replacement would start from, and the comparison has shown that the results are as they should be.
    """
    if not target.may_run or target.rejected is not None or target.turn is not None or observed.healthy is None:
        return False
    upgrade = observed.status.upgrade if target.shadow is None else target.shadow.status
    if upgrade is None or upgrade.revision != target.revision or not is_asked_for(target.query.spec):
        return False
    pod, running = observed.driver, observed.running_version
    if pod is None or running is None or not observed.wants_pods or not _is_ready(pod, observed, target):
        return False
    if observed.partitioner_set is not None:  # its replicas read the document of the next pod
        return False
    is_late = (due := takeover_due(observed, target)) is not None and now >= due
    return (
        is_passed(upgrade, target.query.spec)
        and runs_healthy(observed)
        and running.refused != target.revision
        and not is_late
        and can_be_followed(observed.healthy[1], target.query.spec)
    )


def _is_ready(pod: Manifest, observed: ObservedQuery, target: DriverTarget) -> bool:
    """Return whether the driver is ready; or once it may have begun the takeover, whether its container runs.

    It is not ready from the end of the old version to the first batch of the new one, which it reports in between.
    """
    if "deletionTimestamp" in pod["metadata"]:
        return False
    if takeover_due(observed, target) is None or observed.revision_to_run != target.revision:
        return ready_since(pod) is not None
    found = [each.get("state") or {} for each in states(pod, DRIVER)]
    return not any("waiting" in each or "terminated" in each for each in found)


def can_be_followed(before: Spec, after: Spec) -> bool:
    """Return whether a driver could follow the change, by its fields alone; its objects say the rest."""
    changed = replaced_fields(before, after)
    inline = all(each.partitioner.placement.at_start is Placement.INLINE for each in (before, after))
    return inline and bool(changed) and IN_PROCESS.issuperset(changed)


def takeover_due(observed: ObservedQuery, target: DriverTarget) -> datetime | None:
    """Return when a takeover is given up that has begun; None before it has."""
    status = observed.status
    if status.revision != target.revision or status.revision_time is None or observed.revision == target.revision:
        return None
    return parse_time(status.revision_time) + TAKEOVER_WITHIN


def runs_as(observed: ObservedQuery, before: list[Manifest], after: list[Manifest]) -> bool:
    """Return whether the driver could be that of the objects ``after``, but for its query document and their names.

    They are compared with the objects of what it runs, ``before``, and with its pod. That may be of an earlier operator
    with another default image: then the version was compared in the new one.
    """
    pod, owner = observed.driver, observed.owner
    mounted = observed.objects.get(("ConfigMap", observed.configuration or ""))
    if pod is None or mounted is None or _comparable(before, owner) != _comparable(after, owner):
        return False
    (wanted,) = (each for each in after if owner.is_configuration(each["metadata"]["name"]))
    (follows,) = (each for each in after if (each["kind"], each["metadata"]["name"]) == ("StatefulSet", owner.driver))
    same_files = _without_document(mounted, owner)["data"] == _without_document(wanted, owner)["data"]
    return same_files and _image(pod) == _image(follows["spec"]["template"])


def with_next_version(
    desired: list[Manifest], observed: ObservedQuery, target: DriverTarget, *, takes_over: bool
) -> list[Manifest]:
    """Return the desired objects, of which the plan's ConfigMap names the version that the driver in its pod is to run.

    That is as long as the pod was created from another one, as its container may start again at any time, or as it runs
    another one. The template of the next pod comes first. Without a version the entry is emptied, see
    ``requested_snapshots.with_request``.
    """
    pod, text = observed.driver_as_created, ""
    of_template = "" if pod is None else (pod["metadata"].get("annotations") or {}).get(REVISION, "")
    follows = takes_over or observed.revision == target.revision
    is_other = not of_template == observed.revision == target.revision
    if pod is not None and is_other and target.revision == observed.revision_to_run and follows:
        names = (each["metadata"]["name"] for each in desired if each["kind"] == "ConfigMap")
        name = next(name for name in names if observed.owner.is_configuration(name))
        text = NextVersion(pod=pod["metadata"]["uid"], revision=target.revision, configuration=name).to_json()
    elif takes_over:  # what runs stays named until the template is that of the target
        text = observed.next_version
    if not text and not observed.next_version:
        return desired
    return with_plan_entry(desired, observed.owner, NEXT_VERSION_KEY, text)


def takeover_progress() -> tuple[ProgressingReason, str]:
    """Return reason and message of Progressing during a takeover."""
    message = "the new version takes over in the running driver, between two batches"
    return ProgressingReason.TAKING_OVER, message


def _comparable(manifests: Iterable[Manifest], owner: Owner) -> list[Any]:
    """Return manifests without what always differs between two versions, or what a driver follows as it runs."""
    found = list(manifests)
    names = [name for each in found if owner.is_configuration(name := each["metadata"]["name"])]
    return [_without_version(each, owner, names) for each in found if each["metadata"]["name"] != owner.plan]


def _image(template: Mapping[str, Any]) -> str | None:
    """Return the image of the driver's container in a pod or its template."""
    return next((each.get("image") for each in template["spec"]["containers"] if each["name"] == DRIVER), None)


def _without_version(manifest: Manifest, owner: Owner, names: Iterable[str]) -> Mapping[str, Any]:
    text = to_json(_without_document(manifest, owner))
    for name in names:
        text = text.replace(to_json(name), '"configuration"')
    return {"text": text}


def _without_document(manifest: Manifest, owner: Owner) -> Manifest:
    metadata = manifest["metadata"]
    if owner.is_configuration(metadata["name"]):
        return manifest | {
            "data": {name: text for name, text in (manifest.get("data") or {}).items() if name != _QUERY_FILE}
        }
    if manifest["kind"] != "StatefulSet" or metadata["name"] != owner.driver:
        return manifest
    template = manifest["spec"]["template"]
    annotations = template["metadata"]["annotations"] | {REVISION: ""}
    of_template = template | {"metadata": template["metadata"] | {"annotations": annotations}}
    return manifest | {"spec": manifest["spec"] | {"template": of_template}}
