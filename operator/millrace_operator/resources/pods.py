"""Pod templates of a query, merged with the user's; all at the restricted security level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace_api.model.code import CONFIG_MAPS
from millrace_api.model.deployment import CPU_LIMIT_VARIABLE
from millrace_api.model.kafka_options import ZONE_VARIABLE
from millrace_api.model.plan import PLAN_KEY
from millrace_api.model.status import REPORT_VARIABLE
from millrace_api.model.streamquery import DRIVER, EXECUTOR, PARTITIONER, StreamQuery
from millrace_api.model.takeover import POD_UID_VARIABLE
from millrace_api.model.values import Cores

from .driver_config import (
    AUTH_FILE,
    CHECKPOINT,
    CODE_VOLUME,
    FILES,
    LOCAL,
    QUERY_FILE,
    SECRETS,
    executor_secrets,
    grace,
)
from .memory import RAISED_MEMORY, driver_memory, executor_memory, raises_text
from .names import BLOCK_PORT, METRICS_PORT, RPC_PORT, SERVICE_PORT, Manifest, Owner
from .pod_defaults import PodDefaults
from .scheduling import announced
from .spec_changes import REVISION, revision
from .spec_values import has_identity_in_cloud, names_zone

Secrets = Mapping[str, set[str]]
"""Names of the Secrets that a query needs, with the entries of each."""

Volumes = Mapping[str, tuple[str, Manifest]]
"""Mount path and source of volumes, by name."""

_PLAN = "/etc/millrace/plan"
"""Mount path of the plan's ConfigMap."""

_REPORT = "/dev/termination-log"
"""Path of the container's termination message."""

_ZONE_LABEL = "metadata.labels['topology.kubernetes.io/zone']"
"""The zone of a pod's node, which Kubernetes 1.35 and later put on the pod; before, and elsewhere, it is empty."""

_INDEX = "MILLRACE_INDEX"
"""Environment variable with the number of a partitioner replica, which its StatefulSet puts on its pod as a label."""

_CPU_LIMIT = {
    "name": CPU_LIMIT_VARIABLE,
    "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
}
"""Environment variable with the CPU limit of the container, which a user's template may set; else the node's CPU."""

_HUNG_GRACE = 30
"""Grace period in seconds of a container that fails its liveness probe."""

_SCRAPED = {
    "prometheus.io/scrape": "true",
    "prometheus.io/port": str(METRICS_PORT),
    "prometheus.io/path": "/metrics",
}
_TEMPORARY = "/tmp"  # noqa: S108 - a volume of the pod's own
_HOME = {"name": "HOME", "value": _TEMPORARY}
_LOCAL = "spark-local-dir-1"
"""Volume for local files; Spark recognizes the name and adds no volume of its own."""

_RESTRICTED: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_CONTAINER_SECURITY = _RESTRICTED | {"readOnlyRootFilesystem": True}

_MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
}
"""Merged lists and the key field of their entries (``patchMergeKey`` in Kubernetes' API)."""

_WHOLE = frozenset({"volumes", "env"})
"""Lists whose entries are replaced as a whole, because an entry may have only one type or source."""


