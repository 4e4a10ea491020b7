"""Events of several informers at once, each from its own thread: none is lost, and each query is queued."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import Configuration
from kubernetes.config import kube_config

from lab.ports import free_port
from millrace_operator.handlers.operator import Operator, OperatorOptions
from millrace_operator.lifecycle.observation_cache import ObservationCache
from millrace_operator.lifecycle.observed_query import QueryKey

NAMESPACES = ("cabs", "shop")
QUERIES, VERSIONS = 20, 30
LAST = 2 * VERSIONS


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    """An operator whose API server is away; it makes no request after its start."""
    cluster = {"name": "lab", "cluster": {"server": f"http://127.0.0.1:{free_port()}"}}
    context = {"name": "lab", "context": {"cluster": "lab", "user": "me"}}
    users = [{"name": "me", "user": {}}]
    document = {"current-context": "lab", "clusters": [cluster], "contexts": [context], "users": users}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document), encoding="utf-8")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(Configuration, "_default", None)
    options = OperatorOptions(namespaces=NAMESPACES, leader_elect=False, bind="127.0.0.1", port=0)
    made = Operator(options)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield made
    sys.setswitchinterval(before)
    made.stop()


def metadata(namespace: str, name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}", "resourceVersion": str(version), **more}


def query(namespace: str, number: int, version: int) -> dict[str, Any]:
    """A query that refers to a Connection."""
    sources = {"trips": {"files": {"path": f"/data/{number}", "format": "json"}}}
    sink = {"kafka": {"connection": "lake-1", "topic": f"topic-{number}"}}
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": metadata(namespace, f"query-{number}", version, generation=version),
        "spec": {"sources": sources, "sink": sink},
    }


def pod(namespace: str, number: int, version: int) -> dict[str, Any]:
    labels = {"millrace.io/query": f"query-{number}"}
    return {"kind": "Pod", "metadata": metadata(namespace, f"pod-{number}", version, labels=labels)}


def connection(namespace: str, number: int, version: int) -> dict[str, Any]:
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "Connection",
        "metadata": metadata(namespace, f"lake-{number}", version, generation=version),
        "spec": {"kafka": {"bootstrapServers": f"kafka-{version}:9092"}},
    }


def test_events_of_all_kinds_at_once_leave_the_last_version_of_each_object(operator: Operator) -> None:
    failures: list[BaseException] = []
    begin = threading.Barrier(3 * len(NAMESPACES))

    def report(handle: Any, make: Any, namespace: str, count: int) -> None:
        """Report all versions of some objects, of which every second one is deleted after each version."""
        try:
            begin.wait()
            for version in range(1, VERSIONS + 1):
                for number in range(1, count + 1):
                    handle("MODIFIED", make(namespace, number, 2 * version))
                    if number % 2 == 0:
                        handle("DELETED", make(namespace, number, 2 * version + 1))
        except BaseException as error:
            failures.append(error)

    owned = operator._owned
    kinds = (
        (operator._on_event, query, QUERIES),
        (owned._on_event, pod, QUERIES),
        (owned._on_connection, connection, 1),
    )
    threads = [
        threading.Thread(target=report, args=(handle, make, namespace, count))
        for namespace in NAMESPACES
        for handle, make, count in kinds
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    observations = operator._reconciler.observations
    kept = {QueryKey(namespace, f"query-{number}") for namespace in NAMESPACES for number in range(1, QUERIES, 2)}
    assert set(observations.queries()) == kept
    for key in kept:
        found = observations.of(key)
        assert found is not None
        versions = [each["metadata"]["resourceVersion"] for each in (found.body, *found.objects.values())]
        assert versions == [str(LAST)] * 2
    one_after_the_other = ObservationCache()
    for namespace in NAMESPACES:
        one_after_the_other.connection_seen(connection(namespace, 1, LAST))
        for number in range(1, QUERIES, 2):
            one_after_the_other.query_seen(query(namespace, number, LAST))
            one_after_the_other.object_seen(pod(namespace, number, LAST))
    assert observations.kept_bytes() == one_after_the_other.kept_bytes()
    assert len(operator._reconciler.queue) == len(NAMESPACES) * QUERIES  # each once, however many events it had
    names = {f"query-{number}" for number in range(1, QUERIES, 2)}
    for namespace in NAMESPACES:
        assert set(observations.connections.referring_to(namespace, "lake-1")) == names
        assert observations.connections.brokers_of(namespace, "lake-1") == f"kafka-{LAST}:9092"
        assert set(operator._reconciler.rollouts._members[namespace]) == names
