"""A compared version that takes over in the running driver: no other pod, and an end that any death leaves whole."""

from __future__ import annotations

from contextlib import suppress

import pytest

from millrace_api.model.changes import Effect
from millrace_api.model.status import Status
from millrace_api.model.takeover import NEXT_VERSION_KEY, RUNNING_VERSION_KEY, NextVersion, RunningVersion
from millrace_api.model.upgrade import UpgradeReport, UpgradeVerdict
from millrace_operator.lifecycle.takeover import IN_PROCESS, TAKEOVER_WITHIN
from millrace_operator.resources.spec_changes import EFFECTS
from unit.resources.cases import SMALLEST

from .cluster import POD, SET, Cluster, copied, stamp

PLAN = ("ConfigMap", "trips-by-cell-plan")
REVISION = "millrace.io/revision"
BASE = SMALLEST.replace("DOUBLE\n", "DOUBLE, at TIMESTAMP\n      watermark: {column: at, delay: 30s}\n")
SHADOW = "  upgrade: {mode: Shadow}\n"
CHANGED = BASE.replace("count(*) AS n", "count(*) AS trips") + SHADOW
AGAIN = BASE.replace("count(*) AS n", "count(*) AS number") + SHADOW


@pytest.fixture
def healthy(cluster: Cluster) -> Cluster:
    """A query whose driver has been ready for long enough, and says which version it runs."""
    cluster.put(BASE + SHADOW)
    cluster.settle()
    cluster.pod_is_ready()
    runs_version(cluster)
    cluster.pass_time(seconds=61)
    return cluster


def compared(cluster: Cluster, text: str, verdict: UpgradeVerdict = UpgradeVerdict.EQUAL) -> str:
    """Apply a change, and end its comparison; return its revision."""
    cluster.put(text)
    pod = "Pod", cluster.settle().upgrade.pod
    report = UpgradeReport(verdict=verdict, message="").model_dump_json(by_alias=True)
    ended = {"finishedAt": stamp(cluster.time), "exitCode": 0, "message": report}
    status = cluster.pod_shows(
        pod, containerStatuses=[{"name": "driver", "state": {"terminated": ended}}], phase="Succeeded"
    )
    return str(status.upgrade.revision)


def next_version(cluster: Cluster) -> str:
    """The version that the operator names for the driver in its pod, as JSON; empty without one."""
    return str(cluster.objects[PLAN]["data"].get(NEXT_VERSION_KEY) or "")


def named_in(cluster: Cluster) -> NextVersion:
    return NextVersion.from_json(next_version(cluster))


def runs_version(cluster: Cluster, revision: str = "", **more: str) -> Status:
    """Report the version that the driver in the pod that there is runs from now on."""
    time = {"time": stamp(cluster.time)} if revision else {}
    report = RunningVersion(pod=cluster.pod["metadata"]["uid"], revision=revision, **(time | more))
    cluster.objects[PLAN]["data"][RUNNING_VERSION_KEY] = report.to_json()
    return cluster.settle()


def template(cluster: Cluster) -> str:
    return str(cluster.objects[SET]["spec"]["template"]["metadata"]["annotations"][REVISION])


def is_drained(cluster: Cluster) -> bool:
    return any(action[0] == "drain" for action in cluster.actions)


def test_an_equal_version_is_named_for_the_driver_that_runs(healthy: Cluster) -> None:
    pod = healthy.pod
    new = compared(healthy, CHANGED)
    assert template(healthy) == new, "a pod that follows runs the new version"
    named = named_in(healthy)
    assert (named.pod, named.revision) == (pod["metadata"]["uid"], new)
    assert named.configuration == healthy.configuration(SET)["metadata"]["name"]
    assert "AS trips" in healthy.objects["ConfigMap", named.configuration]["data"]["query.yaml"]
    assert healthy.pod == pod
    assert not is_drained(healthy)
    progressing = healthy.condition("Progressing")
    assert (progressing.status, progressing.reason) == ("True", "TakingOver")
    assert healthy.condition("Ready").status == "True"


def test_the_driver_may_read_the_configuration_of_the_version_that_is_named(healthy: Cluster) -> None:
    compared(healthy, CHANGED)
    role = healthy.objects["Role", "trips-by-cell-driver"]
    readable = [name for rule in role["rules"] for name in rule.get("resourceNames", ())]
    assert named_in(healthy).configuration in readable


def test_the_template_comes_before_the_driver_gets_to_know_the_version(healthy: Cluster) -> None:
    """A pod that is lost in between would run the old version on the checkpoint of the new one."""
    at = len(healthy.actions)
    compared(healthy, CHANGED)
    applied = [action[1:] for action in healthy.actions[at:] if action[0] == "apply"]
    plans = [number for number, each in enumerate(applied) if each == ("ConfigMap", "trips-by-cell-plan")]
    assert applied.index(SET) < plans[-1]
    assert applied.index(("Role", "trips-by-cell-driver")) < plans[-1]


