"""Spark's settings for a driver in client mode in a pod: a file ``spark-defaults.conf``."""

from __future__ import annotations

from millrace_api.model.streamquery import StreamQuery

from .memory import executor_overhead, state_store
from .names import BLOCK_PORT, RPC_PORT, Manifest, Owner

LOCAL = "/var/lib/millrace/local"
"""Folder for shuffles and for what RocksDB holds beside the checkpoint."""

EXECUTOR_TEMPLATE = "/etc/millrace/query/executor-pod.yaml"

FAILURES = 50
"""Executors that may die within ten minutes; with more, a query ends and is started anew. Without, Spark would count
a stream's failures for ever."""

_GRACE = 30
"""Seconds that a pod may take to end beside its running batch."""

_BATCHES = 5
"""Intervals that the running batch may take to end."""


DECOMMISSION = "/opt/millrace/bin/decommission"
"""Program of the image that Kubernetes runs before it ends an executor."""


def spark_defaults(query: StreamQuery, owner: Owner, image: str, executor: Manifest) -> str:
    """What concerns the cluster, one setting per line; what only the driver knows, and the user's, it adds itself.

    Spark sets an executor's processors itself, so those that its template asks for are handed to Spark.
    """
    executors = query.spec.executors
    resources = executor["spec"]["containers"][0].get("resources", {})
    limit = resources.get("limits", {}).get("cpu")
    settings = {
        "spark.app.name": owner.name,
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.submit.deployMode": "client",
        "spark.driver.port": RPC_PORT,
        "spark.driver.memory": query.spec.driver.memory,
        "spark.blockManager.port": BLOCK_PORT,
        "spark.executor.cores": executors.cores,
        "spark.executor.memory": executors.memory,
        "spark.executor.memoryOverhead": f"{executor_overhead(query.spec)}m",
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": state_store(query.spec),
        "spark.executor.maxNumFailures": FAILURES,
        "spark.executor.failuresValidityInterval": "10m",
        "spark.executor.decommission.forceKillTimeout": f"{grace(query)}s",
        "spark.local.dir": LOCAL,
        "spark.kubernetes.namespace": owner.namespace,
        "spark.kubernetes.driver.pod.name": owner.driver_pod,
        "spark.kubernetes.executor.container.image": image,
        "spark.kubernetes.executor.podTemplateFile": EXECUTOR_TEMPLATE,
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.executor.request.cores": resources.get("requests", {}).get("cpu", executors.cores),
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        # each driver lists its executors twice a minute: from the API server's memory, not from etcd
        "spark.kubernetes.executor.enablePollingWithResourceVersion": "true",
        "spark.kubernetes.decommission.script": DECOMMISSION,
        "spark.dynamicAllocation.enabled": "false",
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.rddBlocks.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        # an executor goes when it finds nothing new to hand over, for which it looks every 30 s by itself
        "spark.storage.decommission.replicationReattemptInterval": "2s",
        # shuffles of finished batches go with the driver's garbage, which may lie for long in a large heap
        "spark.cleaner.periodicGC.interval": "5min",
        "spark.executor.syncLogLevel.enabled": "true",
    }
    if limit is not None:
        settings["spark.kubernetes.executor.limit.cores"] = limit
    return "".join(f"{name} {_escaped(value)}\n" for name, value in settings.items())


def grace(query: StreamQuery) -> int:
    """Seconds that a pod may take to end: a running batch is longer than its interval where there is a backlog."""
    return _GRACE + int(_BATCHES * query.spec.batch_interval.seconds)


def _escaped(value: object) -> str:
    """As Java reads it from a properties file: a backslash is one, and a line does not end in the middle."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
