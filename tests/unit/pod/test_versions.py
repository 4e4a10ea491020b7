"""Which version of a query the driver in a pod runs, and which one it is to run next."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiException, CoreV1Api, V1ConfigMap

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import PLAN_KEY, Plan
from millrace_api.model.takeover import NEXT_VERSION_KEY, RUNNING_VERSION_KEY, NextVersion, RunningVersion
from millrace_jobs.pod.agent import Agent
from millrace_jobs.pod.plan_watch import PlanWatch
from millrace_jobs.pod.versions import PodVersions

POD = "the uid of the pod"


class ConfigMaps(CoreV1Api):
    """The ConfigMaps of a namespace, and what the driver has written into its plan's."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, str]] = {}
        self.written: dict[str, str | None] = {}
        self.refuses = False

    def read_namespaced_config_map(  # type: ignore[override]
        self, name: str, namespace: str, **_: Any
    ) -> V1ConfigMap:
        if self.refuses or name not in self.held:
            raise ApiException(403, "Forbidden")
        return V1ConfigMap(data=self.held[name])

    def patch_namespaced_config_map(  # type: ignore[override]
        self, name: str, namespace: str, body: Any, **_: Any
    ) -> None:
        self.written |= body["data"]

    def put(self, query: str) -> str:
        """Put a configuration, and return its name."""
        files = {"query.yaml": query, "spark-defaults.conf": ""}
        text = json.dumps(files, sort_keys=True, separators=(",", ":"))
        name = f"trips-query-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        self.held[name] = files
        return name


class Driver:
    """The versions in a pod, and how often the run was to give way."""

    def __init__(self, api: ConfigMaps, folder: Path, pod: str = POD) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "query.yaml").write_text("mounted")
        self.versions = PodVersions(api, "cabs", pod, folder / "query.yaml", self._read)
        self.gave_way = 0
        self.versions.when_next(self._give_way)

    def _read(self, file: Path) -> Any:
        text = file.read_text()
        if "wrong" in text:
            raise MillraceError(Problem("no such column", "write another one"))
        return text

    def _give_way(self) -> None:
        self.gave_way += 1

    @property
    def report(self) -> RunningVersion:
        report = self.versions.report
        assert report is not None
        return report


@pytest.fixture
def api() -> ConfigMaps:
    return ConfigMaps()


@pytest.fixture
def driver(api: ConfigMaps, tmp_path: Path) -> Driver:
    return Driver(api, tmp_path / "mounted")


def named(configuration: str, revision: str = "new", pod: str = POD, **more: str) -> Mapping[str, str]:
    """The entries of the plan's ConfigMap."""
    return {NEXT_VERSION_KEY: NextVersion(pod=pod, revision=revision, configuration=configuration).to_json(), **more}


def test_a_version_that_is_named_for_the_pod_is_loaded_once_and_the_run_gives_way(
    api: ConfigMaps, driver: Driver
) -> None:
    found = named(api.put("SELECT 2"))
    for _ in range(3):
        driver.versions.adopt(found)
    assert driver.gave_way == 1
    assert driver.report.revision == "", "the old one runs until it has ended"
    version = driver.versions.take_next()
    assert version is not None
    assert (version.revision, version.query, version.file.read_text()) == ("new", "SELECT 2", "SELECT 2")
    assert (driver.report.pod, driver.report.revision, driver.report.computes_since) == (POD, "new", None)
    assert driver.report.time is not None
    driver.versions.adopt(found)
    assert (driver.gave_way, driver.versions.take_next()) == (1, None)


