"""What announces pods to the batch scheduler of ``spec.scheduling``: labels, annotations and names of the scheduler.

Each pod is announced by itself, so executors come and go as the plan says. What must start together, the driver and the
minimum of executors, is in ``gangs``. docs/schedulers.md says why.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from millrace_api.model.scheduling import BatchScheduler
from millrace_api.model.streamquery import EXECUTOR, PARTITIONER, Spec, StreamQuery

from .names import Manifest, Owner
from .spec_changes import revision
from .spec_values import FieldValues, pod_templates

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a pod, or of any other object, that Kueue admits: the name of its LocalQueue."""

KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
"""Label of a pod: the WorkloadPriorityClass by which Kueue orders and preempts it, in the place of a PriorityClass."""

_KUEUE_MANAGED = "kueue.x-k8s.io/managed"
_KUEUE_OWN_QUOTA = "kueue.x-k8s.io/pod-suspending-parent"
"""Annotation of a pod that needs quota of its own: without it, Kueue takes it for a part of the driver that owns it."""

VOLCANO_GROUP = "scheduling.k8s.io/group-name"
"""Annotation of a pod: the name of its PodGroup."""

VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
YUNIKORN_QUEUE = "yunikorn.apache.org/queue"
YUNIKORN_APPLICATION = "yunikorn.apache.org/app-id"
"""Label of a pod: the application that it belongs to, whose first pod decides its queue and gang."""

YUNIKORN_GROUP = "yunikorn.apache.org/task-group-name"
"""Annotation of a pod: its group among those of the gang."""

SCHEDULER_NAMES = {BatchScheduler.VOLCANO: "volcano", BatchScheduler.YUNIKORN: "yunikorn"}
"""Names of the schedulers that bind pods themselves; Kueue leaves that to the cluster's own."""

_ANNOUNCES = ("kueue.x-k8s.io/", "scheduling.k8s.io/", "scheduling.volcano.sh/", "volcano.sh/", "yunikorn.apache.org/")
"""Prefixes of the labels and annotations that these schedulers read."""

_YUNIKORN_OLD = ("applicationId", "queue")
"""Labels that YuniKorn reads, too."""

_KUEUE_GATE = "kueue.x-k8s.io/"
_NO_NODE = re.compile(r"\bnodes? (?:are|is) (?:un)?available\b")
"""Pattern of a scheduler's message about nodes: the pod's turn has come, and none of them can take it."""

_WAITS = re.compile(r"\b(?:queues?|quotas?|gangs?|pod ?groups?|placeholders?|overused)\b", re.IGNORECASE)
"""Pattern of a scheduler's message about the queue or the gang; all others are about the pod itself."""

_NAMES = re.compile(r'"[^"]*"')
"""Pattern of names in such a message, which may contain any word."""


class QueueWait(NamedTuple):
    """A pod that waits in a queue; ``says`` is the scheduler's own message, empty if it says no more than that."""

    scheduler: BatchScheduler
    queue: str
    says: str = ""

    def __str__(self) -> str:
        text = f"waits for quota in queue {self.queue} of {self.scheduler}"
        return f"{text}: {self.says}" if self.says else text


def announced(template: Manifest, query: StreamQuery, owner: Owner, role: str) -> Manifest:
    """Return a pod template with what the query's batch scheduler needs, over whatever the template has of it."""
    scheduling = query.spec.scheduling
    if scheduling is None:
        return template
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}
    match scheduling.scheduler:
        case BatchScheduler.KUEUE:
            labels[KUEUE_QUEUE] = scheduling.queue
            if role == EXECUTOR:  # owned by the driver's pod, which has quota for itself alone
                labels[_KUEUE_MANAGED] = "true"
                annotations[_KUEUE_OWN_QUOTA] = "pod"
        case BatchScheduler.VOLCANO:
            annotations |= {VOLCANO_GROUP: owner.name, VOLCANO_QUEUE: scheduling.queue}
        case BatchScheduler.YUNIKORN:
            labels |= {YUNIKORN_APPLICATION: _application(query, owner, role), YUNIKORN_QUEUE: scheduling.queue}
            if role != PARTITIONER:
                annotations[YUNIKORN_GROUP] = role
    if (name := SCHEDULER_NAMES.get(scheduling.scheduler)) is not None:
        spec["schedulerName"] = name
    if scheduling.priority_class is not None:
        spec["priorityClassName"] = scheduling.priority_class
    metadata = dict(template.get("metadata", {}))
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    if annotations:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    return template | {"metadata": metadata, "spec": template["spec"] | spec}


