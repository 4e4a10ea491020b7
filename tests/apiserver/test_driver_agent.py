"""What a driver has to do with the API server, with no more rights than its Role gives: follow its plan, and answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import config
from kubernetes.client import CoreV1Api

from builders import PIN, a_batch
from lab.control_plane import ControlPlane, running_control_plane
from lab.waiting import wait_until
from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Algorithm
from millrace_api.model.driver_waits import WAITS_KEY, DriverWaits
from millrace_api.model.plan import APPLIED_KEY, Plan
from millrace_jobs.pending import CallKind, PendingCall
from millrace_jobs.plan.plan_source import pin_of
from millrace_jobs.pod.agent import Agent
from millrace_jobs.pod.plan_watch import PlanWatch
from millrace_jobs.pod.versions import PodVersions
from unit.resources.cases import SMALLEST, objects_of

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

NAME = "trips-by-cell-plan"
FIRST = Plan(epoch=1, algorithm=Algorithm.HASH, replicas=2, parallelism=4, executors=2)
soon = partial(wait_until, seconds=120.0)


class Driver:
    """The account of a driver, its objects, and the plan that it begins with."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self._plane, self._namespace = plane, namespace
        made = objects_of(SMALLEST, namespace=namespace)
        rights = [each for each in made if each["kind"] in ("ServiceAccount", "Role", "RoleBinding")]
        for each in rights:
            del each["metadata"]["ownerReferences"]
        self.kubectl("apply", "-f", "-", document=rights)
        self.write(FIRST)
        token = self.kubectl("create", "token", "trips-by-cell-driver").strip()
        kubeconfig = plane.write_kubeconfig(folder / "driver.kubeconfig", token)
        self.api = CoreV1Api(config.new_client_from_config(str(kubeconfig)))
        self.mounted = folder / "plan.yaml"
        self.mounted.write_text(yaml.safe_dump(FIRST.to_document()))

    def kubectl(self, *arguments: str, document: object = None) -> str:
        done = self._plane.kubectl("--namespace", self._namespace, *arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, plan: Plan | str) -> None:
        """As the operator does: by its own field manager, with no word about the driver's entry."""
        text = plan if isinstance(plan, str) else plan.to_json()
        metadata = {"name": NAME, "namespace": self._namespace}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"plan.yaml": text}}
        self.kubectl("apply", "--server-side", "--field-manager=millrace-operator", "-f", "-", document=document)

    @property
    def reported(self) -> dict[str, Any]:
        """What the driver has reported; empty before it has."""
        data = json.loads(self.kubectl("get", "cm", NAME, "-o", "json"))["data"]
        return dict(json.loads(data.get(APPLIED_KEY, "{}")))


@pytest.fixture
def driver(plane: ControlPlane, namespace: str, tmp_path: Path) -> Driver:
    return Driver(plane, namespace, tmp_path)


@pytest.fixture
def plans(driver: Driver, namespace: str) -> Iterator[PlanWatch]:
    watch = PlanWatch(driver.api, namespace, NAME, driver.mounted)
    watch.start()
    yield watch
    watch.stop()


def test_plans_come_by_the_watch_once_each(driver: Driver, plans: PlanWatch) -> None:
    assert plans.current() == FIRST
    assert plans.current() is None
    second = FIRST.model_copy(update={"epoch": 2, "executors": 5})
    driver.write(second)
    assert soon(plans.current) == second
    assert plans.newest.executors == 5
    driver.write(FIRST)  # of an earlier epoch, as a backup may put it back
    driver.write(second.model_copy(update={"epoch": 3}))
    assert soon(plans.current).epoch == 3


def test_what_is_no_plan_is_told_once_and_the_last_one_stays(driver: Driver, plans: PlanWatch) -> None:
    assert plans.current() == FIRST
    driver.write('{"epoch": 2, "algorithm": "best"}')

    def refused() -> str:
        try:
            plans.current()
        except MillraceError as error:
            return str(error)
        return ""

    assert f"plan.yaml of the ConfigMap {NAME} is not a plan" in soon(refused)
    assert plans.current() is None
    assert plans.newest == FIRST
    driver.write(FIRST.model_copy(update={"epoch": 3}))
    assert soon(plans.current).epoch == 3


class Executors:
    """Those of a Spark that does at once what it is asked to."""

    def __init__(self) -> None:
        self.ready = self.finished_tasks = 0
        self.waits = False

    def tasks_wait(self) -> bool:
        return self.waits

    def reconcile(self, number: int) -> int:
        self.ready = number
        return number


