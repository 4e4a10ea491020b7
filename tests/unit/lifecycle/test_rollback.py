"""A changed spec that does not become healthy: when the cluster is at fault and it waits, and when it is rolled back."""

from datetime import timedelta

import pytest

from millrace_operator.lifecycle.conditions import parse_time
from millrace_operator.lifecycle.refusals import PodRefusedError, QuotaExceededError
from millrace_operator.lifecycle.rollback import MAX_RETRIES, retry_after
from unit.resources.cases import SMALLEST

from .cluster import POD, stamp

BASE = SMALLEST.replace("DOUBLE\n", "DOUBLE, at TIMESTAMP\n      watermark: {column: at, delay: 30s}\n")
SQL = BASE.replace("count(*) AS n", "count(*) AS trips")
LARGER = BASE + "  driver: {memory: 64g}\n"
SMALLER = BASE + "  driver: {memory: 512m}\n"
PLACED = BASE + "  driver: {podTemplate: {spec: {nodeSelector: {disk: ssd}}}}\n"
TOLERANT = BASE + "  driver: {podTemplate: {spec: {tolerations: [{key: spot, operator: Exists}]}}}\n"
CLAIMING = BASE + (
    "  driver: {podTemplate: {spec: {volumes: [{name: lib, persistentVolumeClaim: {claimName: library}}]}}}\n"
)
IMAGE = BASE + "  image: example.org/jobs-timeout:500\n"
BROKERS = BASE.replace('"kafka:9092", topic: trips}', '"kafka-2:9092", topic: trips}')
SINK_BROKERS = BASE.replace('"kafka:9092", topic: trips-by', '"kafka-2:9092", topic: trips-by')
CODE = BASE + f"  code: [{{uri: 's3a://code/routes.zip', sha256: {'a' * 64}}}]\n"
TOPIC = BASE.replace("topic: trips}", "topic: rides}")
WATERMARK = BASE.replace("30s", "60s")

PULLING = 'Back-off pulling image "example.org/jobs-timeout:500"'
RESOLVE = 'ErrImagePull: failed to resolve reference "example.org/jobs-timeout:500"'
AWAY = (
    f"{PULLING}: {RESOLVE}: unexpected status from HEAD request to https://example.org/v2/jobs-timeout/manifests/500: "
    "503 Service Unavailable"
)
NOT_FOUND = f"{PULLING}: {RESOLVE}: example.org/jobs-timeout:500: not found"
UNAUTHORIZED = (
    f"{PULLING}: {RESOLVE}: unexpected status from HEAD request to https://example.org/v2/jobs-timeout/manifests/500: "
    "401 Unauthorized"
)
REFUSED = f'{PULLING}: {RESOLVE}: failed to do request: Head "https://example.org/v2/": dial tcp: connection refused'


@pytest.fixture
def healthy(cluster):
    """A query whose driver has been ready for long enough."""
    cluster.put(BASE)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    return cluster


def change(cluster, text):
    """Change the spec; return the revisions before and after."""
    before = runs(cluster)
    cluster.put(text)
    cluster.settle()
    return before, runs(cluster)


def runs(cluster):
    return cluster.pod and cluster.pod["metadata"]["annotations"]["millrace.io/revision"]


def finds_no_node(cluster):
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    cluster.pod_shows(phase="Pending", conditions=[unschedulable])


def finds_no_image(cluster, message, reason="ImagePullBackOff"):
    waiting = {"reason": reason, "message": message}
    cluster.pod_shows(phase="Pending", containerStatuses=[{"name": "driver", "state": {"waiting": waiting}}])


def fails(cluster, failure, times=1):
    """Fail again and again, each time at once after the pause."""
    for _ in range(times):
        cluster.pod_fails(f'{{"failure": "{failure}", "message": "no"}}')
        cluster.pass_time(minutes=5)


def waits(cluster, changed, why):
    """Assert that the changed spec waits for hours, says why, and becomes healthy once it can."""
    progress = cluster.condition("Progressing")
    assert progress.status == "True"
    assert f"not rolled back: {why}" in progress.message
    cluster.pass_time(hours=3)
    assert cluster.status.rejected is None
    assert cluster.condition("Degraded").status == "True"
    cluster.pod_is_ready()
    cluster.pass_time(minutes=2)
    assert runs(cluster) == changed
    assert cluster.condition("Degraded").status == "False"


