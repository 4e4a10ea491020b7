"""A real one-node Kubernetes for the tests in this folder, which run in its network."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from lab import cluster as lab
from lab import cluster_containerd
from lab.cluster import Cluster, running_cluster
from lab.counting_query import Counting
from lab.installation import Installation, installed, make_namespace
from lab.s3_server import ACCESS, SECRET, S3Server, running_s3
from lab.starts import starts

from .in_s3 import LOGIN, InS3


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster that tests share. Leave it running, and use your own namespaces.

    Tests, and what they start, are in its network from here on: pods reach them at ``node_address``.
    """
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started, started.inside():
        yield started


@pytest.fixture(scope="package")
def installation(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The installed chart with images of this checkout, and Kafka and Prometheus beside it."""
    with installed(cluster, tmp_path_factory.mktemp("installation")) as made:
        yield made


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace for one test, with a claim, that admits only pods of the restricted security level."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    make_namespace(cluster, name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def counting(installation: Installation, namespace: str) -> Iterator[Counting]:
    """A query that is not yet applied, and records for it."""
    made = Counting(installation, namespace)
    yield made
    made.stop()


@pytest.fixture(scope="package")
def shared_s3(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The S3 server that pods reach. Leave it running."""
    with running_s3(tmp_path_factory.mktemp("s3"), cluster.node_address) as server:
        yield server


@pytest.fixture
def s3(shared_s3: S3Server, cluster: Cluster, namespace: str) -> InS3:
    """Checkpoints in S3 for the queries of the test's namespace, which has a Secret with the login."""
    login = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": LOGIN}, "stringData": login}
    done = cluster.kubectl("-n", namespace, "apply", "-f", "-", document=[secret])
    assert done.returncode == 0, done.stderr
    return InS3(shared_s3, namespace)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how long clusters took to start."""
    if not lab.seconds_to_start:
        return
    terminalreporter.line(starts("Cluster", lab.seconds_to_start))
    took = {
        "to load images": cluster_containerd.seconds_to_load,
        "to end it": lab.seconds_to_stop,
    }
    for action, seconds in took.items():
        terminalreporter.line(f"Cluster: seconds {action}: {', '.join(f'{each:.1f}' for each in seconds)}")