def test_the_files_of_a_version_are_removed_once_the_next_one_has_begun(
    api: ConfigMaps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    driver = Driver(api, tmp_path / "mounted")
    first = driver.versions.first(named(api.put("SELECT 2"), "second"))
    driver.versions.adopt(named(api.put("wrong"), "refused"))
    driver.versions.adopt(named(api.put("SELECT 3"), "third"))
    assert first.file.exists(), "it runs until it has given way"
    third = driver.versions.take_next()
    assert third is not None
    assert [each.parent for each in tmp_path.glob("millrace-version-*/*")] == [third.file.parent]
    driver.versions.adopt(named(api.put("mounted"), "fourth"))
    assert driver.versions.take_next() is not None
    assert len(list(tmp_path.glob("millrace-version-*"))) == 1
    assert (tmp_path / "mounted" / "query.yaml").exists()


def test_a_version_computes_since_its_first_batch(api: ConfigMaps, driver: Driver) -> None:
    driver.versions.computes()
    assert driver.report.computes_since is None, "the pod says that of the one it was created for"
    driver.versions.adopt(named(api.put("SELECT 2")))
    driver.versions.take_next()
    driver.versions.computes()
    since = driver.report.computes_since
    assert since is not None
    driver.versions.computes()
    assert driver.report.computes_since == since


def test_the_mounted_version_takes_over_again_from_the_one_that_followed_it(api: ConfigMaps, tmp_path: Path) -> None:
    driver, back = Driver(api, tmp_path / "mounted"), named(api.put("mounted"), "old")
    driver.versions.adopt(named(api.put("SELECT 2")))
    driver.versions.take_next()
    driver.versions.adopt(back)
    version = driver.versions.take_next()
    assert version is not None
    assert (driver.gave_way, version.query, driver.report.revision) == (1, "mounted", "old")
    reported = {RUNNING_VERSION_KEY: driver.report.to_json()}
    restarted = Driver(api, tmp_path / "mounted")
    assert restarted.versions.first({**back, **reported}).revision == "old", "before the operator has seen the report"
    driver.versions.adopt({NEXT_VERSION_KEY: "", **reported})
    assert driver.versions.take_next() is None
    restarted = Driver(api, tmp_path / "mounted")
    first = restarted.versions.first({NEXT_VERSION_KEY: "", **reported})
    assert (first.revision, first.file.read_text(), restarted.report) == ("", "mounted", RunningVersion(pod=POD))


@pytest.mark.parametrize(
    "found", [{}, {NEXT_VERSION_KEY: ""}, {NEXT_VERSION_KEY: "{"}, named("trips-query-0123456789", pod="another pod")]
)
def test_what_is_not_for_this_pod_changes_nothing(driver: Driver, found: Mapping[str, str]) -> None:
    driver.versions.adopt(found)
    assert (driver.gave_way, driver.versions.take_next()) == (0, None)


def test_a_query_that_cannot_run_is_refused_and_the_old_one_goes_on(api: ConfigMaps, driver: Driver) -> None:
    driver.versions.adopt(named(api.put("wrong")))
    assert driver.gave_way == 0
    assert (driver.report.refused, driver.report.revision) == ("new", "")
    assert "no such column" in driver.report.message


def test_a_configuration_that_another_client_has_made_is_refused(api: ConfigMaps, driver: Driver) -> None:
    name = api.put("SELECT 2")
    api.held[name] = api.held[name] | {"query.yaml": "SELECT secrets"}
    driver.versions.adopt(named(name))
    assert (driver.gave_way, driver.report.refused) == (0, "new")


def test_a_configuration_that_may_not_be_read_yet_is_tried_again(api: ConfigMaps, driver: Driver) -> None:
    """The Role that allows it reaches the API server's authorizer a moment later."""
    found, api.refuses = named(api.put("SELECT 2")), True
    with pytest.raises(ApiException):
        driver.versions.adopt(found)
    api.refuses = False
    driver.versions.adopt(found)
    assert driver.gave_way == 1


def test_a_container_that_starts_again_begins_with_the_version_of_its_pod(api: ConfigMaps, tmp_path: Path) -> None:
    found = named(api.put("SELECT 2"))
    for known, revision in (({}, ""), ({NEXT_VERSION_KEY: ""}, ""), (found, "new"), (named("x", pod="other"), "")):
        driver = Driver(api, tmp_path / "mounted")
        version = driver.versions.first(known)
        assert (version.revision, driver.report.revision) == (revision, revision)
        assert version.file.read_text() == ("SELECT 2" if revision else "mounted")


def test_the_time_of_a_version_goes_on_in_a_container_that_starts_again(api: ConfigMaps, tmp_path: Path) -> None:
    before = RunningVersion(pod=POD, revision="new", time="2026-01-31T12:00:00Z")
    found = named(api.put("SELECT 2"), **{RUNNING_VERSION_KEY: before.to_json()})
    driver = Driver(api, tmp_path / "mounted")
    driver.versions.first(found)
    assert driver.report == before


def test_without_the_uid_of_its_pod_a_driver_reports_nothing(api: ConfigMaps, tmp_path: Path) -> None:
    """An operator of an earlier version has made the pod."""
    driver = Driver(api, tmp_path / "mounted", pod="")
    driver.versions.adopt(named(api.put("SELECT 2"), pod=""))
    assert (driver.versions.report, driver.gave_way) == (None, 0)


def test_the_watch_on_the_plan_hands_over_the_version_and_the_agent_reports_it(
    api: ConfigMaps, driver: Driver, tmp_path: Path
) -> None:
    plan = Plan(epoch=1, algorithm=Algorithm.HASH, replicas=1, parallelism=1)
    (tmp_path / "plan.yaml").write_text(plan.to_json())
    watch = PlanWatch(api, "cabs", "plan", tmp_path / "plan.yaml", driver.versions)
    agent = Agent(api, "cabs", "plan", watch, driver.versions)
    agent.forget()
    assert RunningVersion.from_json(api.written[RUNNING_VERSION_KEY] or "") == RunningVersion(pod=POD)
    watch._adopt(V1ConfigMap(data={PLAN_KEY: plan.to_json(), **named(api.put("SELECT 2"))}))
    assert driver.gave_way == 1
    driver.versions.take_next()
    assert agent._report()
    assert RunningVersion.from_json(api.written[RUNNING_VERSION_KEY] or "").revision == "new"


def test_the_version_that_takes_over_reads_the_plan_of_the_one_before(api: ConfigMaps, tmp_path: Path) -> None:
    plan = Plan(epoch=1, algorithm=Algorithm.HASH, replicas=1, parallelism=1)
    (tmp_path / "plan.yaml").write_text(plan.to_json())
    watch = PlanWatch(api, "cabs", "plan", tmp_path / "plan.yaml")
    watch._is_started = True
    assert (watch.current(), watch.current()) == (plan, None)
    watch.start()
    assert watch.current() == plan