def test_what_the_driver_has_taken_over_counts_as_what_runs(healthy: Cluster) -> None:
    pod, old = healthy.pod, healthy.status.revision
    new = compared(healthy, CHANGED)
    status = runs_version(healthy, new)
    assert (status.revision, status.driver.revision) == (new, new)
    ready = healthy.condition("Ready")
    assert (ready.status, ready.message[:39]) == ("False", "the driver's first batch has not finish"), (
        "whatever the pod"
    )
    status = runs_version(healthy, new, computes_since=stamp(healthy.time))
    assert status.phase == "Running"
    saved = healthy.objects["ConfigMap", "trips-by-cell-healthy"]
    assert saved["metadata"]["annotations"][REVISION] == old, "not before it has been ready for a minute"
    healthy.pass_time(seconds=61)
    saved = healthy.objects["ConfigMap", "trips-by-cell-healthy"]
    assert saved["metadata"]["annotations"][REVISION] == new
    assert healthy.pod == pod
    assert not is_drained(healthy)
    assert healthy.condition("Progressing").reason == "Settled"
    assert healthy.condition("Degraded").status == "False"


def test_a_container_that_starts_again_while_a_version_takes_over_is_no_lost_driver(healthy: Cluster) -> None:
    new = compared(healthy, CHANGED)
    report = RunningVersion(pod=healthy.pod["metadata"]["uid"], revision=new, time=stamp(healthy.time))
    healthy.objects[PLAN]["data"][RUNNING_VERSION_KEY] = report.to_json()
    healthy.pod_shows(containerStatuses=[{"name": "driver", "state": {"waiting": {"reason": "ContainerCreating"}}}])
    assert healthy.condition("Ready").reason == "Deploying"


def takes_over(cluster: Cluster, text: str) -> str:
    """Let a version take over, and become healthy; return its revision."""
    new = compared(cluster, text)
    runs_version(cluster, new)
    runs_version(cluster, new, computes_since=stamp(cluster.time))
    cluster.pass_time(seconds=61)
    return new


def test_the_version_stays_named_for_a_container_that_starts_again(healthy: Cluster) -> None:
    mounted = healthy.configuration()
    new = takes_over(healthy, CHANGED)
    assert named_in(healthy).revision == new
    assert healthy.configuration() == mounted, "the pod mounts it for good"
    healthy.pass_time(hours=3)
    assert named_in(healthy).revision == new


def test_a_pod_that_follows_runs_the_version_of_the_template(healthy: Cluster) -> None:
    new = takes_over(healthy, CHANGED)
    healthy.reconciler.observations.object_gone(healthy.objects.pop(POD))
    healthy.settle()
    assert healthy.pod["metadata"]["annotations"][REVISION] == new
    assert not next_version(healthy)
    healthy.pod_is_ready()
    runs_version(healthy)
    status = healthy.pass_time(seconds=61)
    assert status.driver.revision == new
    assert not is_drained(healthy)


def test_one_version_takes_over_after_the_other_in_one_pod(healthy: Cluster) -> None:
    pod = healthy.pod["metadata"]["uid"]
    takes_over(healthy, CHANGED)
    last = takes_over(healthy, AGAIN)
    assert named_in(healthy).revision == last == healthy.status.driver.revision
    assert healthy.pod["metadata"]["uid"] == pod
    assert not is_drained(healthy)


@pytest.mark.parametrize("request_number", range(8))
def test_an_operator_that_dies_at_any_request_of_a_further_takeover_leaves_a_version_named(
    healthy: Cluster, request_number: int
) -> None:
    """A container that starts again meanwhile would run what its pod mounts, two versions ago."""
    takes_over(healthy, CHANGED)
    healthy.put(AGAIN)
    at = "Pod", healthy.settle().upgrade.pod
    report = UpgradeReport(verdict=UpgradeVerdict.EQUAL, message="").model_dump_json(by_alias=True)
    ended = {"finishedAt": stamp(healthy.time), "exitCode": 0, "message": report}
    state = {"name": "driver", "state": {"terminated": ended}}
    healthy.dies_at = request_number
    with suppress(ConnectionError):
        healthy.pod_shows(at, containerStatuses=[state], phase="Succeeded")
    assert named_in(healthy).pod == healthy.pod["metadata"]["uid"]