def driver_pod(query: StreamQuery, owner: Owner, defaults: PodDefaults, secrets: Secrets) -> Manifest:
    """Return the pod template of the driver's StatefulSet, but for its configuration and its Secret."""
    arguments = ["millrace", "driver", QUERY_FILE]
    arguments += ["--plan", f"{_PLAN}/{PLAN_KEY}", "--plan-config-map", owner.plan]
    arguments += ["--metrics-port", str(METRICS_PORT), "--grace", str(grace(query) - 5)]
    arguments += ["--auth-secret", AUTH_FILE]
    container = {
        "name": "driver",
        "image": query.spec.image or defaults.image,
        "args": arguments,  # for the image's entry point, which reaps orphaned processes
        "env": [
            {"name": "SPARK_CONF_DIR", "value": FILES},
            _HOME,
            {"name": REPORT_VARIABLE, "value": _REPORT},
            _from_pod("POD_IP", "status.podIP"),
            _from_pod("POD_NAME", "metadata.name"),
            _from_pod(POD_UID_VARIABLE, "metadata.uid"),
            _from_pod("POD_NAMESPACE", "metadata.namespace"),
            *_zone(query),
        ],
        "ports": [
            {"name": "driver-rpc", "containerPort": RPC_PORT},
            {"name": "blocks", "containerPort": BLOCK_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
            *([] if query.spec.lookups is None else [{"name": "lookups", "containerPort": SERVICE_PORT}]),
        ],
        "resources": _resources(query.spec.driver.cores, f"{driver_memory(query.spec, defaults.raised).limit}Mi"),
        "terminationMessagePath": _REPORT,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": _probe("/healthz", period=5, failures=60),  # the first batch may take much longer
        "readinessProbe": _probe("/readyz", period=10, failures=3),
        "livenessProbe": _probe("/healthz", period=10, failures=6) | {"terminationGracePeriodSeconds": _HUNG_GRACE},
        "securityContext": _CONTAINER_SECURITY,
    }
    volumes: Volumes = {"plan": (_PLAN, {"configMap": {"name": owner.plan}}), **_code_volumes(query)}
    pod = _pod(container, _spark_volumes(query), volumes, secrets, defaults)
    pod["serviceAccountName"] = query.spec.service_account_name or owner.driver
    pod["terminationGracePeriodSeconds"] = grace(query)
    template = {"metadata": {"labels": _labels(query, owner, DRIVER), "annotations": _SCRAPED}, "spec": pod}
    ours = {REVISION: revision(query.spec), RAISED_MEMORY: raises_text(defaults.raised) or None}
    of_template = strategic_merge(template, query.spec.driver.pod_template or {})
    merged = strategic_merge(of_template, {"metadata": {"annotations": ours}})
    return _restricted(announced(merged, query, owner, DRIVER), defaults)


def executor_pod(query: StreamQuery, owner: Owner, defaults: PodDefaults, secrets: Secrets) -> Manifest:
    """Return Spark's executor pod template; Spark adds image, command, resources and the driver as the owner."""
    container = {"name": "executor", "env": [_HOME, *_zone(query)], "securityContext": _CONTAINER_SECURITY}
    pod = _pod(container, _spark_volumes(query), {}, secrets, defaults)
    if query.spec.service_account_name is not None:  # for its identity in a cloud: executors have no token of it
        pod["serviceAccountName"] = query.spec.service_account_name
    pod["automountServiceAccountToken"] = False
    pod["terminationGracePeriodSeconds"] = grace(query)
    pod["topologySpreadConstraints"] = _spread(owner, EXECUTOR)
    template = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": _labels(query, owner, EXECUTOR)},
        "spec": pod,
    }
    merged = strategic_merge(template, query.spec.executors.pod_template or {})
    return _restricted(announced(merged, query, owner, EXECUTOR), defaults)


def made_executor(query: StreamQuery, owner: Owner, defaults: PodDefaults) -> Manifest:
    """Return an executor's pod as Spark makes it of the template, as far as admission of the API server looks at it."""
    pod = executor_pod(query, owner, defaults, executor_secrets(query))
    memory = f"{executor_memory(query.spec, defaults.raised).limit}Mi"
    sized = _resources(query.spec.executors.cores, memory)
    container, *others = pod["spec"]["containers"]
    resources = strategic_merge(sized, container.get("resources") or {})
    for kind in ("requests", "limits"):
        resources[kind]["memory"] = memory  # Spark's own value replaces that of the template
    image = query.spec.image or defaults.image
    containers = [container | {"image": image, "resources": resources}, *others]
    metadata = pod["metadata"] | {"name": owner.executors, "namespace": owner.namespace}
    return pod | {"metadata": metadata, "spec": pod["spec"] | {"restartPolicy": "Never", "containers": containers}}


