"""A snapshot by ``kubectl annotate``: the operator asks the driver's own agent, with the rights of its Role."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control_plane import ControlPlane
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, verify
from millrace_jobs.pod.agent import Agent
from millrace_jobs.pod.plan_watch import PlanWatch
from millrace_jobs.run.automatic_snapshots import AutomaticSnapshots
from unit.checkpoint.stored import Stored
from unit.resources.cases import SMALLEST

from .observed import status_of, wait_until
from .operators import running_operator
from .played_drivers import Executors, driver_api, mounted_plan
from .played_pods import make_ready

pytestmark = [pytest.mark.apiserver, pytest.mark.in_turn, pytest.mark.timeout(900)]

NAME = "trips-by-cell"
Kubectl = Callable[..., str]


class Driver:
    """What a driver's process does beside its batches: it follows the plan's ConfigMap, and takes snapshots."""

    def __init__(self, plane: ControlPlane, kubectl: Kubectl, namespace: str, root: Path, folder: Path) -> None:
        api = driver_api(plane, kubectl, NAME, folder)
        self._plans = PlanWatch(api, namespace, f"{NAME}-plan", mounted_plan(kubectl, NAME, folder))
        self._agent = Agent(api, namespace, f"{NAME}-plan", self._plans)
        self._snapshots = AutomaticSnapshots(root, None, lambda _: None, requests=self._agent)

    def start(self) -> None:
        self._plans.start()
        self._snapshots.begin()
        self._agent.start(Executors(), 2)  # type: ignore[arg-type]

    def stop(self) -> None:
        self._snapshots.close()
        self._agent.stop()
        self._plans.stop()


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_operator(plane, tmp_path_factory.mktemp("operator")) as started:
        yield started


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    made = Stored(tmp_path / "checkpoint")
    for step in (made.begin, made.commit, made.begin):
        step()
    return made


def snapshots(kubectl: Kubectl) -> dict[str, Any]:
    found: dict[str, Any] = status_of(kubectl, NAME).get("snapshots", {})
    return found


def state(kubectl: Kubectl) -> str:
    return str(snapshots(kubectl).get("request", {}).get("state", ""))


@pytest.mark.usefixtures("operator")
def test_a_snapshot_is_asked_for_seen_and_removed_by_kubectl_alone(
    plane: ControlPlane, kubectl: Kubectl, namespace: str, stored: Stored, tmp_path: Path
) -> None:
    kubectl("apply", "-f", "-", document=yaml.safe_load(SMALLEST))
    wait_until(lambda: status_of(kubectl, NAME).get("driver", {}).get("pod") == f"{NAME}-driver-0")
    kubectl("annotate", "sq", NAME, "millrace.io/snapshot=monday")
    wait_until(lambda: snapshots(kubectl).get("request", {}).get("message") == "no driver runs")
    driver = Driver(plane, kubectl, namespace, stored.root, tmp_path)
    driver.start()
    try:
        make_ready(kubectl, f"{NAME}-driver-0")
        kubectl("wait", "sq", NAME, "--for=jsonpath={.status.snapshots.request.state}=Done", "--timeout=120s")
        assert verify(stored.root / "snapshots" / "monday").batch == 0
        (newest,) = snapshots(kubectl)["newest"]
        assert (newest["name"], newest["batch"], newest["origin"]) == ("monday", 0, "Person")
        assert "snapshot-request.json" not in held(kubectl) or held(kubectl)["snapshot-request.json"] == ""
        wait_until(lambda: "SnapshotTaken" in kubectl("get", "events"))
        head, row = kubectl("get", "sq", "-o", "wide").splitlines()
        assert head.split()[-1] == "SNAPSHOT"
        assert row.split()[-1].endswith(("s", "m"))

        kubectl("annotate", "sq", NAME, "millrace.io/snapshot=-monday", "--overwrite")
        wait_until(lambda: (state(kubectl), snapshots(kubectl).get("count")) == ("Done", 0))
        assert names_of_snapshots(stored.root) == []

        kubectl("annotate", "sq", NAME, "millrace.io/snapshot=-monday-", "--overwrite")
        wait_until(lambda: state(kubectl) == "Failed")
        assert "cannot be the name of a snapshot" in snapshots(kubectl)["request"]["message"]
        kubectl("annotate", "sq", NAME, "millrace.io/snapshot-")
        wait_until(lambda: "request" not in snapshots(kubectl))
    finally:
        driver.stop()


@pytest.mark.usefixtures("operator")
def test_what_others_write_in_the_place_of_a_report_does_not_stop_the_operator(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", document=yaml.safe_load(SMALLEST))
    wait_until(lambda: status_of(kubectl, NAME).get("driver", {}).get("pod") == f"{NAME}-driver-0")
    forged = {"count": 1, "newest": [{"name": "x", "batch": 1, "time": "now", "bytes": 1, "origin": "Person"}]}
    for report in ("{", json.dumps(forged), json.dumps({"count": 2**60})):
        kubectl("patch", "cm", f"{NAME}-plan", "--type=merge", "-p", json.dumps({"data": {"snapshots.json": report}}))
    kubectl("annotate", "sq", NAME, "millrace.io/snapshot=monday")
    wait_until(lambda: state(kubectl) == "Pending")
    assert "newest" not in snapshots(kubectl) or snapshots(kubectl)["newest"] == []


def held(kubectl: Kubectl) -> dict[str, str]:
    found: dict[str, str] = json.loads(kubectl("get", "cm", f"{NAME}-plan", "-o", "json"))["data"]
    return found
