"""A query runs where NetworkPolicies hold, and they keep apart what docs/operator.md says."""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from lab.counting_query import Counting
from lab.firewall import enforced_policies
from lab.installation import NAMESPACE, Installation, make_namespace
from lab.parts.millrace_images import JOBS_IMAGE, TAG
from lab.pods import Pods
from lab.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=3), pytest.mark.timeout(1200)]

METADATA = "169.254.169.254"
"""Where clouds serve metadata."""

RPC, BLOCKS, UI, METRICS, OWN = 7078, 7079, 4040, 8080, 9999
"""Ports of pods; ``OWN`` is that of a server which the test starts in each of them."""

LISTEN = f"python -m http.server {OWN} >/dev/null 2>&1 &"

CONNECT = """
import json, socket, sys

def opens(place):
    host, port = place.split(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
    except OSError:
        return False
    return True

print(json.dumps([place for place in sys.argv[1:] if opens(place)]))
"""

RESOLVE = "import socket; print(socket.gethostbyname('kubernetes.default.svc'))"


@dataclass(frozen=True)
class Wires:
    """A running query with a pod of each role, and two pods that are none of its own."""

    on: Installation
    counting: Counting
    stranger: tuple[str, str]
    """Namespace and name of a pod beside the query."""

    pretender: tuple[str, str]
    """The same of a pod of another tenant, which has all labels of the query's driver."""

    @property
    def pods(self) -> dict[str, str]:
        """The query's pods, by role."""
        pods = self.on.get("-n", self.counting.query.namespace, "pods", "-l", "millrace.io/query")["items"]
        return {pod["metadata"]["labels"]["millrace.io/role"]: pod["metadata"]["name"] for pod in pods}

    def place(self, role: str, port: int) -> str:
        """Return the address of a port of a pod."""
        pod = self.on.get("-n", self.counting.query.namespace, "pod", self.pods[role])
        return f"{pod['status']['podIP']}:{port}"

    def own(self, role: str) -> tuple[str, str]:
        """Return the namespace and name of a pod of the query."""
        return self.counting.query.namespace, self.pods[role]

    def run(self, pod: tuple[str, str], program: str, *arguments: str) -> str:
        """Run a Python program in a pod."""
        return self.on.kubectl("-n", pod[0], "exec", pod[1], "--", "python", "-c", program, *arguments)

    def opened(self, pod: tuple[str, str], places: Collection[str]) -> set[str]:
        """Return those of the places that a pod can connect to."""
        return set(json.loads(self.run(pod, CONNECT, *places)))

    @property
    def metrics(self) -> set[str]:
        """The addresses that everyone may reach."""
        return {self.place(role, METRICS) for role in ("driver", "partitioner")}

    @property
    def inner(self) -> set[str]:
        """The addresses of driver and executor that only they may reach."""
        driver = {self.place("driver", port) for port in (RPC, BLOCKS, UI, OWN)}
        return driver | {self.place("executor", port) for port in (BLOCKS, OWN)}

    @property
    def replica(self) -> str:
        """An address that no pod may reach."""
        return self.place("partitioner", OWN)

    @property
    def all(self) -> set[str]:
        """All of these addresses."""
        return self.metrics | self.inner | {self.replica}

    def wait_until_enforced(self) -> None:
        """Wait until policies are in effect for each of the query's pods, both ways."""
        wait_until(lambda: self.opened(self.stranger, self.all) == self.metrics, "the ways in are closed")
        for role in self.pods:
            wait_until(lambda role=role: not self.opened(self.own(role), [f"{METADATA}:80"]), f"{role}: no metadata")

    @contextmanager
    def without_policies(self) -> Iterator[None]:
        """Stop the operator, which would make them again, and delete the query's policies; at the end all is back."""
        operator = ("-n", NAMESPACE, "deployment/millrace-operator")
        replicas = self.on.get(*operator)["spec"]["replicas"]
        self.on.kubectl("scale", *operator, "--replicas=0")
        try:
            wait_until(lambda: not self.on.get("-n", NAMESPACE, "pods")["items"], "the operator is gone")
            self.counting.query.kubectl("delete", "networkpolicies", "--all")
            yield
        finally:
            self.on.kubectl("scale", *operator, f"--replicas={replicas}")
            self.on.wait_for_operator()


