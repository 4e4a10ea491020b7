"""Configuration files of a driver in client mode: its query document and ``spark-defaults.conf``."""

from __future__ import annotations

from typing import Any

from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.connections import without_references

from .memory import driver_memory, executor_memory, state_store
from .names import BLOCK_PORT, RPC_PORT, Manifest, Owner
from .pod_defaults import PodDefaults

SECRETS = "/etc/millrace/secrets"
"""Mount path of Secrets: one folder per Secret, one file per entry."""

AUTH_FILE = "/etc/millrace/auth/secret"
"""Path of the secret that driver and executors share."""

CHECKPOINT = "/var/lib/millrace/checkpoint"
"""Mount path of the checkpoint's volume claim in driver and executors, with one folder per query name."""

CODE_VOLUME = "millrace-code-"
"""First part of the names of the volumes with code from ConfigMaps."""

LOCAL = "/var/lib/millrace/local"
"""Folder for shuffle files and RocksDB's local files."""

FILES = "/etc/millrace/query"
"""Mount path of a driver's configuration."""

QUERY_FILE = f"{FILES}/query.yaml"
"""Path of the document that the driver runs."""

_OPERATOR_FIELDS = frozenset(
    {"suspend", "image", "serviceAccountName", "labels", "scheduling", "restartNonce", "upgrade"}
)
"""Fields of a spec that only the operator uses."""

_OPERATOR_PARTS = {
    "driver": {"podTemplate", "maxMemory"},
    "executors": {"podTemplate", "maxMemory", "initial"},
    "parallelism": {"initial", "min"},
    "partitioner": {"pod", "replicas"},
    "scaling": {"mode", "window", "grace", "schedule"},
    "lookups": {"namespaces"},
}
"""Parts of further fields that only the operator uses, such as numbers that the plan gives to the driver."""

_IMAGE = "spark.kubernetes.executor.container.image"

_GRACE = 30
"""Seconds that a pod may take to end, in addition to its running batch."""

_BATCHES = 5
"""Batch intervals that the running batch may take to end."""


def mounted_query(query: StreamQuery) -> tuple[Manifest, dict[str, set[str]]]:
    """Return the document that the driver runs, and the entries that it needs, by Secret.

    The document lacks the parts that only the operator uses, and has paths of files instead of references to Secrets.
    It also lacks what is at its default, so that an image of an earlier version reads it, too.
    It names the namespace, since queries of several namespaces may have topics of their own in one Kafka cluster.
    A Secret is mounted and read as a file on use. So no ConfigMap contains it, and a rotated Secret takes effect.
    """
    document = query.to_short_document()
    name = document["metadata"]["name"]
    # with snapshots, the driver compares the image with that of the driver before it
    unused = _OPERATOR_FIELDS - ({"image"} if query.spec.snapshots is not None else set())
    spec = {part: value for part, value in without_references(document["spec"]).items() if part not in unused}
    for field, parts in _OPERATOR_PARTS.items():
        rest = {part: value for part, value in spec.pop(field, {}).items() if part not in parts}
        spec |= {field: rest} if rest else {}
    if query.spec.executors.min > 1:  # their default at the start, 1, is not within such bounds
        spec["executors"]["initial"] = query.spec.executors.min
    elif not query.spec.executors.min:  # the plan says when there is none, and images of earlier versions take no 0
        del spec["executors"]["min"]
    secrets: dict[str, set[str]] = {}
    spec = _with_files(spec, secrets)
    if query.spec.checkpoint is not None and query.spec.checkpoint.claim_name is not None:
        spec["checkpoint"] = {"uri": f"file://{CHECKPOINT}/{name}"}
    metadata = {part: value for part, value in document["metadata"].items() if part in ("name", "namespace")}
    return document | {"metadata": metadata, "spec": spec}, secrets


def executor_secrets(query: StreamQuery) -> dict[str, set[str]]:
    """Return the entries that executors need, by Secret: all but those of look-ups and lineage, the driver's own."""
    spec = query.spec.model_copy(update={"lookups": None, "lineage": None})
    return mounted_query(query.model_copy(update={"spec": spec}))[1]


def source_secrets(query: StreamQuery) -> dict[str, set[str]]:
    """Return the entries that a partitioner replica needs, by Secret: those of the sources that stream."""
    secrets: dict[str, set[str]] = {}
    sources = query.spec.to_document()["sources"]
    _with_files([sources[name] for name, source in query.spec.sources.items() if not source.is_static], secrets)
    return secrets


