"""The lab's Kubernetes is what other tests take it for: pods run, talk, keep data, and are held to their limits."""

from __future__ import annotations

import socket
import subprocess

import pytest

from lab.cluster import JOBS_USER, Cluster
from lab.images import build
from lab.pods import Pods

pytestmark = pytest.mark.cluster

_IMAGE = "millrace.local/lab:1"
_SERVER = (
    "use IO::Socket::INET; $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 1) or die; $s->accept->print(7)"
)


@pytest.fixture(scope="module", autouse=True)
def _image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A plain Debian."""
    context = tmp_path_factory.mktemp("image")
    dockerfile = context / "Dockerfile"
    dockerfile.write_text(f"FROM debian:bookworm-slim\nUSER {JOBS_USER}\n")
    cluster.load(build(_IMAGE, dockerfile, context, tmp_path_factory.mktemp("exported")))


@pytest.fixture
def pods(cluster: Cluster, namespace: str) -> Pods:
    return Pods(cluster, namespace, _IMAGE)


def test_a_restricted_pod_runs_as_the_user_of_the_image(pods: Pods) -> None:
    pods.start("pod", "echo begun; sleep 1000")
    pods.wait("pod", "condition=Ready")

    assert pods.kubectl("logs", "pod") == "begun\n"
    assert pods.kubectl("exec", "pod", "--", "id", "--user") == f"{JOBS_USER}\n"


def test_a_pod_that_is_not_restricted_is_refused(cluster: Cluster, namespace: str) -> None:
    done = cluster.kubectl("-n", namespace, "run", "pod", f"--image={_IMAGE}")
    assert "violates PodSecurity" in done.stderr


def test_names_of_headless_services_are_those_of_their_pods(cluster: Cluster, namespace: str, pods: Pods) -> None:
    spec = {"clusterIP": "None", "selector": {"name": "server"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "headless"}, "spec": spec}
    pods.kubectl("apply", "-f", "-", document=service)
    pods.start("server", "sleep 1000")
    asked = f"until getent hosts headless && getent hosts headless.{namespace}.svc.cluster.local; do sleep 0.2; done"
    answers = pods.run("client", asked)

    address = cluster.get("-n", namespace, "pod/server")["status"]["podIP"]
    assert [line.split()[0] for line in answers.splitlines()] == [address, address]


def test_pods_reach_services_and_the_node(cluster: Cluster, pods: Pods) -> None:
    with socket.create_server((cluster.node_address, 0)) as server:
        port = server.getsockname()[1]
        script = f": > /dev/tcp/kubernetes.default/443 && : > /dev/tcp/{cluster.node_address}/{port} && echo reached"
        assert pods.run("client", f"bash -c '{script}'") == "reached\n"


def test_a_port_of_a_pod_can_be_forwarded(cluster: Cluster, namespace: str, pods: Pods) -> None:
    listens = {"exec": {"command": ["grep", "-q", ":1F90 .* 0A ", "/proc/net/tcp"]}, "periodSeconds": 1}  # on port 8080
    pods.start("server", f"perl -e '{_SERVER}'", container={"readinessProbe": listens})
    pods.wait("server", "condition=Ready")
    forward = [cluster.program("kubectl"), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}"]
    with subprocess.Popen([*forward, "port-forward", "pod/server", ":8080"], stdout=subprocess.PIPE, text=True) as run:
        port = int(run.stdout.readline().split()[2].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 30.0) as connection:
            said = connection.recv(1)
        run.terminate()
    assert said == b"7"


def test_a_local_volume_keeps_what_is_written(cluster: Cluster, pods: Pods) -> None:
    folder = cluster.local_volume("lab", "1Gi")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "local",
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    pods.kubectl("apply", "-f", "-", document=claim)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounted = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}

    pods.run("writer", "echo kept > /data/file", container=mounted, volumes=volumes)
    assert pods.run("reader", "cat /data/file", container=mounted, volumes=volumes) == "kept\n"
    assert (folder / "file").stat().st_uid == JOBS_USER


def test_a_container_with_too_much_memory_is_killed(pods: Pods) -> None:
    limited = {"resources": {"limits": {"memory": "32Mi"}}}
    pods.start("pod", "exec tail /dev/zero", container=limited)
    pods.wait("pod", "jsonpath={.status.containerStatuses[0].state.terminated.reason}=OOMKilled")


def test_pods_outlive_the_parts_that_made_them(cluster: Cluster, pods: Pods) -> None:
    pods.start("pod", "sleep 1000")
    pods.wait("pod", "condition=Ready")
    for part in ("kubelet", "kube-apiserver", "etcd"):
        cluster.part(part).kill()
    for part in ("etcd", "kube-apiserver", "kubelet"):
        cluster.restart(part)
    pods.run("other", "true")
    assert pods.kubectl("get", "pod/pod", "-o", "jsonpath={.status.containerStatuses[0].restartCount}") == "0"


def test_helm_reaches_the_cluster(cluster: Cluster) -> None:
    done = subprocess.run(
        [cluster.program("helm"), "list", f"--kubeconfig={cluster.kubeconfig}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