@pytest.fixture(scope="module")
def metadata(installation: Installation) -> Iterator[None]:
    """A server on the node that stands for a cloud's."""
    address = ("address", "add", f"{METADATA}/32", "dev", "lo")
    assert installation.cluster.run_on_node("ip", *address).returncode == 0
    with socket.create_server((METADATA, 80)):
        yield
    installation.cluster.run_on_node("ip", "address", "delete", f"{METADATA}/32", "dev", "lo")


@pytest.fixture(scope="module")
def wires(installation: Installation, metadata: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wires]:
    """A query that was started where policies hold, and still counts."""
    cluster, spaces = installation.cluster, ("wires", "wires-of-others")
    with enforced_policies(cluster, tmp_path_factory.mktemp("firewall")):
        for each in spaces:
            make_namespace(cluster, each)
            Pods(cluster, each, f"{JOBS_IMAGE}:{TAG}").start("client", "sleep 3600")
        counting = Counting(installation, spaces[0])
        try:
            counting.start(
                partitioner={"algorithm": "hash", "placement": "Dedicated", "replicas": {"initial": 1}},
                sparkConf={"spark.ui.enabled": "true"},
            )
            made = Wires(installation, counting, (spaces[0], "client"), (spaces[1], "client"))
            for role, pod in made.pods.items():
                counting.query.kubectl("exec", pod, "--", "sh", "-c", LISTEN)
                wait_until(lambda role=role: made.opened(made.own(role), [made.place(role, OWN)]), f"{role} listens")
            disguise(made)
            made.wait_until_enforced()
            yield made
        finally:
            counting.stop()
            for each in spaces:
                installation.kubectl("delete", "namespace", each)  # before the firewall ends, so that rules are at rest


def disguise(wires: Wires) -> None:
    """Give the pod of another tenant the labels of the query's driver."""
    labels = wires.counting.query.driver["metadata"]["labels"]
    namespace, name = wires.pretender
    pairs = [f"{key}={value}" for key, value in labels.items()]
    wires.on.kubectl("-n", namespace, "label", "pod", name, *pairs)


def test_policies_hold_for_a_running_query_and_without_them_all_is_open(wires: Wires) -> None:
    check_ways_in(wires)
    check_ways_out(wires)
    wires.counting.wait_for_progress()
    with wires.without_policies():
        for pod in (wires.stranger, wires.pretender):
            wait_until(lambda pod=pod: wires.opened(pod, wires.all) == wires.all, f"all is open to {pod}")
        for role in wires.pods:
            wait_until(lambda role=role: wires.opened(wires.own(role), [f"{METADATA}:80"]), f"{role} reaches metadata")
    wires.wait_until_enforced()  # the operator has made them again


def check_ways_in(wires: Wires) -> None:
    """Others reach metrics alone, driver and executor also each other, and a replica only itself."""
    for pod in (wires.stranger, wires.pretender):
        assert wires.opened(pod, wires.all) == wires.metrics
    for role in ("driver", "executor"):
        assert wires.opened(wires.own(role), wires.all) == wires.metrics | wires.inner
    assert wires.opened(wires.own("partitioner"), wires.all) == wires.metrics | {wires.replica}


def check_ways_out(wires: Wires) -> None:
    """All of the query's pods reach Kafka and the names of the cluster, and none a cloud's metadata."""
    kafka = wires.on.broker.bootstrap
    for role in wires.pods:
        assert wires.opened(wires.own(role), [kafka, f"{METADATA}:80"]) == {kafka}
        assert wires.run(wires.own(role), RESOLVE).strip() == "10.96.0.1"
