"""A real Kubernetes of one node for the tests in this folder, which run in its network."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from lab import cluster as lab
from lab import cluster_containerd, images
from lab.cache import MissingError
from lab.cluster import Cluster, running_cluster
from lab.kafka import Broker, running_broker
from lab.prometheus import PrometheusServer, running_prometheus
from lab.starts import starts

from .deployed import CLAIM
from .installation import Installation, make_images, scraped_pods


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster that tests share: leave it running, and use namespaces of your own.

    From here on tests, and what they start, are in its network: what listens on ``node_address``, pods reach.
    """
    try:
        with running_cluster(tmp_path_factory.mktemp("cluster")) as started, started.inside():
            yield started
    except MissingError as error:
        pytest.skip(f"no Kubernetes with a node: {error}")


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, which takes only pods that may do no more than they need."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    metadata = {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    done = cluster.kubectl(
        "create", "-f", "-", document={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    )
    assert done.returncode == 0, done.stderr
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="package")
def broker(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that pods reach."""
    with running_broker(tmp_path_factory.mktemp("kafka"), host=cluster.node_address) as started:
        yield started


@pytest.fixture(scope="package")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that finds pods by their annotations, and that pods reach."""
    folder, jobs = tmp_path_factory.mktemp("prometheus"), [scraped_pods(cluster.kubeconfig)]
    with running_prometheus(folder, host=cluster.node_address, jobs=jobs) as started:
        yield started


@pytest.fixture(scope="package")
def installation(
    cluster: Cluster, broker: Broker, prometheus: PrometheusServer, tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """The chart, installed, with images that have just been built."""
    for image in make_images(tmp_path_factory.mktemp("images") / "user"):
        cluster.load(image)
    made = Installation(cluster, broker, prometheus)
    made.install()
    return made


@pytest.fixture
def claim(cluster: Cluster, namespace: str) -> str:
    """The claim of a volume, for checkpoints of queries in this namespace."""
    cluster.local_volume(namespace)
    spec = {
        "storageClassName": "local",
        "volumeName": namespace,
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    document = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": spec}
    done = cluster.kubectl("-n", namespace, "apply", "-f", "-", document=document)
    assert done.returncode == 0, done.stderr
    return CLAIM


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long clusters and images took."""
    if not lab.seconds_to_start:
        return
    terminalreporter.line(starts("Cluster", "its programs were", lab.seconds_to_get, lab.seconds_to_start))
    took = {
        "to make images": images.seconds_to_build,
        "to load images": cluster_containerd.seconds_to_load,
        "to end it": lab.seconds_to_stop,
    }
    for deed, seconds in took.items():
        terminalreporter.line(f"Cluster: seconds {deed}: {', '.join(f'{each:.1f}' for each in seconds)}")
