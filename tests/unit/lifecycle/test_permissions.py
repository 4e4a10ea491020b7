"""A query that asks for what a policy does not allow: reported, not deployed, and what runs goes on."""

import pytest

from millrace_api.model.streamquery import Spec
from millrace_operator.resources.permissions import Permissions
from millrace_operator.resources.spec_changes import REVISION, revision
from millrace_operator.resources.tenancy_policy import TenancyPolicy
from unit.api.documents import MINIMAL, changed

from .cluster import POD, SET

HEALTHY = ("ConfigMap", "trips-by-cell-healthy")

FROM_KAFKA = MINIMAL.replace(
    "files: {path: data/*.csv, format: csv}", 'kafka: {bootstrapServers: "kafka:9092", topic: trips}'
)
OURS = changed(FROM_KAFKA, 12, "  image: registry.example.com/streams/trips:1")
THEIRS = changed(FROM_KAFKA, 12, "  image: elsewhere.example.com/trips:1")
SAID = (
    'spec.image: "elsewhere.example.com/trips:1" is not allowed in namespace default; '
    "write a value that matches one of registry.example.com/streams/**"
)


def suspended(text):
    return text.replace("spec:\n", "spec:\n  suspend: true\n", 1)


def policy(cluster, *images):
    """Restart the operator with another policy."""
    rule = {"namespaces": ["default"], "images": images}
    document = {"policy": [rule] if images else []}
    cluster.permissions = Permissions(TenancyPolicy.model_validate(document, by_name=False))
    cluster.start_operator()
    if cluster.query is not None:
        cluster.settle()


@pytest.fixture
def runs_theirs(cluster):
    """A query that runs an image which the policy does not allow since it was made stricter."""
    cluster.put(THEIRS)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    policy(cluster, "registry.example.com/streams/**")
    return cluster


def image(cluster):
    return cluster.pod["spec"]["containers"][0]["image"]


def ready(cluster):
    ready = cluster.condition("Ready")
    return ready.status, ready.reason, ready.message


def test_what_is_not_allowed_is_not_deployed_until_the_policy_allows_it(cluster):
    policy(cluster, "registry.example.com/streams/**")
    cluster.put(THEIRS)
    assert cluster.settle().phase == "Pending"
    assert ready(cluster) == ("False", "NotAllowed", SAID)
    assert (cluster.condition("Progressing").status, cluster.condition("Progressing").reason) == ("False", "NotAllowed")
    assert (True, "NotAllowed") in cluster.events
    assert cluster.objects == {}
    policy(cluster, "registry.example.com/streams/**", "elsewhere.example.com/**")
    assert cluster.settle().phase == "Deploying"
    assert image(cluster) == "elsewhere.example.com/trips:1"


def test_an_edit_that_is_not_allowed_tears_nothing_down(cluster):
    policy(cluster, "registry.example.com/streams/**")
    cluster.put(OURS)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    pod = cluster.pod["metadata"]["uid"]
    cluster.put(THEIRS)
    assert cluster.settle().phase == "Running"
    assert ready(cluster) == ("False", "NotAllowed", SAID)
    assert (cluster.pod["metadata"]["uid"], image(cluster)) == (pod, "registry.example.com/streams/trips:1")


def test_a_stricter_policy_kills_nothing_that_runs_and_reports_it(runs_theirs):
    assert runs_theirs.status.phase == "Running"
    assert ready(runs_theirs) == ("False", "NotAllowed", SAID)
    runs_theirs.control()
    assert image(runs_theirs) == "elsewhere.example.com/trips:1"


def test_a_driver_that_is_drained_after_a_failure_goes_on_under_a_stricter_policy(runs_theirs):
    runs_theirs.drain(None, SET[1], runs_theirs.objects[SET]["metadata"]["uid"])
    runs_theirs.settle()
    assert image(runs_theirs) == "elsewhere.example.com/trips:1"


def test_what_is_not_allowed_may_be_suspended_and_is_not_resumed(runs_theirs):
    runs_theirs.put(suspended(THEIRS))
    assert runs_theirs.settle().phase == "Suspended"
    assert runs_theirs.pod is None
    assert ready(runs_theirs) == ("False", "NotAllowed", SAID)
    for resumed in (THEIRS, changed(THEIRS, 10, "    sql: SELECT cel FROM trips")):
        runs_theirs.put(resumed)
        assert runs_theirs.settle().phase == "Suspended"
        assert runs_theirs.pod is None
    runs_theirs.put(OURS)
    assert runs_theirs.settle().phase == "Deploying"
    assert image(runs_theirs) == "registry.example.com/streams/trips:1"


def test_no_rollback_goes_to_a_spec_that_is_no_longer_allowed(runs_theirs):
    """Otherwise a spec that is allowed, and fails, would be a way back to one that is not."""
    runs_theirs.put(OURS)
    runs_theirs.settle()
    for _ in range(8):
        runs_theirs.pod_fails('{"failure": "UserCodeFailed", "message": "no"}')
        runs_theirs.pass_time(minutes=6)
        if runs_theirs.pod is None:
            break
    assert runs_theirs.status.rejected is None
    assert runs_theirs.status.phase == "Failed"
    assert runs_theirs.condition("Ready").reason == "Failed"


def test_a_paused_query_that_is_not_allowed_is_left_alone(runs_theirs):
    runs_theirs.put(suspended(THEIRS), {"millrace.io/paused": "true"})
    runs_theirs.settle()
    assert image(runs_theirs) == "elsewhere.example.com/trips:1"


def test_a_query_that_is_not_allowed_is_deleted_like_any_other(runs_theirs):
    runs_theirs.delete()
    for _ in range(3):
        runs_theirs.settle()
    assert runs_theirs.query is None


@pytest.mark.parametrize("labeled", ["as what runs", "as what it is"])
def test_a_forged_healthy_spec_is_no_way_around_the_policy(cluster, labeled):
    """Others may write the ConfigMap with the last healthy spec, which is what a rejected change goes back to."""
    policy(cluster, "registry.example.com/streams/**")
    cluster.put(OURS)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    saved = cluster.objects[HEALTHY]
    saved["data"]["spec.json"] = saved["data"]["spec.json"].replace("registry.example.com/streams", "elsewhere")
    if labeled == "as what it is":
        spec = Spec.model_validate_json(saved["data"]["spec.json"], by_name=False)
        saved["metadata"]["annotations"][REVISION] = revision(spec)
    cluster.start_operator()
    cluster.put(OURS.replace("count(*)", "cnt(*)"))
    cluster.settle()
    assert cluster.condition("Ready").reason == "InvalidQuery"
    del cluster.objects[POD]
    cluster.objects[SET]["spec"]["replicas"] = 0
    cluster.start_operator()
    cluster.settle()
    assert "elsewhere" not in str(cluster.objects[SET])
