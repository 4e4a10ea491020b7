"""A changed spec: what goes on in place, what replaces the driver, and what is rolled back."""

import pytest
import yaml

from unit.api.documents import MINIMAL, changed

from .cluster import SET

OTHER_SQL = changed(MINIMAL, 10, "    sql: SELECT cell, count(*) AS trips FROM trips GROUP BY cell")
SUSPENDED = changed(MINIMAL, 12, "  suspend: true")


def runs(cluster):
    return cluster.pod["metadata"]["annotations"]["millrace.io/revision"]


@pytest.fixture
def healthy(cluster):
    """A query whose driver has been ready for long enough."""
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    assert ("ConfigMap", "trips-by-cell-healthy") not in cluster.objects
    cluster.pass_time(seconds=61)
    assert ("ConfigMap", "trips-by-cell-healthy") in cluster.objects
    cluster.actions.clear()
    return cluster


def test_a_change_in_place_leaves_the_driver_alone(healthy):
    pod = healthy.pod["metadata"]["uid"]
    healthy.put(changed(MINIMAL, 12, "  executors: {initial: 4}\n  scaling: {mode: Advise}"))
    status = healthy.settle()
    assert healthy.pod["metadata"]["uid"] == pod
    assert (status.phase, status.plan.shape, status.plan.epoch) == ("Running", "4/8/2", 2)


def looked_up(namespaces, **parts):
    """The query with look-ups from namespaces."""
    document = yaml.safe_load(MINIMAL)
    document["spec"] |= {"sink": {"table": {"bootstrapServers": "kafka:9092", "topic": "by-cell"}}} | parts
    document["spec"]["lookups"] = {"tokens": {"secretKeyRef": {"name": "readers", "key": "tokens"}}} | namespaces
    return yaml.safe_dump(document)


