"""Partitioner replicas in pods of their own, on a real API server with its StatefulSet controller.

The test plays the kubelet, which makes pods ready, and the driver, which acknowledges plans.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from millrace_api.model.plan import APPLIED_KEY, PLAN_KEY, Applied, Plan
from unit.resources.cases import CASES, SMALLEST, objects_of

from .crd_documents import as_users_write
from .observed import status_of, wait_until
from .operators import running_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.in_turn, pytest.mark.timeout(900)]

NAME = "trips-by-cell"
SET = f"{NAME}-partitioner"
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def operator(plane, tmp_path_factory):
    """The operator that tests share."""
    with running_operator(plane, tmp_path_factory.mktemp("operator")) as started:
        yield started


def placed(placement: str, **replicas: int) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(SMALLEST)
    document["spec"]["partitioner"] = {"algorithm": "prompt", "placement": placement, "replicas": replicas}
    return document


def make_ready(kubectl: Kubectl, pod: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    change = json.dumps({"status": {"phase": "Running", "conditions": [ready]}})
    kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", change)


def plan(kubectl: Kubectl) -> Plan:
    return Plan.from_json(json.loads(kubectl("get", "cm", f"{NAME}-plan", "-o", "json"))["data"][PLAN_KEY])


def acknowledge(kubectl: Kubectl) -> None:
    followed = plan(kubectl)
    applied = Applied(
        epoch=followed.epoch, algorithm=followed.algorithm, state_partitions=8, executors_ready=followed.executors
    )
    change = json.dumps({"data": {APPLIED_KEY: applied.to_json()}})
    kubectl("patch", "cm", f"{NAME}-plan", "--type=merge", "-p", change)


def pods(kubectl: Kubectl) -> dict[str, str]:
    """The number that each replica's pod has as a label, by its name."""
    found = json.loads(kubectl("get", "pods", "-l", "millrace.io/role=partitioner", "-o", "json"))["items"]
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in found}
    return {name: of_pod["apps.kubernetes.io/pod-index"] for name, of_pod in sorted(labels.items())}


def numbered(*numbers: int) -> dict[str, str]:
    return {f"{SET}-{number}": str(number) for number in numbers}


def wanted(kubectl: Kubectl) -> str:
    return kubectl("get", "sts", SET, "-o", "jsonpath={.spec.replicas}")


def deploy(kubectl: Kubectl, document: dict[str, Any]) -> str:
    """Apply a query, and let its driver be ready; the uid of its pod."""
    kubectl("apply", "-f", "-", document=document)
    wait_until(lambda: status_of(kubectl, NAME).get("driver", {}).get("pod") == f"{NAME}-driver-0")
    make_ready(kubectl, f"{NAME}-driver-0")
    acknowledge(kubectl)
    wait_until(lambda: status_of(kubectl, NAME)["phase"] == "Running")
    return driver(kubectl)


def driver(kubectl: Kubectl) -> str:
    return kubectl("get", "pod", f"{NAME}-driver-0", "-o", "jsonpath={.metadata.uid}")


@pytest.mark.usefixtures("operator")
def test_a_query_switches_to_replicas_in_pods_and_back_and_keeps_its_driver(kubectl):
    before = deploy(kubectl, placed("Inline"))
    assert "partitioner" not in kubectl("get", "sts,svc,sa,pdb,netpol", "-o", "name")

    kubectl("apply", "-f", "-", document=placed("Dedicated"))
    wait_until(lambda: pods(kubectl) == numbered(0, 1))
    assert plan(kubectl).placement == "Dedicated"
    wait_until(lambda: "notReadySince" in status_of(kubectl, NAME).get("partitioner", {}))
    for name in numbered(0, 1):
        make_ready(kubectl, name)
    acknowledge(kubectl)
    wait_until(lambda: status_of(kubectl, NAME)["partitioner"] == {"replicas": 2, "ready": 2, "restarts": 0})
    _, row = kubectl("get", "sq", "-o", "wide").splitlines()
    assert "1 8 2 Dedicated" in " ".join(row.split())

    kubectl("apply", "-f", "-", document=placed("Inline"))
    wait_until(lambda: plan(kubectl).placement == "Inline")
    wait_until(lambda: status_of(kubectl, NAME)["plan"]["placement"] == "Inline")
    time.sleep(3)  # in which nothing comes of it, since the driver has not answered
    assert (wanted(kubectl), pods(kubectl)) == ("2", numbered(0, 1))
    acknowledge(kubectl)
    wait_until(lambda: wanted(kubectl) == "0")
    wait_until(lambda: pods(kubectl) == {})
    wait_until(lambda: "partitioner" not in status_of(kubectl, NAME))
    assert driver(kubectl) == before


