"""After etcd is restored from a backup, operator and driver, which know what came later, go on together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import config
from kubernetes.client import CoreV1Api

from builders import a_batch
from lab.control_plane import ControlPlane, running_control_plane
from lab.waiting import wait_until
from millrace_jobs.plan.plan_source import pin_of
from millrace_jobs.pod.agent import Agent
from millrace_jobs.pod.plan_watch import PlanWatch

from .conftest import install_crd
from .deployed import apply_queries
from .operators import running_operator

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(900)]

NAME = "trips"
soon = partial(wait_until, seconds=240.0)


class Executors:
    """Those of a Spark that does at once what it is asked to."""

    finished_tasks = 0

    def reconcile(self, number: int) -> int:
        return number


class Restored:
    """A control plane with a query, its operator, and the part of its driver that follows the plan."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        install_crd(plane)
        self._driver: tuple[PlanWatch, Agent] | None = None
        self._mounted = folder / "plan.yaml"

    def kubectl(self, *arguments: str, document: object = None) -> str:
        done = self.plane.kubectl("--namespace", "default", *arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def scale(self, executors: int) -> None:
        self.kubectl("scale", "sq", NAME, f"--replicas={executors}")

    def plan(self) -> tuple[int, int]:
        """Return epoch and executors of the plan in the status, zeros before there is one."""
        plan: dict[str, Any] = (
            json.loads(self.kubectl("get", "sq", NAME, "-o", "json")).get("status", {}).get("plan", {})
        )
        return plan.get("epoch", 0), plan.get("executors", 0)

    def start_driver(self) -> None:
        """Start to follow the plan that there is, as a driver does."""
        api = CoreV1Api(config.new_client_from_config(str(self.plane.kubeconfig)))
        text = json.loads(self.kubectl("get", "cm", f"{NAME}-plan", "-o", "json"))["data"]["plan.yaml"]
        self._mounted.write_text(yaml.safe_dump(json.loads(text)), encoding="utf-8")
        plans = PlanWatch(api, "default", f"{NAME}-plan", self._mounted)
        plans.start()
        agent = Agent(api, "default", f"{NAME}-plan", plans)
        agent.start(Executors(), 8)
        self._driver = plans, agent

    def follows(self) -> tuple[int, int]:
        """Run a batch under the driver's newest plan, and return that plan's epoch and executors."""
        assert self._driver is not None
        plans, agent = self._driver
        agent.batch(a_batch(pin=pin_of(plans.newest)))
        return plans.newest.epoch, plans.newest.executors

    def stop_driver(self) -> None:
        if self._driver is not None:
            for each in self._driver:
                each.stop()


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    folder = tmp_path / "plane"
    folder.mkdir()
    with running_control_plane(folder) as plane:
        made = Restored(plane, tmp_path)
        yield made
        made.stop_driver()


def test_plans_go_on_above_those_that_the_driver_has_followed(restored: Restored, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    with running_operator(restored.plane, tmp_path, namespace="default") as operator:
        apply_queries(restored.kubectl, [NAME])
        soon(lambda: restored.plan() == (1, 1))
        soon(lambda: restored.kubectl("get", "cm", "-o", "name").count(f"{NAME}-plan"))
        restored.start_driver()
        restored.scale(2)
        soon(lambda: restored.follows() == (2, 2))

        restored.plane.back_up(tmp_path / "backup")
        for epoch, executors in ((3, 4), (4, 5)):
            restored.scale(executors)
            soon(lambda wanted=(epoch, executors): restored.follows() == wanted)
        applied = ("get", "cm", f"{NAME}-plan", "-o", "jsonpath={.data.applied\\.json}")
        soon(lambda: '"epoch":4' in restored.kubectl(*applied).replace(" ", ""))

        restored.plane.restore(tmp_path / "backup")
        soon(lambda: operator.status == 1)
        assert "restored from a backup" in operator.said
    with running_operator(restored.plane, again, namespace="default") as operator:  # as Kubernetes starts it again
        soon(lambda: restored.plan() == (5, 2))
        soon(lambda: restored.follows() == (5, 2))
        restored.scale(3)
        soon(lambda: restored.follows() == (6, 3))
        assert operator.status is None