def is_rolled_back(cluster, before, message, *, again):
    """Assert that the spec before runs again, and whether the changed one is tried later."""
    assert runs(cluster) == before
    rejected = cluster.status.rejected
    assert message in rejected.message
    assert (rejected.retry_time is not None) == again
    degraded = cluster.condition("Degraded")
    assert (degraded.status, degraded.reason) == ("True", "RolledBack")


@pytest.mark.parametrize("text", [SQL, SMALLER, IMAGE, BROKERS], ids=["SQL", "memory", "image", "brokers"])
def test_a_cluster_without_room_for_the_same_pod_is_waited_for(healthy, text):
    _, changed = change(healthy, text)
    finds_no_node(healthy)
    healthy.pass_time(minutes=11)
    waits(healthy, changed, "the last healthy spec asks for the same size and nodes")


@pytest.mark.parametrize("text", [LARGER, PLACED, TOLERANT, CLAIMING], ids=["size", "selector", "toleration", "volume"])
def test_a_pod_that_asks_for_more_or_for_other_nodes_is_rolled_back_and_tried_again(healthy, text):
    before, changed = change(healthy, text)
    finds_no_node(healthy)
    healthy.pass_time(minutes=9)
    assert runs(healthy) == changed
    healthy.pass_time(minutes=1)
    is_rolled_back(healthy, before, "the driver cannot be scheduled: 0/3 nodes", again=True)


def test_a_registry_that_does_not_answer_for_the_same_image_is_waited_for(healthy):
    _, changed = change(healthy, SQL)
    finds_no_image(healthy, NOT_FOUND)  # as a registry says that has lost its storage
    healthy.pass_time(minutes=11)
    waits(healthy, changed, "the last healthy spec has the same image")


@pytest.mark.parametrize("message", [AWAY, REFUSED])
def test_a_registry_that_does_not_answer_for_another_image_is_waited_for(healthy, message):
    _, changed = change(healthy, IMAGE)
    finds_no_image(healthy, message)
    healthy.pass_time(minutes=11)
    waits(healthy, changed, "the registry does not answer, which may pass")


@pytest.mark.parametrize(
    ("message", "reason", "again"),
    [
        (NOT_FOUND, "ImagePullBackOff", False),
        (UNAUTHORIZED, "ErrImagePull", False),
        ('couldn\'t parse image name "a b"', "InvalidImageName", False),
        (PULLING, "ImagePullBackOff", True),
    ],
)
def test_another_image_that_does_not_exist_is_rolled_back_and_not_tried_again(healthy, message, reason, again):
    before, _ = change(healthy, IMAGE)
    finds_no_image(healthy, message, reason)
    healthy.pass_time(minutes=10)
    is_rolled_back(healthy, before, message, again=again)


@pytest.mark.parametrize(
    ("text", "failure", "part"),
    [
        (SQL, "SourceFailed", "sources"),
        (WATERMARK, "SourceFailed", "sources"),
        (SINK_BROKERS, "SourceFailed", "sources"),
        (SQL, "SourceMissing", "sources"),
        (SQL, "SinkFailed", "sinks"),
        (BROKERS, "SinkFailed", "sinks"),
        (SQL, "CodeUnavailable", "code"),
    ],
)
def test_an_outage_of_what_both_specs_use_is_waited_for(healthy, text, failure, part):
    _, changed = change(healthy, text)
    fails(healthy, failure, 4)
    waits(healthy, changed, f"the last healthy spec has the same {part}")


@pytest.mark.parametrize(
    ("text", "failure"),
    [(BROKERS, "SourceFailed"), (TOPIC, "SourceMissing"), (SINK_BROKERS, "SinkFailed"), (CODE, "CodeUnavailable")],
)
def test_other_brokers_and_stores_that_do_not_answer_are_rolled_back_after_ten_minutes(healthy, text, failure):
    before, changed = change(healthy, text)
    fails(healthy, failure)
    assert runs(healthy) == changed
    healthy.pass_time(minutes=4)
    healthy.pod_fails(f'{{"failure": "{failure}", "message": "no"}}', restarts=2)
    assert healthy.status.rejected is None
    healthy.pass_time(minutes=1)
    is_rolled_back(healthy, before, f"{failure}: no", again=True)


