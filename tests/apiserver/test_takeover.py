"""A version that takes over in the running driver, by the operator and the driver's own watch, with the driver's rights."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiException

from lab.control_plane import ControlPlane
from millrace_api.model.takeover import POD_UID_VARIABLE
from millrace_jobs.pod.agent import Agent
from millrace_jobs.pod.plan_watch import PlanWatch
from millrace_jobs.pod.versions import PodVersions
from unit.resources.cases import SMALLEST

from .observed import status_of, wait_until
from .operators import running_operator
from .played_drivers import Executors, driver_api, mounted_plan
from .played_pods import NAME, POD, become_healthy, pod, show, stamp

pytestmark = [pytest.mark.apiserver, pytest.mark.in_turn, pytest.mark.timeout(900)]

BASE = SMALLEST.replace("DOUBLE\n", "DOUBLE, at TIMESTAMP\n      watermark: {column: at, delay: 30s}\n")
SHADOW = "  checkpoint: {claimName: checkpoints}\n  upgrade: {mode: Shadow}\n"
CHANGED = BASE.replace("count(*) AS n", "count(*) AS trips") + SHADOW
Kubectl = Callable[..., str]


class Driver:
    """What a driver's process does beside its batches: it follows the plan's ConfigMap, and loads other versions."""

    def __init__(self, plane: ControlPlane, kubectl: Kubectl, namespace: str, folder: Path) -> None:
        self.api = driver_api(plane, kubectl, NAME, folder)
        mounted, query, plan = mounted_plan(kubectl, NAME, folder), folder / "query.yaml", f"{NAME}-plan"
        query.write_text("")
        uid = pod(kubectl)["metadata"]["uid"]
        self.versions = PodVersions(self.api, namespace, uid, query, lambda file: yaml.safe_load(file.read_text()))
        self._plans = PlanWatch(self.api, namespace, plan, mounted, self.versions)
        self._agent = Agent(self.api, namespace, plan, self._plans, self.versions)
        self.gives_way = threading.Event()
        self.versions.when_next(self.gives_way.set)

    def start(self) -> None:
        self._agent.forget()
        self._plans.start()
        self._agent.start(Executors(), 2)  # type: ignore[arg-type]

    def stop(self) -> None:
        self._agent.stop()
        self._plans.stop()


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_operator(plane, tmp_path_factory.mktemp("operator")) as started:
        yield started


@pytest.mark.usefixtures("operator")
def test_an_equal_version_takes_over_in_the_pod_that_runs(
    plane: ControlPlane, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl("apply", "-f", "-", document=yaml.safe_load(BASE + SHADOW))
    wait_until(lambda: status_of(kubectl, NAME).get("driver", {}).get("pod") == POD)
    (container,) = pod(kubectl)["spec"]["containers"]
    assert POD_UID_VARIABLE in [each["name"] for each in container["env"]]
    driver = Driver(plane, kubectl, namespace, tmp_path)
    driver.start()
    try:
        become_healthy(kubectl)
        uid, old = pod(kubectl)["metadata"]["uid"], status_of(kubectl, NAME)["revision"]
        kubectl("apply", "-f", "-", document=yaml.safe_load(CHANGED))
        wait_until(lambda: status_of(kubectl, NAME).get("upgrade", {}).get("pod", "") in kubectl("get", "pods"))
        shadow = status_of(kubectl, NAME)["upgrade"]["pod"]
        wait_until(lambda: shadow in kubectl("get", "pods", "-o", "name"))
        report = json.dumps({"verdict": "Equal", "message": "as before"})
        ended = {"exitCode": 0, "message": report, "finishedAt": stamp(), "startedAt": stamp(), "reason": "Completed"}
        state = {"name": "driver", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
        show(kubectl, shadow, phase="Succeeded", containerStatuses=[state | {"state": {"terminated": ended}}])

        assert driver.gives_way.wait(120), json.dumps(status_of(kubectl, NAME))
        assert status_of(kubectl, NAME)["driver"]["revision"] == old
        version = driver.versions.take_next()
        assert version is not None
        assert "AS trips" in version.query["spec"]["query"]["sql"]  # type: ignore[index]
        wait_until(lambda: status_of(kubectl, NAME)["driver"]["revision"] == version.revision)
        driver.versions.computes()
        wait_until(lambda: status_of(kubectl, NAME)["phase"] == "Running")
        assert pod(kubectl)["metadata"]["uid"] == uid
        wait_until(lambda: saved_revision(kubectl) == version.revision)
        assert pod(kubectl)["metadata"]["uid"] == uid

        others = f"{NAME}-healthy"
        with pytest.raises(ApiException, match="Forbidden"):
            driver.api.read_namespaced_config_map(others, namespace)
    finally:
        driver.stop()


def saved_revision(kubectl: Kubectl) -> str:
    found = json.loads(kubectl("get", "cm", f"{NAME}-healthy", "-o", "json"))
    return str(found["metadata"]["annotations"]["millrace.io/revision"])
