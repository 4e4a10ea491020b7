"""A changed spec with ``upgrade.mode: Shadow``: compared with the one that runs, then followed or rejected."""

import pytest
import yaml

from millrace_api.model.upgrade import UpgradeReport, UpgradeVerdict
from millrace_operator.lifecycle.shadow import MOST_PODS
from millrace_operator.resources.shadow import COMPARED
from millrace_operator.resources.spec_changes import EFFECTS
from unit.resources.cases import SMALLEST

from .cluster import SET, stamp

BASE = SMALLEST.replace("DOUBLE\n", "DOUBLE, at TIMESTAMP\n      watermark: {column: at, delay: 30s}\n")
SHADOW = "  upgrade: {mode: Shadow}\n"
SQL = BASE.replace("count(*) AS n", "count(*) AS trips") + SHADOW
OTHER_SQL = BASE.replace("count(*) AS n", "count(*) AS number") + SHADOW


@pytest.fixture
def healthy(cluster):
    """A query whose driver has been ready for long enough."""
    cluster.put(BASE + SHADOW)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    return cluster


def applied(cluster, text):
    cluster.put(text)
    return cluster.settle()


def runs(cluster):
    """The revision that the driver's StatefulSet runs."""
    return cluster.objects[SET]["spec"]["template"]["metadata"]["annotations"]["millrace.io/revision"]


def shadows(cluster):
    """Names of the objects of comparisons, by kind."""
    return sorted((kind, name) for kind, name in cluster.objects if "-shadow-" in name)


def pod_of(cluster):
    return "Pod", cluster.status.upgrade.pod


def ends(cluster, verdict, message="", **more):
    """End the pod with a report."""
    report = UpgradeReport(verdict=verdict, message=message).model_dump_json(by_alias=True)
    return ends_with(cluster, {"exitCode": 0, "message": report}, phase="Succeeded", **more)


def ends_with(cluster, ended, **more):
    ended = {"finishedAt": stamp(cluster.time), **ended}
    state = {"name": "driver", "state": {"terminated": ended}}
    return cluster.pod_shows(pod_of(cluster), containerStatuses=[state], **more)


def test_a_changed_query_is_compared_while_the_old_one_runs(healthy):
    before, actions = runs(healthy), len(healthy.actions)
    status = applied(healthy, SQL)
    assert runs(healthy) == before
    assert not any(action[0] == "drain" for action in healthy.actions[actions:])
    assert status.upgrade.verdict is None
    progressing = healthy.condition("Progressing")
    assert (progressing.status, progressing.reason) == ("True", "Comparing")
    assert [kind for kind, _ in shadows(healthy)] == ["ConfigMap", "Pod"]
    versions = healthy.objects["ConfigMap", status.upgrade.pod[:-2]]["data"]
    old, new = (yaml.safe_load(versions[name]) for name in ("old.yaml", "new.yaml"))
    assert "AS n" in old["spec"]["query"]["sql"]
    assert "AS trips" in new["spec"]["query"]["sql"]
    assert new["spec"]["upgrade"] == {"mode": "Shadow"}
    assert healthy.condition("Ready").status == "True"


def test_the_driver_reads_nothing_of_how_it_is_upgraded(healthy):
    assert "upgrade" not in yaml.safe_load(healthy.configuration()["data"]["query.yaml"])["spec"]


def test_equal_results_replace_the_driver(healthy):
    before = runs(healthy)
    applied(healthy, SQL)
    status = ends(healthy, UpgradeVerdict.EQUAL)
    assert runs(healthy) != before
    assert status.upgrade.verdict == "Equal"
    assert status.rejected is None
    assert healthy.events.count((False, "UpgradeFollowed")) == 1
    healthy.pod_is_ready()
    status = healthy.pass_time(seconds=61)
    assert status.phase == "Running"
    assert [kind for kind, _ in shadows(healthy)] == ["Pod"], "its log can be read"
    assert healthy.condition("Degraded").status == "False"