def test_the_version_of_the_pod_takes_over_again_from_the_one_that_followed_it(healthy: Cluster) -> None:
    pod, mounted = healthy.pod["metadata"]["uid"], healthy.configuration()["metadata"]["name"]
    old = healthy.status.revision
    takes_over(healthy, CHANGED)
    assert compared(healthy, BASE + SHADOW) == old
    assert template(healthy) == old
    assert (named_in(healthy).revision, named_in(healthy).configuration) == (old, mounted)
    runs_version(healthy, old)
    assert not next_version(healthy), "a container that starts again runs what its pod mounts"
    status = runs_version(healthy, old, computes_since=stamp(healthy.time))
    assert (status.phase, status.driver.revision) == ("Running", old)
    healthy.pass_time(seconds=61)
    runs_version(healthy)  # the container has started again
    status = healthy.pass_time(hours=1)
    assert (status.phase, status.driver.revision) == ("Running", old)
    assert healthy.pod["metadata"]["uid"] == pod
    assert not is_drained(healthy)


@pytest.mark.parametrize(
    "change",
    [
        ("batchInterval: 2s", "batchInterval: 5s"),
        ("upgrade: {mode: Shadow}", "sparkConf: {spark.sql.ansi.enabled: 'false'}\n  upgrade: {mode: Shadow}"),
        ("upgrade: {mode: Shadow}", "image: example.org/jobs:2\n  upgrade: {mode: Shadow}"),
        ("upgrade: {mode: Shadow}", "driver: {memory: 3g}\n  upgrade: {mode: Shadow}"),
    ],
)
def test_what_is_of_the_process_or_of_a_pod_replaces_the_driver(healthy: Cluster, change: tuple[str, str]) -> None:
    text = CHANGED if change[0] in CHANGED else CHANGED.replace(SHADOW, f"  {change[0]}\n{SHADOW}")
    compared(healthy, text.replace(*change))
    assert is_drained(healthy)
    assert not next_version(healthy)


def test_a_driver_that_reports_no_version_is_replaced(cluster: Cluster) -> None:
    """Its image is of an earlier version of Millrace."""
    cluster.put(BASE + SHADOW)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    compared(cluster, CHANGED)
    assert is_drained(cluster)


def test_the_report_of_an_earlier_pod_says_nothing(healthy: Cluster) -> None:
    healthy.reconciler.observations.object_gone(healthy.objects.pop(POD))
    healthy.settle()
    healthy.pod_is_ready()
    healthy.pass_time(seconds=61)
    compared(healthy, CHANGED)
    assert is_drained(healthy)


@pytest.mark.parametrize(
    "time",
    [
        "2026-99-99T99:99:99Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00+14:00",
        "2100-01-01T00:00:00Z",
    ],
)
@pytest.mark.parametrize("field", ["time", "computes_since"])
def test_a_report_with_an_impossible_time_says_nothing(healthy: Cluster, field: str, time: str) -> None:
    revision = healthy.status.revision
    status = runs_version(healthy, "another", **{field: time})
    assert (status.phase, status.driver.revision) == ("Running", revision)
    healthy.delete()
    healthy.settle()
    assert healthy.query is None


def test_a_pod_with_another_image_than_that_of_the_comparison_is_replaced(healthy: Cluster) -> None:
    healthy.image = "example.org/jobs:2"
    healthy.start_operator()
    healthy.settle()
    compared(healthy, CHANGED)
    assert is_drained(healthy)
    assert healthy.pod["spec"]["containers"][0]["image"] == healthy.image
    assert not next_version(healthy)


def test_a_pod_that_mounts_another_configuration_than_the_query_document_explains_is_replaced(
    healthy: Cluster,
) -> None:
    before = copied(healthy.configuration())
    before["metadata"] |= {"name": "trips-by-cell-query-0123456789", "uid": "of an earlier operator"}
    before["data"]["spark-defaults.conf"] = "spark.cleaner.ttl 1"
    pod = copied(healthy.pod)
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "query"]
    volume["configMap"]["name"] = before["metadata"]["name"]
    healthy.objects |= {("ConfigMap", before["metadata"]["name"]): before, POD: pod}
    healthy.start_operator()
    compared(healthy, CHANGED)
    assert is_drained(healthy)
    assert not next_version(healthy)


def not_ready(cluster: Cluster) -> None:
    """Let the driver's readiness probe fail."""
    shown = copied(cluster.pod["status"])
    shown["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": stamp(cluster.time)}]
    cluster.pod_shows(**shown)


def test_a_driver_that_is_not_ready_between_both_versions_has_its_time(healthy: Cluster) -> None:
    new = compared(healthy, CHANGED)
    not_ready(healthy)
    healthy.pass_time(seconds=TAKEOVER_WITHIN.seconds - 1)
    assert named_in(healthy).revision == new
    assert healthy.condition("Progressing").reason == "TakingOver"
    assert not is_drained(healthy)
    healthy.pass_time(seconds=2)
    assert is_drained(healthy)


