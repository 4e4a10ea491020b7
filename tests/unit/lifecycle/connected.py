"""Queries with connections, and what the operator shows of them."""

from __future__ import annotations

import copy
import itertools

import yaml

from unit.api.documents import MINIMAL

from .cluster import KEY

LOGIN = {
    "mechanism": "PLAIN",
    "username": {"secretKeyRef": {"name": "kafka-login", "key": "user"}},
    "password": {"secretKeyRef": {"name": "kafka-login", "key": "password"}},
}
VERSIONS = itertools.count(1)


def query(name="trips", **spec):
    document = yaml.safe_load(MINIMAL)
    document["spec"] |= {
        "sources": {"trips": {"kafka": {"connection": name, "topic": "trips"}, "schema": "cell STRING"}},
        "query": {"sql": "SELECT cell, count(*) AS n FROM trips GROUP BY cell"},
        "sink": {"kafka": {"connection": name, "topic": "by-cell"}},
    }
    return yaml.safe_dump(document | {"spec": document["spec"] | spec})


def connection(brokers="kafka:9093", name="trips", generation=1, uid=None, namespace=KEY.namespace, **kafka):
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "Connection",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": uid or f"uid of {name}",
            "generation": generation,
            "resourceVersion": str(next(VERSIONS)),
        },
        "spec": {"kafka": {"bootstrapServers": brokers, **kafka}},
    }


def shown(cluster, body):
    """Let the operator see a Connection; return the status of the query after that."""
    cluster.reconciler.observations.connection_seen(copy.deepcopy(body))
    return cluster.settle()


def runs(cluster):
    return cluster.pod["metadata"]["annotations"]["millrace.io/revision"]