@pytest.mark.parametrize("verdict", ["Different", "Slower", "Unsteady", "NotCompared"])
def test_any_other_verdict_rejects_the_change(healthy, verdict):
    before = runs(healthy)
    applied(healthy, SQL)
    status = ends(healthy, UpgradeVerdict(verdict), "city is NULL in 12 rows")
    assert runs(healthy) == before
    degraded = healthy.condition("Degraded")
    assert (degraded.status, degraded.reason) == ("True", "UpgradeRejected")
    assert "city is NULL in 12 rows" in degraded.message
    assert status.rejected.verdict == verdict
    assert (True, "UpgradeRejected") in healthy.events
    healthy.pass_time(hours=30)
    assert runs(healthy) == before, "nothing is tried again by itself"


def test_what_is_expected_to_change_is_followed_all_the_same(healthy):
    before = runs(healthy)
    applied(healthy, SQL.replace("Shadow}", "Shadow, expectChanges: true}"))
    ends(healthy, UpgradeVerdict.DIFFERENT)
    assert runs(healthy) != before


def test_what_could_not_be_compared_is_not_followed_even_if_changes_are_expected(healthy):
    before = runs(healthy)
    applied(healthy, SQL.replace("Shadow}", "Shadow, expectChanges: true}"))
    ends(healthy, UpgradeVerdict.NOT_COMPARED)
    assert runs(healthy) == before


@pytest.mark.parametrize("mode", ["mode: Shadow, expectChanges: true", "mode: Replace"])
def test_a_rejected_change_is_followed_once_it_is_accepted(healthy, mode):
    before = runs(healthy)
    applied(healthy, SQL)
    ends(healthy, UpgradeVerdict.DIFFERENT)
    pods = shadows(healthy)
    status = applied(healthy, SQL.replace("mode: Shadow", mode))
    assert runs(healthy) != before
    assert status.rejected is None
    assert shadows(healthy) == pods, "the same comparison"


def test_other_settings_compare_again(healthy):
    before = runs(healthy)
    applied(healthy, SQL)
    first = pod_of(healthy)
    ends(healthy, UpgradeVerdict.DIFFERENT)
    status = applied(healthy, SQL.replace("Shadow}", "Shadow, ignore: [trips]}"))
    assert status.upgrade.verdict is None
    assert pod_of(healthy) != first
    assert first not in healthy.objects
    assert runs(healthy) == before
    ends(healthy, UpgradeVerdict.EQUAL)
    assert runs(healthy) != before


def test_a_change_taken_back_ends_the_comparison(healthy):
    applied(healthy, SQL)
    status = applied(healthy, BASE + SHADOW)
    assert shadows(healthy) == []
    assert status.upgrade is None
    assert healthy.condition("Progressing").reason == "Settled"


def test_a_later_change_is_compared_in_the_place_of_the_first(healthy):
    applied(healthy, SQL)
    first = pod_of(healthy)
    applied(healthy, OTHER_SQL)
    assert first not in healthy.objects
    assert pod_of(healthy) in healthy.objects
    assert len(shadows(healthy)) == 2


def test_an_operator_that_starts_in_the_middle_goes_on(healthy):
    before = runs(healthy)
    applied(healthy, SQL)
    at = pod_of(healthy)
    healthy.start_operator()
    healthy.settle()
    assert pod_of(healthy) == at
    assert runs(healthy) == before
    ends(healthy, UpgradeVerdict.EQUAL)
    assert runs(healthy) != before


def test_an_operator_that_dies_at_any_request_compares_once_and_takes_over_once(healthy):
    before = runs(healthy)
    for request in range(12):
        healthy.dies_at = request
        try:
            applied(healthy, SQL)
        except ConnectionError:
            healthy.start_operator()
        healthy.dies_at = None
    healthy.settle()
    assert len(shadows(healthy)) == 2
    assert runs(healthy) == before


