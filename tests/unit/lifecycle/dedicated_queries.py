"""Queries with partitioners in pods of their own."""

from __future__ import annotations

from unit.api.documents import MINIMAL, changed

from .cluster import REPLICAS

KAFKA = changed(MINIMAL, 7, '      kafka: {bootstrapServers: "kafka:9092", topic: trips}')
INLINE = KAFKA + "  partitioner: {algorithm: prompt}\n"
DEDICATED = KAFKA + "  partitioner: {algorithm: prompt, placement: Dedicated}\n"
OTHER_SQL = changed(DEDICATED, 10, "    sql: SELECT cell, count(*) AS trips FROM trips GROUP BY cell")
NAME = REPLICAS[1]


def wanted(cluster):
    return cluster.objects[REPLICAS]["spec"]["replicas"]


def pods(cluster):
    return [name for kind, name in cluster.objects if kind == "Pod" and name.startswith(NAME)]


def ready(cluster, *numbers):
    for number in numbers:
        cluster.pod_is_ready(("Pod", f"{NAME}-{number}"))


def follows(cluster):
    cluster.driver_follows(executors=1, partitions=8)
    return cluster.settle()


def running(cluster, text):
    """A query whose driver has been healthy for a while, under its first plan."""
    cluster.put(text)
    cluster.settle()
    cluster.pod_is_ready()
    ready(cluster, *range(len(pods(cluster))))
    follows(cluster)
    cluster.pass_time(seconds=61)
    return cluster