@pytest.mark.usefixtures("operator")
def test_replicas_follow_the_plan_and_those_with_the_highest_numbers_go_first(kubectl):
    before = deploy(kubectl, placed("Dedicated", initial=1))
    wait_until(lambda: pods(kubectl) == numbered(0))
    kubectl("apply", "-f", "-", document=placed("Dedicated", initial=4))
    wait_until(lambda: pods(kubectl) == numbered(0, 1, 2, 3))  # none of them waits for another to be ready
    kubectl("apply", "-f", "-", document=placed("Dedicated", initial=2))
    wait_until(lambda: pods(kubectl) == numbered(0, 1))
    kubectl("scale", "sts", SET, "--replicas=5")  # which is not for others to decide
    wait_until(lambda: wanted(kubectl) == "2")
    wait_until(lambda: pods(kubectl) == numbered(0, 1))
    assert driver(kubectl) == before


@pytest.mark.usefixtures("operator")
def test_what_replicas_need_is_taken_as_it_is_and_goes_with_the_query(kubectl):
    kubectl("apply", "-f", "-", document=as_users_write(CASES["dedicated"]))
    made = [each for each in objects_of(CASES["dedicated"]) if not each.get("immutable")]
    names = [f"{each['kind']}/{each['metadata']['name']}" for each in made]
    wait_until(lambda: kubectl("get", *names, "-o", "name").count(NAME) == len(names))
    wait_until(lambda: pods(kubectl) == numbered(0, 1, 2))
    time.sleep(3)
    kinds, selector = "sa,svc,netpol,pdb,cm", f"millrace.io/query={NAME}"
    versions = ("get", kinds, "-l", selector, "-o", "jsonpath={.items[*].metadata.resourceVersion}")
    generation = ("get", "sts", SET, "-o", "jsonpath={.metadata.generation}")
    at_rest = kubectl(*versions), kubectl(*generation)
    kubectl("annotate", "sq", NAME, "note=seen")  # which wakes the operator
    time.sleep(3)
    assert (kubectl(*versions), kubectl(*generation)) == at_rest
    kubectl("delete", f"pdb/{SET}")
    wait_until(lambda: kubectl("get", *names, "-o", "name").count(NAME) == len(names))

    kubectl("patch", "sq", NAME, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    wait_until(lambda: status_of(kubectl, NAME)["phase"] == "Suspended")
    wait_until(lambda: pods(kubectl) == {})
    kubectl("delete", "sq", NAME)
    labeled = ("-l", f"millrace.io/query={NAME}", "-o", "name")
    wait_until(lambda: not kubectl("get", "sts,svc,cm,pdb,netpol,role,rolebinding,sa,pod", *labeled))


@pytest.mark.usefixtures("operator")
def test_another_size_of_replicas_rolls_them_and_keeps_the_driver(kubectl):
    before = deploy(kubectl, placed("Dedicated", initial=1))
    wait_until(lambda: pods(kubectl) == numbered(0))
    larger = placed("Dedicated", initial=1)
    larger["spec"]["partitioner"]["pod"] = {"cores": 2, "memory": "3g"}
    kubectl("apply", "-f", "-", document=larger)
    request = ("get", "pod", f"{SET}-0", "-o", "jsonpath={.spec.containers[0].resources.requests}")
    wait_until(lambda: json.loads(kubectl(*request)) == {"cpu": "2", "memory": "3Gi"})
    assert driver(kubectl) == before