def test_runs_that_recover_in_time_are_not_rolled_back(healthy):
    _, changed = change(healthy, BROKERS)
    fails(healthy, "SourceFailed")
    healthy.pass_time(minutes=4, seconds=30)
    healthy.pod_is_ready()
    healthy.pass_time(minutes=30)
    assert runs(healthy) == changed
    assert healthy.status.rejected is None


@pytest.mark.parametrize("failure", ["DiskFull", "NodeLost"])
def test_a_full_disk_or_a_lost_node_is_no_fault_of_a_spec(healthy, failure):
    _, changed = change(healthy, LARGER)
    fails(healthy, failure, 12)
    assert f"not rolled back: {failure} is no fault of a spec" in healthy.condition("Progressing").message
    assert runs(healthy) in (None, changed)
    assert healthy.status.rejected is None


def test_a_driver_on_a_lost_node_is_waited_for(healthy):
    change(healthy, LARGER)
    healthy.pod["metadata"]["deletionTimestamp"] = stamp(healthy.time)
    healthy.control = lambda: None
    healthy._changed(healthy.pod)
    healthy.settle()
    healthy.pass_time(minutes=30)
    assert healthy.status.rejected is None
    assert "not rolled back: NodeLost" in healthy.condition("Progressing").message


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        (SQL, QuotaExceededError("exceeded quota: few"), "the last healthy spec asks for the same size and nodes"),
        (IMAGE, QuotaExceededError("exceeded quota: few"), "the last healthy spec asks for the same size and nodes"),
        (SQL, PodRefusedError("a webhook does not answer"), "the last healthy spec has the same pod"),
        (SQL, None, "the last healthy spec has the same pod"),
    ],
)
def test_a_pod_that_would_be_refused_under_both_specs_is_waited_for(healthy, text, error, why):
    healthy.refused_pods = {"driver": error}
    change(healthy, text)
    healthy.pass_time(minutes=11)
    healthy.refused_pods = {}
    assert f"not rolled back: {why}" in healthy.condition("Progressing").message
    healthy.settle()
    healthy.pod_is_ready()
    healthy.pass_time(minutes=2)
    assert healthy.condition("Degraded").status == "False"


@pytest.mark.parametrize(
    ("text", "error"),
    [(LARGER, QuotaExceededError("exceeded quota: few")), (IMAGE, PodRefusedError("a policy allows no such image"))],
)
def test_a_pod_that_is_refused_for_what_has_changed_is_rolled_back_and_tried_again(healthy, text, error):
    before = runs(healthy)
    healthy.refused_pods = {"driver": error}
    change(healthy, text)
    healthy.pass_time(minutes=10)
    healthy.refused_pods = {}
    healthy.settle()
    is_rolled_back(healthy, before, str(error), again=True)


@pytest.mark.parametrize("text", [SQL, IMAGE])
def test_containers_that_cannot_be_made_are_compared_by_their_pods(healthy, text):
    before, changed = change(healthy, text)
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "login" not found'}
    healthy.pod_shows(containerStatuses=[{"name": "driver", "state": {"waiting": waiting}}])
    healthy.pass_time(minutes=11)
    if text is SQL:
        waits(healthy, changed, "the last healthy spec has the same pod")
    else:
        is_rolled_back(healthy, before, 'secret "login" not found', again=True)


def test_one_failure_of_a_source_while_the_driver_starts_again_is_not_the_specs(healthy):
    """The driver has tried for minutes before it ended, and Kubernetes has just started it again."""
    _, changed = change(healthy, SQL)
    healthy.pass_time(minutes=9, seconds=50)
    healthy.pod_fails('{"failure": "SourceFailed", "message": "no"}')
    last = healthy.pod["status"]["containerStatuses"][0] | {"state": {"running": {"startedAt": stamp(healthy.time)}}}
    healthy.pod_shows(containerStatuses=[last])
    healthy.pass_time(minutes=2)
    waits(healthy, changed, "the last healthy spec has the same sources")


# What was rolled back for a cause that may pass.


@pytest.fixture
def rejected(healthy):
    """A spec whose driver is too large for the cluster, which was rolled back to the last healthy one."""
    change(healthy, LARGER)
    finds_no_node(healthy)
    healthy.pass_time(minutes=10)
    healthy.pod_is_ready()
    healthy.before = runs(healthy)
    return healthy