def queue_wait(pod: Manifest) -> QueueWait | None:
    """Return the queue that a pod waits in, as it shows by itself; None if it waits in none, or no longer."""
    condition = _not_scheduled(pod)
    if condition is None:
        return None
    labels, annotations = (pod["metadata"].get(part) or {} for part in ("labels", "annotations"))
    if KUEUE_QUEUE in labels:
        gates = pod["spec"].get("schedulingGates") or ()
        is_held = any(each["name"].startswith(_KUEUE_GATE) for each in gates)
        return QueueWait(BatchScheduler.KUEUE, labels[KUEUE_QUEUE]) if is_held else None
    says = condition.get("message", "")
    if says and (_NO_NODE.search(says) or not _WAITS.search(_NAMES.sub("", says))):
        return None
    scheduler = pod["spec"].get("schedulerName")
    if scheduler == SCHEDULER_NAMES[BatchScheduler.VOLCANO] and VOLCANO_QUEUE in annotations:
        return QueueWait(BatchScheduler.VOLCANO, annotations[VOLCANO_QUEUE], says)
    if scheduler == SCHEDULER_NAMES[BatchScheduler.YUNIKORN] and YUNIKORN_QUEUE in labels:
        return QueueWait(BatchScheduler.YUNIKORN, labels[YUNIKORN_QUEUE], says)
    return None


def is_announced(pod: Manifest) -> bool:
    """Return whether a batch scheduler decides when a pod may start."""
    labels = pod["metadata"].get("labels") or {}
    return KUEUE_QUEUE in labels or pod.get("spec", {}).get("schedulerName") in SCHEDULER_NAMES.values()


def queued_by_template(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield what announces pods to a batch scheduler beside ``spec.scheduling``: labels, annotations, schedulers."""
    for name in spec.labels or ():
        if _announces(name):
            yield f"spec.labels[{name}]", name
    for field, template in pod_templates(spec).items():
        metadata, pod = template.get("metadata"), template.get("spec")
        scheduler = str(pod.get("schedulerName")) if isinstance(pod, Mapping) else ""
        if scheduler in SCHEDULER_NAMES.values():
            yield f"{field}.spec.schedulerName", scheduler
        for part in ("labels", "annotations"):
            found = metadata.get(part) if isinstance(metadata, Mapping) else None
            for name in found if isinstance(found, Mapping) else ():
                if _announces(str(name)):
                    yield f"{field}.metadata.{part}", str(name)


def priority_classes(spec: Spec) -> FieldValues:
    """Yield the PriorityClasses that a query names, by itself and in its pod templates."""
    if spec.scheduling is not None and spec.scheduling.priority_class is not None:
        yield "spec.scheduling.priorityClass", spec.scheduling.priority_class
    for field, template in pod_templates(spec).items():
        pod = template.get("spec")
        if isinstance(pod, Mapping) and pod.get("priorityClassName"):
            yield f"{field}.spec.priorityClassName", str(pod["priorityClassName"])


def workload_priorities(spec: Spec) -> Iterator[str]:
    """Yield the field of each label by which Kueue would take another priority than that of the PriorityClass."""
    if KUEUE_PRIORITY in (spec.labels or ()):
        yield f"spec.labels[{KUEUE_PRIORITY}]"
    for field, template in pod_templates(spec).items():
        metadata = template.get("metadata")
        labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
        if isinstance(labels, Mapping) and KUEUE_PRIORITY in labels:
            yield f"{field}.metadata.labels"


def _announces(name: str) -> bool:
    return name.startswith(_ANNOUNCES) or name in _YUNIKORN_OLD


def _application(query: StreamQuery, owner: Owner, role: str) -> str:
    """Return YuniKorn's id of an application, of which the first pod says what its queue and its gang are.

    That has to be the driver. Partitioner replicas may come before it, so they are an application of their own.
    YuniKorn ignores another queue or gang under an id that it knows, so each has an id of its own.
    """
    if role == PARTITIONER:
        queue = "" if query.spec.scheduling is None else query.spec.scheduling.queue
        return f"{owner.uid}-{PARTITIONER}-{hashlib.sha256(queue.encode()).hexdigest()[:10]}"
    return f"{owner.uid}-{revision(query.spec)}"


def _not_scheduled(pod: Manifest) -> Mapping[str, Any] | None:
    """Return the condition of a pod that has no node yet; empty before a scheduler has looked at it."""
    if pod.get("spec", {}).get("nodeName") or "deletionTimestamp" in pod["metadata"]:
        return None
    for each in pod.get("status", {}).get("conditions", ()):
        if each["type"] == "PodScheduled":
            found: Mapping[str, Any] = each
            return found if each["status"] == "False" else None
    return {}
