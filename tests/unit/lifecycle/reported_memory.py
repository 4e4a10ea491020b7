"""What a driver reports of memory, and what the operator makes of it, for tests on the cluster in memory."""

from millrace_api.model.memory_use import (
    MEMORY_KEY,
    ExecutorSeries,
    MemoryPart,
    MemoryReport,
    MemorySample,
    MemorySeries,
)
from unit.api.documents import MINIMAL, changed

from .cluster import Cluster

BOUND = changed(MINIMAL, 12, "  driver: {maxMemory: 4g}")
LIMIT = 256 + 384 + 384
"""MiB beside the heap of a driver with one source."""

BESIDE_EXECUTOR = 640
"""MiB beside the heap of an executor."""

OLD = 683
"""MiB of the old generation of a heap of 1 GiB."""


def started(text=BOUND):
    """A query whose driver has been ready for over a minute."""
    cluster = Cluster()
    cluster.put(text)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=70)
    return cluster


def reports(cluster, *mebibytes, part=MemoryPart.HEAP, limit=OLD, every=300, pod=None, executor=()):
    """Report what the driver uses, one measurement after the other, as the driver of the pod with this uid.

    ``executor`` is what executor 3 uses beside its heap.
    """
    held = cluster.objects["ConfigMap", "trips-by-cell-plan"]
    own = series(cluster, mebibytes, part, limit, every)
    report = MemoryReport(pod=pod or uid(cluster), series=(own,) if mebibytes else ())
    if executor:
        beside = series(cluster, executor, MemoryPart.BESIDE_HEAP, BESIDE_EXECUTOR, every)
        report = report.model_copy(update={"executor": ExecutorSeries(executor="3", series=(beside,))})
    held["data"][MEMORY_KEY] = report.to_json()
    cluster._changed(held)
    return cluster.settle()


def series(cluster, mebibytes, part, limit, every):
    now = int(cluster.time.timestamp())
    samples = tuple(
        MemorySample(time=now - every * (len(mebibytes) - 1 - number), used=int(each * 2**20))
        for number, each in enumerate(mebibytes)
    )
    return MemorySeries(part=part, limit=limit << 20, samples=samples)


def uid(cluster):
    return cluster.pod["metadata"]["uid"]


def limit(cluster):
    """The memory limit of the driver's pod in MiB."""
    return int(cluster.pod["spec"]["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi"))


def degraded(cluster):
    found = cluster.condition("Degraded")
    return found.reason, found.message
