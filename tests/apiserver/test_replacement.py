"""A changed spec and drivers that fail, with a real StatefulSet's controller; what a kubelet would say is put there."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from lab.control_plane import ControlPlane
from unit.resources.cases import SMALLEST

from .observed import status_of, wait_until
from .operators import running_operator
from .played_pods import NAME, POD, Kubectl, become_healthy, fail, pod, show, stamp

pytestmark = [pytest.mark.apiserver, pytest.mark.in_turn, pytest.mark.timeout(1800)]

CHANGED = SMALLEST + "  image: example.org/other:2\n"
BROKERS = '{bootstrapServers: "kafka-2:9092", topic: trips}'
MANAGER = "millrace-operator"


@pytest.fixture
def operator(plane: ControlPlane, namespace: str, tmp_path: Any) -> Any:
    """An operator of the test's own."""
    with running_operator(plane, tmp_path, namespace=namespace) as started:
        yield started


def deploy(kubectl: Kubectl, text: str) -> str:
    """Apply it; the uid of its driver's pod, when there is one of this spec."""
    kubectl("apply", "-f", "-", document=text)
    wait_until(lambda: _runs_its_spec(kubectl))
    return str(pod(kubectl)["metadata"]["uid"])


def _runs_its_spec(kubectl: Kubectl) -> bool:
    query = json.loads(kubectl("get", "sq", NAME, "-o", "json"))
    status = query.get("status", {})
    current = status.get("observedGeneration") == query["metadata"]["generation"]
    return bool(current and (status.get("driver") or {}).get("revision") == status["revision"])


def condition(kubectl: Kubectl, type: str) -> dict[str, Any]:
    return next(each for each in status_of(kubectl, NAME)["conditions"] if each["type"] == type)


def _progressing(kubectl: Kubectl, message: str) -> bool:
    return message in condition(kubectl, "Progressing")["message"]