def test_a_rejected_spec_is_not_run_again_by_an_operator_that_does_not_know_a_condition(rejected):
    of_another_version = rejected.query["status"]["conditions"][0] | {"type": "AtSea"}
    rejected.query["status"]["conditions"].append(of_another_version)
    rejected.start_operator()
    rejected.pass_time(minutes=1)
    assert rejected.status.rejected is not None
    assert runs(rejected) == rejected.before


def test_a_rejected_spec_says_when_it_is_tried_again(rejected):
    at = stamp(rejected.time + timedelta(hours=1))
    assert rejected.status.rejected.retry_time == at
    assert rejected.condition("Degraded").message == (
        f"generation 2 did not become healthy, is tried again at {at}, and the last healthy spec runs until then: "
        "not ready within 10 minutes: the driver cannot be scheduled: 0/3 nodes"
    )


def test_a_rejected_spec_is_tried_again_after_an_hour_and_becomes_healthy(rejected):
    rejected.pass_time(minutes=59)
    assert runs(rejected) == rejected.before
    rejected.actions.clear()
    rejected.pass_time(minutes=1)
    assert runs(rejected) != rejected.before
    assert ("status", "Draining") in rejected.actions
    rejected.pass_time(minutes=8)
    rejected.pod_is_ready()
    rejected.pass_time(minutes=2)
    assert rejected.status.rejected is None
    assert rejected.condition("Degraded").status == "False"
    rejected.pass_time(hours=48)
    assert runs(rejected) != rejected.before


def test_each_try_comes_later_and_after_the_last_one_the_healthy_driver_is_left_alone(rejected):
    pauses = []
    while (due := rejected.status.rejected.retry_time) is not None:
        pauses.append(parse_time(due) - parse_time(rejected.status.rejected.time))
        rejected.pass_time(seconds=(parse_time(due) - rejected.time).total_seconds() - 1)
        assert runs(rejected) == rejected.before
        rejected.pass_time(seconds=1)
        assert runs(rejected) != rejected.before
        finds_no_node(rejected)
        rejected.pass_time(minutes=10)
        rejected.pod_is_ready()
    assert pauses == [timedelta(hours=each) for each in (1, 2, 4, 8, 16, 24)]
    assert rejected.status.rejected.tries == MAX_RETRIES + 1
    rejected.pass_time(hours=100)
    assert runs(rejected) == rejected.before


def test_nothing_is_tried_while_the_healthy_spec_is_not_well_itself(rejected):
    finds_no_node(rejected)
    rejected.pass_time(hours=5)
    assert runs(rejected) == rejected.before
    rejected.pod_is_ready()
    rejected.pass_time(seconds=59)
    assert runs(rejected) == rejected.before
    rejected.pass_time(seconds=1)
    assert runs(rejected) != rejected.before


def test_a_try_goes_on_under_an_operator_that_was_just_started(rejected):
    rejected.pass_time(hours=1)
    again = runs(rejected)
    finds_no_node(rejected)
    rejected.start_operator()
    rejected.settle()
    rejected.pass_time(minutes=5)
    assert runs(rejected) == again
    rejected.pass_time(minutes=5)
    assert runs(rejected) == rejected.before
    assert rejected.status.rejected.tries == 2


def test_a_suspended_or_paused_query_is_not_tried(rejected):
    pod = rejected.objects[POD]["metadata"]["uid"]
    rejected.put(LARGER, {"millrace.io/paused": "true"})
    rejected.pass_time(hours=3)
    assert rejected.objects[POD]["metadata"]["uid"] == pod
    rejected.put(LARGER + "  suspend: true\n")
    rejected.settle()
    rejected.pass_time(hours=3)
    assert rejected.pod is None


def test_another_spec_is_not_held_up_by_one_that_was_rejected(rejected):
    rejected.put(SQL)
    status = rejected.settle()
    assert status.rejected is None
    assert runs(rejected) != rejected.before


def test_the_time_between_tries_is_bounded():
    hours = [retry_after(tries) for tries in range(1, MAX_RETRIES + 2)]
    assert hours == [*(timedelta(hours=each) for each in (1, 2, 4, 8, 16, 24)), None]