def test_a_driver_whose_container_ends_before_it_reports_is_replaced(healthy: Cluster) -> None:
    compared(healthy, CHANGED)
    healthy.pod_fails()
    assert is_drained(healthy)


def test_a_driver_that_is_not_ready_begins_no_takeover(healthy: Cluster) -> None:
    healthy.put(CHANGED)
    healthy.settle()
    not_ready(healthy)
    compared(healthy, CHANGED)
    assert is_drained(healthy)


def test_a_plain_replacement_is_none_of_it(healthy: Cluster) -> None:
    healthy.put(CHANGED.replace("mode: Shadow", "mode: Replace"))
    healthy.settle()
    assert is_drained(healthy)


def test_what_is_expected_to_change_takes_over_too(healthy: Cluster) -> None:
    compared(healthy, CHANGED.replace("Shadow}", "Shadow, expectChanges: true}"), UpgradeVerdict.DIFFERENT)
    assert next_version(healthy)
    assert not is_drained(healthy)


def test_a_driver_that_refuses_is_replaced(healthy: Cluster) -> None:
    new = compared(healthy, CHANGED)
    runs_version(healthy, refused=new, message="no such column")
    assert is_drained(healthy)
    assert healthy.pod["metadata"]["annotations"][REVISION] == new


def test_a_driver_that_does_not_report_in_time_is_replaced(healthy: Cluster) -> None:
    new = compared(healthy, CHANGED)
    healthy.pass_time(seconds=TAKEOVER_WITHIN.seconds - 1)
    assert not is_drained(healthy)
    healthy.pass_time(seconds=2)
    assert is_drained(healthy)
    assert healthy.pod["metadata"]["annotations"][REVISION] == new
    assert not next_version(healthy)


def test_a_version_that_fails_after_its_takeover_is_rolled_back(healthy: Cluster) -> None:
    old = healthy.status.revision
    new = compared(healthy, CHANGED)
    runs_version(healthy, new)
    for restarts in range(1, 4):
        healthy.pass_time(seconds=30)
        healthy.pod_fails('{"failure": "Config", "message": "no such column"}', restarts=restarts)
    assert healthy.status.rejected.revision == new
    assert healthy.pod["metadata"]["annotations"][REVISION] == old
    assert template(healthy) == old
    assert not next_version(healthy)


def test_a_version_that_never_computes_after_its_takeover_is_late_from_then_on(healthy: Cluster) -> None:
    new = compared(healthy, CHANGED)
    healthy.pass_time(seconds=60)
    runs_version(healthy, new)
    assert healthy.status.rejected is None, "the age of the pod does not count"
    healthy.pass_time(seconds=60)
    assert healthy.status.driver.revision == new
    assert not is_drained(healthy)


def test_a_change_taken_back_meanwhile_is_followed_by_another_driver(healthy: Cluster) -> None:
    new = compared(healthy, CHANGED)
    healthy.put(BASE + SHADOW)
    status = healthy.settle()
    old = status.revision
    assert not next_version(healthy)
    runs_version(healthy, new)  # the driver was faster
    assert is_drained(healthy)
    assert healthy.pod["metadata"]["annotations"][REVISION] == old


def test_an_operator_that_dies_at_any_request_lets_the_version_take_over_once(healthy: Cluster) -> None:
    pod = healthy.pod["metadata"]["uid"]
    healthy.put(CHANGED)
    at = "Pod", healthy.settle().upgrade.pod
    report = UpgradeReport(verdict=UpgradeVerdict.EQUAL, message="").model_dump_json(by_alias=True)
    ended = {"finishedAt": stamp(healthy.time), "exitCode": 0, "message": report}
    state = {"name": "driver", "state": {"terminated": ended}}
    for request in range(12):
        healthy.dies_at = request
        try:
            healthy.pod_shows(at, containerStatuses=[state], phase="Succeeded")
        except ConnectionError:
            healthy.start_operator()
        healthy.dies_at = None
    healthy.settle()
    new = named_in(healthy).revision
    assert template(healthy) == new
    healthy.start_operator()
    runs_version(healthy, new, computes_since=stamp(healthy.time))
    healthy.pass_time(seconds=61)
    assert healthy.pod["metadata"]["uid"] == pod
    assert not is_drained(healthy)


def test_the_fields_that_a_driver_can_follow_are_replaced_ones() -> None:
    assert {field for field in IN_PROCESS if EFFECTS[field.removeprefix("spec.")] is not Effect.REPLACED} == set()