def let_in(cluster):
    """The namespaces whose pods reach the port for look-ups."""
    rules = cluster.objects["NetworkPolicy", "trips-by-cell-driver"]["spec"]["ingress"]
    (peers,) = (rule["from"] for rule in rules if [port["port"] for port in rule.get("ports", ())] == [8082])
    return [each["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for each in peers]


def test_look_ups_are_taken_from_a_namespace_at_once_and_a_rollback_does_not_give_them_back(cluster):
    cluster.put(looked_up({"namespaces": ["a", "b"]}))
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    pod, before = cluster.pod["metadata"]["uid"], runs(cluster)
    assert let_in(cluster) == ["a", "b"]
    cluster.put(looked_up({"namespaces": ["a"]}))
    cluster.settle()
    assert (cluster.pod["metadata"]["uid"], let_in(cluster)) == (pod, ["a"])
    cluster.put(looked_up({"namespaces": ["c"]}, batchInterval="7s"))
    cluster.settle()
    cluster.driver_starts(serves=False)
    cluster.pass_time(minutes=10)
    assert (cluster.status.rejected is not None, runs(cluster)) == (True, before)
    assert let_in(cluster) == ["c"]


def test_a_replacement_drains_and_goes_on_with_the_new_spec(healthy):
    pod, before = healthy.pod["metadata"]["uid"], runs(healthy)
    healthy.put(OTHER_SQL)
    healthy.settle()
    kinds = [action for action in healthy.actions if action[0] in ("drain", "apply")]
    assert kinds[0] == ("drain", SET[1])
    assert ("apply", *SET) in kinds
    assert (healthy.pod["metadata"]["uid"], runs(healthy)) != (pod, before)
    messages = [action for action in healthy.actions if action[0] == "status"]
    assert messages[0] == ("status", "Draining")
    assert healthy.pod_is_ready().phase == "Running"
    assert healthy.condition("Degraded").status == "False"


def test_why_a_driver_is_replaced_is_said(healthy):
    healthy.put(OTHER_SQL)
    healthy.objects[SET]["spec"]["replicas"] = 1
    healthy.control = lambda: None  # the driver takes its time
    healthy.settle()
    progress = healthy.condition("Progressing")
    assert progress.reason == "Replacing"
    assert progress.message.startswith("spec.query changed: the driver ends after its running batch")


def test_until_the_driver_has_ended_it_keeps_what_it_runs(healthy):
    """A driver that crashes while it drains begins again with its own query, and not with the next one."""
    before = healthy.configuration()
    healthy.put(OTHER_SQL)
    control, healthy.control = healthy.control, lambda: None
    healthy.settle()
    assert healthy.configuration() == before
    healthy.control = control
    healthy.settle()
    assert healthy.configuration()["data"] != before["data"]
    assert healthy.configurations == {healthy.configuration()["metadata"]["name"]}


def test_another_restart_nonce_replaces_the_driver(healthy):
    pod = healthy.pod["metadata"]["uid"]
    healthy.put(changed(MINIMAL, 12, "  restartNonce: 1"))
    healthy.settle()
    assert healthy.pod["metadata"]["uid"] != pod
    assert healthy.status.plan.epoch == 1


def test_what_does_not_become_ready_in_time_is_rolled_back(healthy):
    before = runs(healthy)
    healthy.put(OTHER_SQL)
    healthy.settle()
    rejected = runs(healthy)
    healthy.driver_starts(serves=False)
    healthy.pass_time(minutes=9)
    assert runs(healthy) == rejected
    healthy.pass_time(minutes=1)
    assert runs(healthy) == before
    status = healthy.pod_is_ready()
    degraded = healthy.condition("Degraded")
    assert (status.phase, degraded.status, degraded.reason) == ("Running", "True", "RolledBack")
    assert degraded.message == (
        "generation 2 did not become healthy, and the last healthy spec runs again: "
        "not ready within 10 minutes: the driver is starting"
    )
    assert (status.rejected.generation, status.rejected.revision) == (2, rejected)
    assert (True, "RolledBack") in healthy.events
    healthy.pass_time(minutes=30)
    assert runs(healthy) == before


def test_what_fails_again_and_again_is_rolled_back(healthy):
    before = runs(healthy)
    healthy.put(OTHER_SQL)
    healthy.settle()
    for _ in range(2):
        healthy.pod_fails('{"failure": "UserCodeFailed", "message": "ZeroDivisionError: division by zero"}')
        healthy.pass_time(minutes=1)
    assert runs(healthy) != before
    healthy.pod_fails('{"failure": "UserCodeFailed", "message": "ZeroDivisionError: division by zero"}')
    assert runs(healthy) == before
    assert "UserCodeFailed: ZeroDivisionError" in healthy.condition("Degraded").message
    assert len(healthy.status.attempts) == 3


def test_a_change_after_a_rollback_is_tried(healthy):
    healthy.put(OTHER_SQL)
    healthy.settle()
    healthy.driver_starts(serves=False)
    healthy.pass_time(minutes=11)
    before = runs(healthy)
    healthy.put(OTHER_SQL + "  scaling: {mode: Advise}\n")  # the same driver: rejected already
    healthy.settle()
    assert runs(healthy) == before
    healthy.put(OTHER_SQL + "  restartNonce: 1\n")
    status = healthy.settle()
    assert runs(healthy) != before
    assert status.rejected is None
    healthy.pod_is_ready()
    healthy.pass_time(minutes=2)
    assert healthy.condition("Degraded").status == "False"


def test_the_old_spec_applied_again_is_no_rollback(healthy):
    healthy.put(OTHER_SQL)
    healthy.settle()
    healthy.driver_starts(serves=False)
    healthy.pass_time(minutes=11)
    healthy.put(MINIMAL)
    status = healthy.settle()
    assert status.rejected is None
    assert healthy.condition("Degraded").status == "False"


def test_a_first_spec_is_not_rolled_back(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    assert cluster.pass_time(hours=1).phase == "Deploying"


def test_a_suspended_query_takes_a_change_without_a_driver(healthy):
    healthy.put(SUSPENDED)
    assert healthy.settle().phase == "Suspended"
    healthy.put(changed(SUSPENDED, 10, "    sql: SELECT cell, count(*) AS trips FROM trips GROUP BY cell"))
    assert healthy.settle().phase == "Suspended"
    assert healthy.pod is None
    healthy.put(OTHER_SQL)
    assert healthy.settle().phase == "Deploying"


def test_a_driver_made_from_an_older_template_is_replaced_too(cluster):
    """A StatefulSet's controller may have made a pod just before its template was changed."""
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod["metadata"]["annotations"]["millrace.io/revision"] = "0000000000"
    cluster.settle()
    assert runs(cluster) != "0000000000"


def test_an_invalid_spec_has_not_been_ready_since_it_was_applied(healthy):
    """And not since the last step, which would write the status each time."""
    healthy.put(changed(MINIMAL, 10, "    sql: SELECT cel FROM trips"))
    healthy.settle()
    since, writes = healthy.condition("Ready").last_transition_time, healthy.writes
    healthy.pass_time(seconds=90)
    healthy.settle()
    assert (healthy.condition("Ready").last_transition_time, healthy.writes) == (since, writes)
    assert healthy.condition("Ready").reason == "InvalidQuery"
