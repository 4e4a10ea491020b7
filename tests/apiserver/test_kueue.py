"""Kueue's own controller admits driver and executors one by one, and the query says which of them wait for quota."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control_plane import ControlPlane, running_control_plane
from lab.kueue import running_kueue
from unit.resources.cases import SMALLEST

from .conftest import install_crd
from .observed import mounted_configuration, ready_of, status_of, wait_until
from .operators import running_operator
from .played_pods import NAME, POD, make_ready, show, stamp

pytestmark = [pytest.mark.apiserver, pytest.mark.in_turn, pytest.mark.timeout(1800)]

NAMESPACE = "streams"
QUERY = (
    SMALLEST
    + "  executors: {initial: 3, min: 3, max: 4}\n  scaling: {mode: 'Off'}\n"
    + "  scheduling: {scheduler: Kueue, queue: team-a}\n"
)
WAITS = "waits for quota in queue team-a of Kueue"
Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """``kubectl`` in a namespace of a control plane of its own, in which Kueue and the operator run."""
    (tmp_path / "plane").mkdir()
    with running_control_plane(tmp_path / "plane") as plane:
        install_crd(plane)
        assert plane.kubectl("create", "namespace", NAMESPACE).returncode == 0
        with running_kueue(plane, NAMESPACE), running_operator(plane, tmp_path):
            yield lambda *arguments, document=None: _kubectl(plane, *arguments, document=document)


def _kubectl(plane: ControlPlane, *arguments: str, document: object = None) -> str:
    done = plane.kubectl("--namespace", NAMESPACE, *arguments, document=document)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_queue(kubectl: Kubectl, cores: int) -> None:
    """Create the queue ``team-a``, or change how many cores its pods may request together."""
    quotas = [{"name": "cpu", "nominalQuota": cores}, {"name": "memory", "nominalQuota": "100Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "any", "resources": quotas}]}
    api = "kueue.x-k8s.io/v1beta2"
    cluster = {"namespaceSelector": {}, "resourceGroups": [group]}
    documents = [
        {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": "streaming"}, "spec": cluster},
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": "team-a"},
            "spec": {"clusterQueue": "streaming"},
        },
    ]
    kubectl("apply", "-f", "-", document=documents)


def start_driver(kubectl: Kubectl) -> str:
    """Let the driver run, as a kubelet would, and return the uid of its pod; its first batch waits for executors."""
    state = {"running": {"startedAt": stamp()}}
    container = {"name": "driver", "image": "none", "imageID": "", "restartCount": 0, "ready": False, "started": True}
    show(kubectl, POD, phase="Running", containerStatuses=[container | {"state": state}])
    return kubectl("get", "pod", POD, "-o", "jsonpath={.metadata.uid}")


def make_executor(kubectl: Kubectl, driver: str, number: int) -> str:
    """Create an executor's pod as Spark does, from the template in the driver's configuration."""
    files = json.loads(kubectl("get", mounted_configuration(kubectl), "-o", "json"))["data"]
    pod: dict[str, Any] = yaml.safe_load(files["executor-pod.yaml"])
    owner = {"apiVersion": "v1", "kind": "Pod", "name": POD, "uid": driver, "controller": True}
    name = f"{NAME}-exec-{number}"
    pod["metadata"] |= {"name": name, "ownerReferences": [owner]}
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    pod["spec"]["containers"][0] |= {"image": "none", "resources": resources}
    kubectl("create", "-f", "-", document=pod)
    return name


def is_admitted(kubectl: Kubectl, pod: str) -> bool:
    gates = kubectl("get", "pod", pod, "-o", "jsonpath={.spec.schedulingGates[*].name}")
    return "kueue.x-k8s.io/admission" not in gates


def test_a_quota_that_admits_two_executors_of_three(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", document=QUERY)
    wait_until(lambda: ready_of(kubectl, NAME)["reason"] == "Queued")
    assert ready_of(kubectl, NAME)["message"] == f"the driver {WAITS}", "the queue does not exist yet"
    make_queue(kubectl, cores=5)
    wait_until(lambda: is_admitted(kubectl, POD))
    driver = start_driver(kubectl)
    names = [make_executor(kubectl, driver, number) for number in range(3)]
    wait_until(lambda: sum(is_admitted(kubectl, each) for each in names) == 2)
    admitted = [each for each in names if is_admitted(kubectl, each)]
    (waiting,) = set(names) - set(admitted)
    for each in admitted:
        make_ready(kubectl, each)
    said = f"the driver's first batch has not finished; 2 of 3 executors run: {waiting}: the executor {WAITS}"
    wait_until(lambda: ready_of(kubectl, NAME)["message"] == said)
    assert ready_of(kubectl, NAME)["reason"] == "Queued"
    kubectl("delete", "pod", admitted[0], "--wait=false")  # as when the plan has fewer, or Kueue preempts it
    wait_until(lambda: is_admitted(kubectl, waiting))
    make_ready(kubectl, waiting)
    another = make_executor(kubectl, driver, 3)
    wait_until(lambda: f"{another}: the executor {WAITS}" in ready_of(kubectl, NAME)["message"])
    make_queue(kubectl, cores=7)
    wait_until(lambda: is_admitted(kubectl, another))
    assert not status_of(kubectl, NAME).get("attempts")
