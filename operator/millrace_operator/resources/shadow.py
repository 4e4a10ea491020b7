"""The pod that compares a changed query with the one that runs, before that is replaced, and what it reads."""

from __future__ import annotations

import hashlib
from typing import Any

from millrace_api.model.confinement import CONFINEMENT_FILE, Confinement
from millrace_api.model.streamquery import DRIVER, SHADOW, StreamQuery
from millrace_api.model.upgrade import UpgradeSpec

from .configuration import with_configuration
from .driver_config import FILES, mounted_query
from .manifests import to_json, to_yaml
from .memory import driver_memory, executor_memory
from .names import Manifest, Owner
from .pod_defaults import PodDefaults
from .pods import driver_pod
from .scheduling import VOLCANO_GROUP, YUNIKORN_APPLICATION, YUNIKORN_GROUP
from .spec_changes import REVISION, revision

REPORT = "/dev/termination-log"
"""Path of the termination message, by which the pod reports."""

COMPARED = frozenset(
    f"spec.{field}" for field in ("sources", "query", "emit", "additionalOutputs", "image", "code", "sparkConf")
)
"""Fields whose changes may change results, or how long they take; all others only replace the driver."""

RUNS = 3
"""Runs of a comparison: both versions, and the old one again if something differs."""

_STARTS = 1800
"""Seconds for what is no run: images that are pulled, snapshots, starts, and the comparison of the results."""

_OF_A_SERVICE = ("ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle")
"""Parts of a driver's container that a comparison lacks, which serves nothing."""


def comparison_id(running: str, query: StreamQuery) -> str:
    """Return ten hexadecimal digits that differ for every change that asks for another comparison.

    ``running`` is the revision that the query is compared with. What is done with its verdict does not count.
    """
    settings = {name: value for name, value in _asked(query).items() if name not in ("mode", "expectChanges")}
    text = f"{running} {revision(query.spec)} {to_json(settings)}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def shadow_objects(
    running: StreamQuery,
    changed: StreamQuery,
    owner: Owner,
    defaults: PodDefaults,
    pod: str,
    confinement: Confinement | None = None,
) -> list[Manifest]:
    """Return the ConfigMap with both versions, and the pod of this name that compares them.

    The pod is that of a driver of the changed version, with the room of an executor beside its own, without a right in
    the cluster. One that shares a volume with the driver runs on its node, since many volumes are of one node.
    ``confinement`` is what it has to enforce. Each version names its image, since both run in that of the changed one.
    """
    files: dict[str, str] = {}
    secrets: dict[str, set[str]] = {}
    for name, query in (("old.yaml", running), ("new.yaml", changed)):
        document, needed = mounted_query(query)
        asked = {"upgrade": _asked(query)} if query is changed else {}
        image = {"image": query.spec.image or defaults.image}
        files[name] = to_yaml(document | {"spec": document["spec"] | image | asked})
        secrets |= {secret: secrets.get(secret, set()) | keys for secret, keys in needed.items()}
    if confinement is not None:
        files[CONFINEMENT_FILE] = confinement.to_json()
    config_map = owner.manifest("v1", "ConfigMap", owner.shadow(comparison_id(revision(running.spec), changed)), {})
    config_map |= {"immutable": True, "data": files}
    template = driver_pod(_with_code_of(running, changed), owner, defaults, secrets)
    template = with_configuration(template, DRIVER, config_map["metadata"]["name"])
    containers = [
        _container(each, changed) if each["name"] == DRIVER else each for each in template["spec"]["containers"]
    ]
    spec = template["spec"] | {
        "containers": containers,
        "volumes": [each for each in template["spec"]["volumes"] if each["name"] != "plan"],
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": longest_seconds(changed.spec.upgrade or UpgradeSpec()),
    }
    if changed.spec.service_account_name is None:
        del spec["serviceAccountName"]
    if changed.spec.checkpoint is not None and changed.spec.checkpoint.claim_name is not None:
        spec["affinity"] = _with_driver(spec.get("affinity") or {}, owner)
    made = owner.manifest("v1", "Pod", pod, {"spec": spec}, SHADOW)
    labels = (template["metadata"].get("labels") or {}) | made["metadata"]["labels"]
    kept = template["metadata"].get("annotations") or {}
    unwanted = ("prometheus.io/", VOLCANO_GROUP, YUNIKORN_GROUP)  # it is no part of the driver's gang
    annotations = {name: value for name, value in kept.items() if not name.startswith(unwanted)}
    if YUNIKORN_APPLICATION in labels:
        labels[YUNIKORN_APPLICATION] = f"{owner.uid}-{SHADOW}"
    made["metadata"] |= {"labels": labels, "annotations": annotations | {REVISION: revision(changed.spec)}}
    return [config_map, made]


def _with_code_of(running: StreamQuery, changed: StreamQuery) -> StreamQuery:
    """Return the changed query with the code of both, for the pod to mount."""
    code = (*(running.spec.code or ()), *(changed.spec.code or ()))
    return changed.model_copy(update={"spec": changed.spec.model_copy(update={"code": code or None})})


def longest_seconds(upgrade: UpgradeSpec) -> int:
    """Return the seconds after which a comparison is given up: it waits for records, and runs the versions on them."""
    slowest = max(1.0, upgrade.slower_than)
    return int(upgrade.duration.seconds * (1 + (RUNS - 1) + 2 * slowest)) + _STARTS


def _asked(query: StreamQuery) -> Manifest:
    """Return what a query asks of its upgrades, without what is at its default."""
    return dict(query.spec.to_short_document().get("upgrade") or {})


def _container(container: Manifest, query: StreamQuery) -> Manifest:
    files = [f"{FILES}/{name}.yaml" for name in ("old", "new")]
    rest = {name: value for name, value in container.items() if name not in _OF_A_SERVICE}
    mounts = [each for each in container["volumeMounts"] if each["name"] != "plan"]
    env = [each for each in container["env"] if each["name"] != "SPARK_CONF_DIR"]
    return rest | {
        "args": ["millrace", "shadow", *files, "--report", REPORT],
        "env": env,
        "volumeMounts": mounts,
        "resources": _resources(container.get("resources") or {}, query),
    }


def _resources(of_driver: Manifest, query: StreamQuery) -> Manifest:
    """Return the resources of a driver with the memory of an executor beside its own, whose work it does here."""
    memory = driver_memory(query.spec).limit + executor_memory(query.spec).limit
    return {kind: {**(of_driver.get(kind) or {}), "memory": f"{memory}Mi"} for kind in ("requests", "limits")}


def _with_driver(affinity: dict[str, Any], owner: Owner) -> dict[str, Any]:
    """Return an affinity that also asks for the node of the driver's pod."""
    near = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": owner.selector(DRIVER)}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    of_pods = affinity.get("podAffinity") or {}
    return affinity | {"podAffinity": of_pods | {required: [*(of_pods.get(required) or ()), near]}}