@pytest.mark.usefixtures("operator")
def test_a_change_that_does_not_become_healthy_is_rolled_back(kubectl: Kubectl) -> None:
    first = deploy(kubectl, SMALLEST)
    become_healthy(kubectl)
    healthy = status_of(kubectl, NAME)["revision"]
    second = deploy(kubectl, CHANGED)
    assert second != first
    assert pod(kubectl)["spec"]["containers"][0]["image"] == "example.org/other:2"
    for run in range(1, 5):
        if status_of(kubectl, NAME).get("rejected"):
            break
        wait_until(lambda: _is_starting(kubectl))
        fail(kubectl, "UserCodeFailed", "ZeroDivisionError: division by zero", run)
        wait_until(lambda run=run: len(status_of(kubectl, NAME)["attempts"]) == run)  # type: ignore[misc]
    wait_until(lambda: _runs(kubectl, healthy))
    assert pod(kubectl)["spec"]["containers"][0]["image"] == "millrace-jobs"
    degraded = condition(kubectl, "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "RolledBack")
    assert "UserCodeFailed: ZeroDivisionError: division by zero" in degraded["message"]
    become_healthy(kubectl)
    reasons = {each["reason"] for each in json.loads(kubectl("get", "events", "-o", "json"))["items"]}
    assert {"UserCodeFailed", "RolledBack", "Draining", "Running"} <= reasons


def _is_starting(kubectl: Kubectl) -> bool:
    """Whether there is a driver's pod that is not ready; while the next run is waited for, there is none."""
    status = status_of(kubectl, NAME)
    return bool(status["phase"] == "Deploying" and status.get("driver"))


def _runs(kubectl: Kubectl, revision: str) -> bool:
    return bool((status_of(kubectl, NAME).get("driver") or {}).get("revision") == revision)


@pytest.mark.usefixtures("operator")
def test_a_mistake_is_given_up_with_the_drivers_own_words_until_the_spec_changes(kubectl: Kubectl) -> None:
    deploy(kubectl, SMALLEST)
    for run in (1, 2):
        fail(kubectl, "InvalidConfiguration", "spec.query.sql: there is no function half", run)
        wait_until(lambda run=run: status_of(kubectl, NAME)["failures"] == run)  # type: ignore[misc]
    wait_until(lambda: not kubectl("get", "pod", "-o", "name"))
    status = status_of(kubectl, NAME)
    assert status["phase"] == "Failed"
    assert condition(kubectl, "Ready")["message"] == "spec.query.sql: there is no function half"
    assert condition(kubectl, "Progressing")["message"].startswith("given up after 2 runs")
    deploy(kubectl, SMALLEST + "  restartNonce: 1\n")
    assert status_of(kubectl, NAME)["failures"] == 0


@pytest.mark.usefixtures("operator")
def test_an_outage_counts_against_other_brokers_only_and_these_are_tried_again(kubectl: Kubectl) -> None:
    """Ten minutes pass by setting back when the run failed and the spec changed, an hour by when it is tried again."""
    ago = timedelta(minutes=11)
    deploy(kubectl, SMALLEST)
    become_healthy(kubectl)
    healthy = status_of(kubectl, NAME)["revision"]
    deploy(kubectl, CHANGED)
    fail(kubectl, "SourceFailed", "kafka:9092 cannot be reached", 1, ago=ago)
    wait_until(lambda: status_of(kubectl, NAME).get("failures") == 1)
    waits = "not rolled back: the last healthy spec has the same sources"
    report_until(kubectl, lambda: _progressing(kubectl, waits), revisionTime=stamp(ago))

    deploy(kubectl, SMALLEST.replace('{bootstrapServers: "kafka:9092", topic: trips}', BROKERS))
    changed = status_of(kubectl, NAME)["revision"]
    fail(kubectl, "SourceFailed", "kafka-2:9092 cannot be reached", 2, ago=ago)
    wait_until(lambda: status_of(kubectl, NAME).get("failures") == 1)
    report_until(kubectl, lambda: _runs(kubectl, healthy), revisionTime=stamp(ago))
    become_healthy(kubectl)
    rejected = status_of(kubectl, NAME)["rejected"]
    assert (rejected["revision"], rejected["tries"]) == (changed, 1)
    report_until(kubectl, lambda: _runs(kubectl, changed), rejected=rejected | {"retryTime": stamp()})
    become_healthy(kubectl)
    wait_until(lambda: "rejected" not in status_of(kubectl, NAME))


@pytest.mark.usefixtures("operator")
def test_executors_without_a_node_are_named_before_the_first_batch(kubectl: Kubectl) -> None:
    """Without metrics: by their pods, in the scheduler's words."""
    driver = deploy(kubectl, SMALLEST)
    running = {"name": "driver", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "started": True}
    show(kubectl, phase="Running", containerStatuses=[running | {"state": {"running": {"startedAt": stamp()}}}])
    ready = "the driver's first batch has not finished; 0 of 1 executors run"
    wait_until(lambda: condition(kubectl, "Ready")["message"] == ready)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": POD, "uid": driver}
    labels = {"millrace.io/query": NAME, "millrace.io/role": "executor", "app.kubernetes.io/managed-by": MANAGER}
    metadata = {"name": "exec-1", "labels": labels, "ownerReferences": [owner]}
    spec = {"containers": [{"name": "executor", "image": "none"}]}
    kubectl("apply", "-f", "-", document={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    waits = f"{ready}: exec-1: the executor cannot be scheduled: no nodes available"
    wait_until(lambda: condition(kubectl, "Ready")["message"].startswith(waits))
    assert status_of(kubectl, NAME)["phase"] == "Deploying"


def report_until(kubectl: Kubectl, holds: Callable[[], bool], **changes: Any) -> None:
    """Change the query's status as the operator does, and wait until its answer holds.

    A write of the operator's that began before puts the old values back. They are changed again then. The version of
    the query goes with the change, so that the rest of the status never takes the place of a later one.
    """
    kind = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery"}
    apply = ("apply", "--server-side", "--field-manager=millrace-operator", "--subresource=status", "-f", "-")
    before = {name: status_of(kubectl, NAME).get(name) for name in changes}

    def answered() -> bool:
        query = json.loads(kubectl("get", "sq", NAME, "-o", "json"))
        if all(query["status"].get(name) == value for name, value in before.items()):
            metadata = {"name": NAME, "resourceVersion": query["metadata"]["resourceVersion"]}
            kubectl(*apply, document=kind | {"metadata": metadata, "status": query["status"] | changes})
        return holds()

    wait_until(answered)
