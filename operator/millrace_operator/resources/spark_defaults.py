"""Spark's settings for a driver in client mode in a pod: a file ``spark-defaults.conf``."""

from __future__ import annotations

from millrace_api.streamquery import StreamQuery

from .names import BLOCK_PORT, RPC_PORT, Owner

LOCAL = "/var/lib/millrace/local"
"""Folder for shuffles and for what RocksDB holds beside the checkpoint."""

OVERHEAD = 0.4
"""Memory beside the JVM's own, as a share of it: Python workers, RocksDB, Arrow buffers."""

EXECUTOR_TEMPLATE = "/etc/millrace/query/executor-pod.yaml"


def spark_defaults(query: StreamQuery, owner: Owner, image: str) -> str:
    """One setting per line, those of the user last; those that a user may not set are refused before."""
    executors = query.spec.executors
    settings = {
        "spark.app.name": owner.name,
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.submit.deployMode": "client",
        "spark.driver.host": f"{owner.driver}.{owner.namespace}.svc",
        "spark.driver.port": RPC_PORT,
        "spark.driver.memory": query.spec.driver.memory,
        "spark.blockManager.port": BLOCK_PORT,
        "spark.executor.instances": executors.initial,
        "spark.executor.cores": executors.cores,
        "spark.executor.memory": executors.memory,
        "spark.executor.memoryOverheadFactor": OVERHEAD,
        "spark.local.dir": LOCAL,
        "spark.kubernetes.namespace": owner.namespace,
        "spark.kubernetes.driver.pod.name": owner.driver_pod,
        "spark.kubernetes.executor.container.image": image,
        "spark.kubernetes.executor.podTemplateFile": EXECUTOR_TEMPLATE,
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        "spark.kubernetes.executor.podNamePrefix": owner.executors,
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.executor.useDriverPodIP": "false",
        "spark.dynamicAllocation.enabled": "false",
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.rddBlocks.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
    }
    lines = [f"{name} {_escaped(value)}" for name, value in (settings | dict(query.spec.spark_conf)).items()]
    return "\n".join(lines) + "\n"


def _escaped(value: object) -> str:
    """As Java reads it from a properties file: a backslash is one, and a line does not end in the middle."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
