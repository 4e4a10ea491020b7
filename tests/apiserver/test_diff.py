"""``millrace diff`` against a real API server: what it says, and that apply then does the same."""

from __future__ import annotations

import json
import re

import pytest

from unit.api.documents import ON_CLUSTER
from unit.commands.queries import condition

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

NAME = "trips-by-cell"
SCALED = f"{ON_CLUSTER}  executors: {{max: 12}}\n"
PYTHON_IMAGE = f"{ON_CLUSTER}  image: example.org/jobs:2\n"


@pytest.fixture
def diff(millrace, tmp_path):
    """Compares a query with that on the cluster; the exit status, and the output as one line."""

    def run(document: str, *options: str) -> tuple[int, str]:
        file = tmp_path / "query.yaml"
        file.write_text(document, encoding="utf-8")
        result = millrace("diff", str(file), *options)
        return result.status, " ".join(f"{result.out}{result.err}".split())

    return run


@pytest.fixture
def applied(kubectl):
    """The query as kubectl applied it, and a driver that runs it."""
    kubectl("apply", "-f", "-", document=ON_CLUSTER)

    def report(**status: object) -> None:
        ready = condition("Ready", "True", "Running") | {"lastTransitionTime": "2026-01-31T09:00:19Z"}
        driver = {"pod": f"{NAME}-driver-0", "startTime": "2026-01-31T09:00:00Z", "restarts": 0}
        full = {"phase": "Running", "conditions": [ready], "driver": driver} | status
        kubectl("patch", "sq", NAME, "--subresource=status", "--type=merge", "-p", json.dumps({"status": full}))

    report()
    return report


def stored(kubectl):
    found = json.loads(kubectl("get", "sq", NAME, "-o", "json"))
    return found["spec"], found["metadata"]["resourceVersion"]


def test_a_new_query_is_shown_as_created_and_nothing_is_created(diff, kubectl, namespace):
    status, said = diff(ON_CLUSTER)
    assert (status, said) == (
        1,
        f"{NAME} in namespace {namespace}: created driver the query is created, and a driver starts",
    )
    assert kubectl("get", "sq") == ""


@pytest.mark.usefixtures("applied")
def test_the_same_file_is_no_difference(diff, kubectl, namespace):
    before = stored(kubectl)
    kubectl("patch", "sq", NAME, "--type=merge", "-p", '{"spec": {"executors": {"initial": 3}}}')
    scaled = stored(kubectl)[0]
    assert diff(f"{ON_CLUSTER}  batchInterval: 2s\n") == (0, f"{NAME} in namespace {namespace}: no change")
    assert stored(kubectl)[0] == scaled != before[0]


@pytest.mark.usefixtures("applied")
def test_scaling_is_changed_in_place(diff):
    status, said = diff(SCALED)
    assert status == 1
    assert "spec.executors.max 8 12 in place: a bound of the next plan" in said
    assert "driver keeps running" in said
    assert "scaling starts over" in said
    assert "pause" not in said


def test_another_image_replaces_the_driver_for_as_long_as_was_observed(diff, applied):
    status, said = diff(PYTHON_IMAGE)
    assert status == 1
    assert "spec.image - example.org/jobs:2 replaces the driver" in said
    assert "driver ends after its running batch, and another one continues" in said
    assert "how long batches take was not observed" in said
    assert "about 19 s for the start of a driver and its first batch" in said
    applied(load={"processingSeconds": 1.25}, driver={"pod": "p", "startTime": "2026-01-31T09:00:00Z", "restarts": 2})
    said = diff(PYTHON_IMAGE)[1]
    assert "up to 1.2 s for the running batch" in said
    assert "the start of a driver and its first batch (how long that takes was not observed)" in said


@pytest.mark.parametrize("server_side", [False, True])
def test_a_field_that_is_gone_from_the_file_is_removed_as_by_apply(diff, kubectl, server_side):
    options = ["--server-side"] if server_side else []
    kubectl("apply", *options, "-f", "-", document=PYTHON_IMAGE)
    kubectl("patch", "sq", NAME, "--type=merge", "-p", '{"spec": {"restartNonce": 4}}')
    status, said = diff(ON_CLUSTER)
    assert (status, "spec.image example.org/jobs:2 - replaces the driver" in said) == (1, True)
    assert "restartNonce" not in said  # another's field
    kubectl("apply", *options, "-f", "-", document=ON_CLUSTER)
    spec = stored(kubectl)[0]
    assert "image" not in spec
    assert spec["restartNonce"] == 4
    assert diff(ON_CLUSTER)[0] == 0