def test_the_driver_tells_what_it_is_under_and_the_operator_may_write_beside_it(
    driver: Driver, plans: PlanWatch, namespace: str
) -> None:
    agent = Agent(driver.api, namespace, NAME, plans)
    agent.start(Executors(), 3)
    try:
        time.sleep(2.0)
        assert driver.reported == {}, "before the first batch there is nothing to report"
        agent.batch(a_batch(pin=PIN))
        reported = soon(lambda: driver.reported)
        assert reported == {
            "epoch": PIN.epoch,
            "algorithm": PIN.algorithm,
            "statePartitions": 3,
            "executorsReady": 2,
            "canRest": True,
        }
        second = FIRST.model_copy(update={"epoch": 2, "executors": 4})
        driver.write(second)
        assert soon(lambda: driver.reported["executorsReady"] == 4)
        assert driver.reported["epoch"] == 1, "no batch ran under the new plan yet"
        agent.idle(pin_of(second))
        soon(lambda: driver.reported["epoch"] == 2)
        agent.stop()
        agent.forget()
        assert driver.reported == {}, "a report of one run does not hold for the next"
    finally:
        agent.stop()


def test_the_driver_reports_what_it_waits_for_and_takes_that_back(
    driver: Driver, plans: PlanWatch, namespace: str
) -> None:
    versions = PodVersions(driver.api, namespace, "pod 1", driver.mounted, read_query=lambda _: pytest.fail("read"))
    agent = Agent(driver.api, namespace, NAME, plans, versions)
    silent = PendingCall(CallKind.SERVER, "Kafka at b:9092", "finding new records", 1, 11.0, 11.0)

    def waits() -> list[str]:
        data = json.loads(driver.kubectl("get", "cm", NAME, "-o", "json"))["data"]
        return [each.text for each in DriverWaits.from_json(data.get(WAITS_KEY, '{"pod": ""}')).waits]

    agent.waits([silent])
    agent.start(Executors(), 3)
    try:
        assert soon(waits) == ["Kafka at b:9092 has not answered while finding new records"]
        driver.write(FIRST.model_copy(update={"epoch": 2}))
        assert waits(), "the operator writes beside it"
        agent.waits([])
        soon(lambda: not waits())
        agent.waits([silent])
        soon(waits)
        agent.stop()
        agent.forget()
        assert waits() == [], "a report of one run does not hold for the next"
    finally:
        agent.stop()


def test_tasks_without_executors_are_reported_until_another_plan_comes(
    driver: Driver, plans: PlanWatch, namespace: str
) -> None:
    versions = PodVersions(driver.api, namespace, "pod 1", driver.mounted, read_query=lambda _: pytest.fail("read"))
    agent, executors = Agent(driver.api, namespace, NAME, plans, versions), Executors()

    def wait() -> bool:
        data = json.loads(driver.kubectl("get", "cm", NAME, "-o", "json"))["data"]
        return DriverWaits.from_json(data.get(WAITS_KEY, '{"pod": ""}')).executors

    agent.start(executors, 3)
    try:
        driver.write(FIRST.model_copy(update={"epoch": 2, "executors": 0}))
        soon(lambda: plans.newest.epoch == 2 and agent.ready == 0)
        assert not wait()
        executors.waits = True
        soon(wait)
        assert agent.ready == 1
        driver.write(FIRST.model_copy(update={"epoch": 3}))
        soon(lambda: not wait())
        soon(lambda: agent.ready == 2)
    finally:
        agent.stop()


@pytest.mark.in_turn
def test_an_api_server_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    with running_control_plane(tmp_path) as plane:
        assert plane.kubectl("create", "namespace", "cabs").returncode == 0
        driver = Driver(plane, "cabs", tmp_path)
        plans = PlanWatch(driver.api, "cabs", NAME, driver.mounted)
        agent, executors = Agent(driver.api, "cabs", NAME, plans), Executors()
        plans.start()
        agent.start(executors, 3)
        try:
            agent.batch(a_batch(pin=PIN))
            soon(lambda: driver.reported)
            plane.part("kube-apiserver").kill()
            agent.idle(replace(PIN, epoch=7))
            time.sleep(3.0)
            plane.restart("kube-apiserver")
            driver.write(FIRST.model_copy(update={"epoch": 8, "executors": 1}))
            soon(lambda: executors.ready == 1)
            soon(lambda: (driver.reported["epoch"], driver.reported["executorsReady"]) == (7, 1))
        finally:
            agent.stop()
            plans.stop()