def partitioner_pod(query: StreamQuery, owner: Owner, defaults: PodDefaults, secrets: Secrets) -> Manifest:
    """Return the pod template of the StatefulSet of partitioner replicas, but for its configuration.

    A replica has no Spark, no checkpoint and no right in the cluster. It is ready when it places records, for which the
    driver has to run; that it serves probes is enough to have started.
    """
    settings = query.spec.partitioner.pod
    arguments = ["millrace", "partitioner", QUERY_FILE, "--index", f"$({_INDEX})"]
    arguments += ["--host", "$(POD_IP)", "--metrics-port", str(METRICS_PORT)]
    container = {
        "name": PARTITIONER,
        "image": defaults.image,
        "args": arguments,
        "env": [
            _HOME,
            {"name": REPORT_VARIABLE, "value": _REPORT},
            _from_pod("POD_IP", "status.podIP"),
            _from_pod(_INDEX, "metadata.labels['apps.kubernetes.io/pod-index']"),
            _CPU_LIMIT,
            *_zone(query),
        ],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "resources": _resources(settings.cores, f"{settings.memory.upper()}i"),
        "terminationMessagePath": _REPORT,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": _probe("/healthz", period=5, failures=60),
        "readinessProbe": _probe("/readyz", period=10, failures=3),
        "livenessProbe": _probe("/healthz", period=10, failures=6) | {"terminationGracePeriodSeconds": _HUNG_GRACE},
        "securityContext": _CONTAINER_SECURITY,
    }
    pod = _pod(container, {"tmp": (_TEMPORARY, {"emptyDir": {}})}, {}, secrets, defaults)
    pod["serviceAccountName"] = partitioner_account(query) or owner.partitioner
    pod["automountServiceAccountToken"] = False
    pod["terminationGracePeriodSeconds"] = grace(query)
    pod["topologySpreadConstraints"] = _spread(owner, PARTITIONER)
    template = {"metadata": {"labels": _labels(query, owner, PARTITIONER), "annotations": _SCRAPED}, "spec": pod}
    merged = strategic_merge(template, settings.pod_template or {})
    return _restricted(announced(merged, query, owner, PARTITIONER), defaults)


def _labels(query: StreamQuery, owner: Owner, role: str) -> dict[str, str]:
    """Return the labels of a pod: the user's for costs, and the operator's own, which nothing overrides."""
    return {**(query.spec.labels or {}), **owner.labels(role)}


def partitioner_account(query: StreamQuery) -> str | None:
    """Return the query's account if partitioner replicas need its identity in a cloud; they have no token of it."""
    return query.spec.service_account_name if has_identity_in_cloud(query.spec.sources) else None


def _zone(query: StreamQuery) -> list[Manifest]:
    return [_from_pod(ZONE_VARIABLE, _ZONE_LABEL)] if names_zone(query.spec) else []


def _restricted(template: Manifest, defaults: PodDefaults) -> Manifest:
    """Enforce the restricted level on the pod and all its containers, whatever the user's template changes."""
    spec = template["spec"]
    contained = {
        kind: [each | {"securityContext": _over(_RESTRICTED, each.get("securityContext"))} for each in spec[kind]]
        for kind in ("containers", "initContainers")
        if kind in spec
    }
    context = {"securityContext": _over(defaults.security, spec.get("securityContext"))}
    return template | {"spec": spec | contained | context}


def _over(context: Manifest, changes: Mapping[str, Any] | None) -> Manifest:
    """Merge changes into a security context; null removes nothing from it."""
    return strategic_merge(context, {name: value for name, value in (changes or {}).items() if value is not None})