def spark_defaults(query: StreamQuery, owner: Owner, defaults: PodDefaults, executor: Manifest) -> str:
    """Return the cluster-related settings, one per line; the driver adds the user's settings and its own.

    Spark overrides an executor's CPU resources and pull policy, so those of the pod template become Spark settings.
    """
    executors, memory = query.spec.executors, executor_memory(query.spec, defaults.raised)
    resources = executor["spec"]["containers"][0].get("resources", {})
    settings = {
        "spark.app.name": owner.name,
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.submit.deployMode": "client",
        "spark.driver.port": RPC_PORT,
        "spark.driver.memory": driver_memory(query.spec, defaults.raised).heap,
        "spark.blockManager.port": BLOCK_PORT,
        "spark.executor.cores": executors.cores.slots,
        "spark.executor.memory": memory.heap,
        "spark.executor.memoryOverhead": f"{memory.beside}m",
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": state_store(memory.heap),
        # no number of failed executors ends a driver that may have others: Spark counts a pod that a quota refuses as a
        # failed executor, and tries once a second; the window bounds what it remembers
        "spark.executor.maxNumFailures": 2**31 - 1,
        "spark.executor.failuresValidityInterval": "10m",
        "spark.executor.decommission.forceKillTimeout": f"{grace(query)}s",
        "spark.local.dir": LOCAL,
        "spark.kubernetes.namespace": owner.namespace,
        "spark.kubernetes.driver.pod.name": owner.driver_pod,
        _IMAGE: query.spec.image or defaults.image,
        "spark.kubernetes.executor.podTemplateFile": f"{FILES}/executor-pod.yaml",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        "spark.kubernetes.executor.checkAllContainers": "false",  # a sidecar's end is not the executor's
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.executor.request.cores": resources.get("requests", {}).get("cpu", executors.cores.quantity),
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        # each driver lists its executors twice a minute: read from the API server's cache, not from etcd
        "spark.kubernetes.executor.enablePollingWithResourceVersion": "true",
        # a program in the image that Kubernetes runs before it ends an executor
        "spark.kubernetes.decommission.script": "/opt/millrace/bin/decommission",
        "spark.dynamicAllocation.enabled": "false",
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.rddBlocks.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        # an executor ends when it finds no more blocks to migrate; by default it checks every 30 s
        "spark.storage.decommission.replicationReattemptInterval": "2s",
        # shuffles of finished batches are removed by the driver's garbage collection, which is rare in a large heap
        "spark.cleaner.periodicGC.interval": "5min",
        "spark.executor.syncLogLevel.enabled": "true",
    }
    if (policy := executor["spec"]["containers"][0].get("imagePullPolicy")) is not None:
        settings["spark.kubernetes.container.image.pullPolicy"] = policy
    if (limit := resources.get("limits", {}).get("cpu")) is not None:
        settings["spark.kubernetes.executor.limit.cores"] = limit
    return "".join(f"{name} {_escaped(value)}\n" for name, value in settings.items())


def image_in(settings: str) -> str | None:
    """Return the image in ``spark_defaults``, which is that of driver and executors; None if there is none."""
    images = (line.partition(" ")[2] for line in settings.splitlines() if line.startswith(f"{_IMAGE} "))
    return next(images, None)


def grace(query: StreamQuery) -> int:
    """Return the grace period of a pod in seconds; with a backlog, a batch runs longer than its interval."""
    return _GRACE + int(_BATCHES * query.spec.batch_interval.seconds)


def _with_files(value: Any, secrets: dict[str, set[str]]) -> Any:
    """Replace each ``secretKeyRef`` by ``file: PATH`` and add its entry to ``secrets``."""
    if isinstance(value, dict):
        reference = value.get("secretKeyRef")
        if set(value) == {"secretKeyRef"} and isinstance(reference, dict):  # not an option or a setting of that name
            name, key = reference["name"], reference["key"]
            secrets.setdefault(name, set()).add(key)
            return {"file": f"{SECRETS}/{name}/{key}"}
        return {part: _with_files(below, secrets) for part, below in value.items()}
    return [_with_files(each, secrets) for each in value] if isinstance(value, list) else value


def _escaped(value: object) -> str:
    """Escape backslashes and line breaks for a Java properties file."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