def test_a_lost_pod_is_followed_by_another_a_few_times(healthy):
    applied(healthy, SQL)
    lost = {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"}
    for tries in range(2, MOST_PODS + 1):
        status = healthy.pod_shows(pod_of(healthy), **lost)
        assert (status.upgrade.tries, status.upgrade.verdict) == (tries, None)
        assert pod_of(healthy) in healthy.objects
    status = healthy.pod_shows(pod_of(healthy), **lost)
    assert status.upgrade.verdict == "NotCompared"
    assert "the node was low on memory" in status.upgrade.message


def test_a_pod_that_runs_out_of_memory_says_which_field_to_raise(healthy):
    applied(healthy, SQL)
    status = ends_with(healthy, {"exitCode": 137, "reason": "OOMKilled"}, phase="Failed")
    assert status.upgrade.verdict == "NotCompared"
    assert "spec.driver.memory" in status.upgrade.message


def test_a_report_that_is_none_is_not_believed(healthy):
    before = runs(healthy)
    applied(healthy, SQL)
    ends_with(healthy, {"exitCode": 0, "message": '{"verdict": "Perfect"}'}, phase="Succeeded")
    assert runs(healthy) == before
    assert healthy.status.upgrade.verdict == "NotCompared"


def test_a_pod_that_takes_too_long_is_given_up(healthy):
    applied(healthy, SQL)
    status = healthy.pod_shows(pod_of(healthy), phase="Failed", reason="DeadlineExceeded")
    assert "has taken longer than 90 minutes" in status.upgrade.message


def test_a_pod_that_finds_no_node_is_given_up_after_half_an_hour(healthy):
    applied(healthy, SQL)
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: no memory"}
    healthy.pod_shows(pod_of(healthy), phase="Pending", conditions=[waits])
    assert healthy.pass_time(minutes=29).upgrade.verdict is None
    assert "0/3 nodes: no memory" in healthy.pass_time(minutes=2).upgrade.message


def test_a_refused_pod_leaves_all_else_alone_and_is_tried_again(healthy):
    before = runs(healthy)
    healthy.policy = "Pod"
    applied(healthy, SQL)
    status = healthy.pass_time(seconds=1)
    assert runs(healthy) == before
    assert (status.phase, healthy.condition("Ready").status) == ("Running", "True")
    assert "a policy of the cluster says no; tried again at" in healthy.condition("Progressing").message
    applied(healthy, SQL + "  executors: {max: 3, initial: 3}\n")
    assert '"executors":3' in healthy.objects["ConfigMap", "trips-by-cell-plan"]["data"]["plan.yaml"]
    healthy.policy = None
    healthy.pass_time(minutes=2)
    assert pod_of(healthy) in healthy.objects


def test_a_pod_that_is_refused_for_half_an_hour_is_given_up(healthy):
    healthy.policy = "Pod"
    applied(healthy, SQL)
    assert healthy.pass_time(minutes=28).upgrade.verdict is None
    status = healthy.pass_time(minutes=14)
    assert status.upgrade.verdict == "NotCompared"
    assert "a policy of the cluster says no" in status.upgrade.message


def test_a_config_map_that_another_client_has_made_is_replaced_before_the_pod_is_made(healthy):
    applied(healthy, SQL)
    at, name = pod_of(healthy), shadows(healthy)[0]
    wanted = healthy.objects[name]["data"]
    del healthy.objects[at]
    healthy.start_operator()
    healthy.objects[name] = healthy.objects[name] | {"data": {"new.yaml": "other"}}
    healthy.actions.clear()
    healthy.settle()
    assert healthy.objects[name]["data"] == wanted
    assert at in healthy.objects
    changes = [action for action in healthy.actions if action[0] in ("drop", "apply")]
    assert changes == [("drop", name[1]), ("apply", *name), ("apply", *at)]


def test_a_verdict_is_of_one_version_that_ran(healthy):
    """Equal with the first version says nothing about the second."""
    applied(healthy, SQL)
    ends(healthy, UpgradeVerdict.EQUAL)
    healthy.pod_is_ready()
    healthy.pass_time(seconds=61)
    applied(healthy, OTHER_SQL.replace("Shadow", "Replace"))
    healthy.pod_is_ready()
    healthy.pass_time(seconds=61)
    before = runs(healthy)
    status = applied(healthy, SQL)
    assert runs(healthy) == before
    assert status.upgrade.verdict is None


def test_a_deleted_pod_is_followed_by_another(healthy):
    applied(healthy, SQL)
    first = pod_of(healthy)
    healthy.objects[first]["metadata"]["deletionTimestamp"] = stamp(healthy.time)
    status = healthy.settle()
    assert status.upgrade.tries == 2
    assert pod_of(healthy) in healthy.objects


def test_a_change_that_cannot_change_results_is_not_compared(healthy):
    before = runs(healthy)
    applied(healthy, BASE + SHADOW + "  driver: {memory: 3g}\n")
    assert shadows(healthy) == []
    assert runs(healthy) != before


def test_a_driver_that_keeps_failing_is_replaced_without_a_comparison(healthy):
    for number in range(2):
        healthy.pod_fails(restarts=number + 1)
    before = runs(healthy)
    applied(healthy, SQL)
    assert shadows(healthy) == []
    assert runs(healthy) != before


def test_a_comparison_goes_on_when_a_suspended_query_is_resumed(healthy):
    before = runs(healthy)
    applied(healthy, SQL)
    applied(healthy, SQL + "  suspend: true\n")
    assert shadows(healthy) == []
    assert healthy.condition("Progressing").reason == "Settled"
    applied(healthy, SQL)
    assert runs(healthy) == before
    assert pod_of(healthy) in healthy.objects
    ends(healthy, UpgradeVerdict.EQUAL)
    assert runs(healthy) != before


def test_a_comparison_goes_on_when_the_driver_fails_meanwhile(healthy):
    before = runs(healthy)
    applied(healthy, SQL)
    for number in range(3):
        healthy.pod_fails(restarts=number + 1)
        healthy.pass_time(minutes=6)
    assert runs(healthy) == before
    assert healthy.status.upgrade.verdict is None


def test_a_lost_spec_of_the_driver_that_runs_is_no_reason_to_replace_it(healthy):
    before = runs(healthy)
    applied(healthy, SQL)
    healthy.reconciler.observations.object_gone(healthy.objects.pop(("ConfigMap", "trips-by-cell-healthy")))
    healthy.settle()
    assert runs(healthy) == before
    assert "the last healthy spec, which runs, is lost" in healthy.condition("Progressing").message


def test_a_healthy_change_that_fails_later_is_rolled_back_as_ever(healthy):
    before = runs(healthy)
    applied(healthy, SQL.replace("Shadow}", "Shadow, expectChanges: true}"))
    ends(healthy, UpgradeVerdict.DIFFERENT)
    report = '{"failure": "InvalidConfiguration", "message": "no such column"}'
    for number in range(2):
        healthy.pod_fails(report, restarts=number + 1)
        healthy.pass_time(minutes=6)
    assert runs(healthy) == before
    assert healthy.condition("Degraded").reason == "RolledBack"


def test_every_field_that_replaces_the_driver_is_compared_or_cannot_change_results():
    """If this fails: decide where the new field belongs."""
    cannot = {
        "sink",
        "batchInterval",
        "executors.cores",
        "executors.memory",
        "executors.podTemplate",
        "driver.cores",
        "driver.memory",
        "driver.podTemplate",
        "snapshots",
        "s3",
        "azure",
        "lookups.tokens",
        "lookups.tls",
        "serviceAccountName",
        "labels",
        "scheduling",
        "eventLog",
        "lineage",
        "restartNonce",
    }
    replacing = {field for field, effect in EFFECTS.items() if effect == "driver replaced"}
    assert replacing == cannot | {field.removeprefix("spec.") for field in COMPARED}