def _spark_volumes(query: StreamQuery) -> Volumes:
    """Return the writable volumes of driver and executors."""
    volumes: dict[str, tuple[str, Manifest]] = {
        "tmp": (_TEMPORARY, {"emptyDir": {}}),
        _LOCAL: (LOCAL, {"emptyDir": {}}),
    }
    checkpoint = query.spec.checkpoint
    if checkpoint is not None and checkpoint.claim_name is not None:
        volumes["checkpoint"] = (CHECKPOINT, {"persistentVolumeClaim": {"claimName": checkpoint.claim_name}})
    return volumes


def _code_volumes(query: StreamQuery) -> Volumes:
    """Return the volumes with code from ConfigMaps, which only the driver mounts: executors get the code from it.

    A pod waits without a word for a ConfigMap or a key that does not exist, so they are optional: the driver looks for
    each file, and reports one that is missing.
    """
    keys: dict[str, set[str]] = {}
    for file in query.spec.code or ():
        if file.config_map is not None:
            keys.setdefault(file.config_map.name, set()).add(file.config_map.key)
    return {
        f"{CODE_VOLUME}{number}": (f"{CONFIG_MAPS}/{name}", _config_map(name, keys[name]))
        for number, name in enumerate(sorted(keys))
    }


def _config_map(name: str, keys: set[str]) -> Manifest:
    items = [{"key": key, "path": key} for key in sorted(keys)]
    return {"configMap": {"name": name, "items": items, "optional": True}}


def _pod(
    container: dict[str, Any], writable: Volumes, read_only: Volumes, secrets: Secrets, defaults: PodDefaults
) -> Manifest:
    """Return the common part of all pods."""
    read = dict(read_only) | {
        f"secret-{number}": (f"{SECRETS}/{name}", _secret(name, keys))
        for number, (name, keys) in enumerate(sorted(secrets.items()))
    }
    mounts: list[Manifest] = [{"name": name, "mountPath": path} for name, (path, _) in writable.items()]
    mounts += [{"name": name, "mountPath": path, "readOnly": True} for name, (path, _) in read.items()]
    return {
        "containers": [container | defaults.container | {"volumeMounts": mounts}],
        "volumes": [{"name": name, **source} for name, (_, source) in (*writable.items(), *read.items())],
        **defaults.pod,
        "securityContext": defaults.security,
        "enableServiceLinks": False,
    }


def _secret(name: str, keys: set[str]) -> Manifest:
    items = [{"key": key, "path": key} for key in sorted(keys)]
    return {"secret": {"secretName": name, "items": items, "defaultMode": 0o440}}


def _spread(owner: Owner, role: str) -> list[Manifest]:
    """Return the constraint that spreads the pods of a role over nodes, as far as there is room."""
    return [
        {
            "topologyKey": "kubernetes.io/hostname",
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": owner.selector(role)},
        }
    ]


def _resources(cores: Cores, memory: str) -> Manifest:
    """Request CPU without a limit, to avoid throttling; request memory equal to its limit, to guarantee it."""
    return {"requests": {"cpu": cores.quantity, "memory": memory}, "limits": {"memory": memory}}


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 3,
    }


def _from_pod(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``patch`` into ``base``: null removes a field, unkeyed lists and other values are replaced.

    Entries of merged lists stay in the order of ``base``; new ones follow.
    """
    result = dict(base)
    for name, value in patch.items():
        old = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = strategic_merge(old if isinstance(old, Mapping) else {}, value)
        elif name in _MERGE_KEYS and isinstance(value, list):
            result[name] = _merged_list(old if isinstance(old, list) else [], value, name)
        else:
            result[name] = value
    return result


def _merged_list(base: list[Any], patch: list[Any], name: str) -> list[Any]:
    key = _MERGE_KEYS[name]
    result: dict[Any, Any] = {entry[key]: entry for entry in base}
    for entry in patch:
        if not isinstance(entry, Mapping) or key not in entry:
            result["unnamed", len(result)] = entry  # left for the API server to reject
            continue
        old = {} if name in _WHOLE else result.get(entry[key], {})
        result[entry[key]] = strategic_merge(old, entry)
    return list(result.values())