@pytest.mark.usefixtures("applied")
def test_another_checkpoint_is_refused_in_the_servers_words(diff, kubectl):
    changed = ON_CLUSTER.replace("claimName: checkpoints", "claimName: others")
    status, said = diff(changed)
    assert status == 2
    assert re.search(r"refused by the API server: StreamQuery.* checkpoint cannot be changed", said)
    assert "spec.checkpoint.claimName checkpoints others the API server rejects the change" in said
    assert stored(kubectl)[0]["checkpoint"] == {"claimName": "checkpoints"}


@pytest.mark.usefixtures("applied")
def test_other_groups_cannot_use_the_checkpoint(diff):
    other = ON_CLUSTER.replace(
        "SELECT cell, count(*) AS n FROM trips GROUP BY cell", "SELECT sum(fare) AS n FROM trips"
    )
    status, said = diff(other)
    assert status == 2
    assert "refused by the driver: spec.query.sql: the checkpoint was made with GROUP BY cell, not with nothing" in said
    assert "possible in shadow: run it beside this one under another metadata.name" in said
    fewer = ON_CLUSTER.replace("SELECT cell, count(*) AS n", "SELECT cell, count(*) AS n, count(fare) AS fares")
    status, said = diff(fewer)
    assert (status, "the state has no values of COUNT(fare) from the records before the change" in said) == (2, True)
    filtered = ON_CLUSTER.replace("GROUP BY", "WHERE fare > 1 GROUP BY")
    status, said = diff(filtered)
    assert (status, "the state keeps what was counted under the old one" in said) == (1, True)
    assert "state possible: spec.query.sql: the filter has changed" in said


def test_what_validation_and_restrictions_refuse_is_status_2_with_its_place(diff):
    status, said = diff(ON_CLUSTER.replace("cell STRING", "cell STRINGS"))
    assert (status, "query.yaml:8: spec.sources.trips.schema" in said) == (2, True)
    status, said = diff(f"{ON_CLUSTER}  driver: {{podTemplate: {{spec: {{hostNetwork: true}}}}}}\n")
    assert (status, "query.yaml:13: spec.driver.podTemplate.spec.hostNetwork: may not be true" in said) == (2, True)


def test_a_name_that_is_taken_is_refused_with_the_object_that_has_it(diff, kubectl):
    kubectl("create", "configmap", f"{NAME}-plan")
    status, said = diff(ON_CLUSTER)
    assert status == 2
    assert f"refused by the operator: ConfigMap {NAME}-plan exists and is not this query's; rename" in said


def test_a_suspended_query_has_no_driver_to_replace(diff, kubectl):
    kubectl("apply", "-f", "-", document=f"{ON_CLUSTER}  suspend: true\n")
    status, said = diff(f"{PYTHON_IMAGE}  suspend: true\n")
    assert (status, "driver none runs now" in said) == (1, True)
    assert "pause" not in said
    assert "spec.suspend true false a driver starts" in diff(PYTHON_IMAGE)[1]


def test_changes_of_a_paused_query_wait_for_its_resumption(diff, applied, millrace):
    assert millrace("pause", NAME).status == 0
    assert f"paused the operator changes nothing before millrace resume {NAME}" in diff(SCALED)[1]


def test_a_namespace_option_that_differs_from_the_files_is_refused(diff, namespace):
    named = ON_CLUSTER.replace("{name:", f"{{namespace: {namespace}, name:")
    assert diff(named)[0] == 1
    status, said = diff(named, "-n", "other")
    assert (status, f"{NAME} is in namespace {namespace}, not in other" in said) == (2, True)


def test_only_the_users_own_rights_are_used(plane, diff, kubectl, namespace, tmp_path):
    kubectl("create", "serviceaccount", "reader")
    token = kubectl("create", "token", "reader").strip()
    as_reader = ("--kubeconfig", str(plane.write_kubeconfig(tmp_path / "reader", token)), "-n", namespace)
    status, said = diff(ON_CLUSTER, *as_reader)
    assert (status, f'you may not get streamqueries.millrace.io "{NAME}"' in said) == (2, True)
    kubectl("create", "role", "reader", "--verb=get", "--resource=streamqueries.millrace.io")
    kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader")
    status, said = diff(ON_CLUSTER, *as_reader)
    assert (status, "refused by the API server: streamqueries.millrace.io is forbidden: User" in said) == (2, True)
    assert "unchecked whether names are taken: you may not get ConfigMap, NetworkPolicy" in said


@pytest.mark.usefixtures("applied")
def test_json_has_each_change_with_its_consequence(diff):
    found = json.loads(diff(PYTHON_IMAGE, "--format", "json")[1])
    (change,) = found[0]["changes"]
    assert change == {
        "path": "spec.image",
        "old": None,
        "new": "example.org/jobs:2",
        "effect": "driver replaced",
        "consequence": "replaces the driver",
    }
    assert (found[0]["differs"], found[0]["refused"]) == (True, [])
