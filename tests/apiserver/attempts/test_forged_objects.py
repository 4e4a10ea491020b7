"""Objects in the attacker's own namespace, forged or changed, by which the operator should do what the attacker cannot."""

from __future__ import annotations

import json

import pytest

from ..observed import mounted_configuration, wait_until
from .tenants import Document, Tenant, config_map, query

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

HOST_NETWORK = {"driver": {"podTemplate": {"spec": {"hostNetwork": True}}}}
EVIL_LABELS = {
    "app.kubernetes.io/name": "millrace",
    "app.kubernetes.io/instance": "trips",
    "app.kubernetes.io/managed-by": "millrace-operator",
    "millrace.io/query": "trips",
}
"""All labels of the victim's objects."""


def version(tenant: Tenant, kind: str, name: str) -> str:
    return str(tenant.get(kind, name)["metadata"]["resourceVersion"])


def revision_of(tenant: Tenant, name: str) -> str:
    """The revision that the query's driver has."""
    return str(tenant.get("pod", f"{name}-driver-0")["metadata"]["annotations"]["millrace.io/revision"])


def test_a_forged_healthy_spec_does_not_get_the_nodes_network(mallory: Tenant, bank: Tenant) -> None:
    mallory.deploy(query("healthy"))
    forged = query("healthy", **HOST_NETWORK)
    reference = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "name": "healthy",
        "uid": mallory.get("sq", "healthy")["metadata"]["uid"],
    }
    labels = EVIL_LABELS | {"millrace.io/query": "healthy", "app.kubernetes.io/instance": "healthy"}
    annotations = {"millrace.io/revision": revision_of(mallory, "healthy")}
    data = {"spec.json": json.dumps(forged["spec"])}
    mallory.apply(
        config_map("healthy-healthy", data, labels=labels, annotations=annotations, ownerReferences=[reference])
    )
    mallory.patch("sq", "healthy", {"spec": {"query": {"sql": "SELECT nothing FROM trips"}}})
    mallory.wait_for_refusal("healthy")
    bank.scale("trips", 3)
    template = mallory.get("sts", "healthy-driver")["spec"]["template"]["spec"]
    assert "hostNetwork" not in template


@pytest.mark.parametrize(
    "plan",
    [
        "not a plan",
        "[" * 50_000,
        json.dumps({"epoch": 2**53, "algorithm": "hash", "replicas": 1, "parallelism": 1, "executors": 1_000_000}),
        json.dumps({"epoch": 7, "algorithm": "hash", "replicas": 10**6, "parallelism": 10**6, "executors": 10**6}),
    ],
    ids=["no JSON", "deep", "last epoch", "large"],
)
def test_a_forged_plan_stays_within_the_bounds_of_the_spec(mallory: Tenant, bank: Tenant, plan: str) -> None:
    name = f"plan-{len(plan)}"
    mallory.deploy(query(name, executors={"max": 4}, parallelism={"max": 16}))
    mallory.patch("cm", f"{name}-plan", {"data": {"plan.yaml": plan}})

    def is_within() -> bool:
        written = mallory.get("cm", f"{name}-plan")["data"]["plan.yaml"]
        if written == plan:
            return False
        found = json.loads(written)
        return bool(found["executors"] <= 4 and found["parallelism"] <= 16 and found["replicas"] <= 8)

    wait_until(is_within)
    assert mallory.get("pdb", f"{name}-exec")["spec"]["minAvailable"] < 4
    bank.scale("trips", 4)


def test_a_forged_annotation_of_the_plan_does_not_stop_its_query(mallory: Tenant) -> None:
    mallory.deploy(query("asked"))
    mallory.patch("cm", "asked-plan", {"metadata": {"annotations": {"millrace.io/asked": "[" * 50_000}}})
    wait_until(lambda: "{" in mallory.get("cm", "asked-plan")["metadata"]["annotations"]["millrace.io/asked"])
    mallory.scale("asked", 2)


@pytest.mark.parametrize(
    "report", ["{", "[" * 50_000, '{"epoch": 1e999}', '{"epoch": -1}'], ids=["cut off", "deep", "infinite", "negative"]
)
def test_a_forged_acknowledgement_is_not_reported(mallory: Tenant, report: str) -> None:
    name = f"applied-{len(report)}"
    mallory.deploy(query(name))
    mallory.patch("cm", f"{name}-plan", {"data": {"applied.json": report}})
    mallory.scale(name, 2)
    assert "appliedEpoch" not in mallory.status(name)["plan"]


def test_a_drivers_role_cannot_be_kept_wider(mallory: Tenant) -> None:
    mallory.deploy(query("role"))
    wider: Document = {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]}
    mallory.patch("role", "role-driver", wider)
    wait_until(lambda: "secrets" not in json.dumps(mallory.get("role", "role-driver")["rules"]))
    driver = "system:serviceaccount:mallory:role-driver"
    wait_until(lambda: mallory.attempt("get", "secrets", user=driver).returncode != 0)


def test_a_drivers_binding_cannot_be_kept_for_others(mallory: Tenant, bank: Tenant) -> None:
    mallory.deploy(query("binding"))
    others = {"subjects": [{"kind": "ServiceAccount", "name": "trips-driver", "namespace": "bank"}]}
    change = ("patch", "rolebinding", "binding-driver", "--type=merge", "-p", json.dumps(others))
    assert "attempting to grant RBAC permissions not currently held" in mallory.attempt(*change).stderr
    administrator = mallory.plane.kubectl("--namespace", mallory.name, *change)
    assert administrator.returncode == 0, administrator.stderr
    wait_until(
        lambda: (
            [each["name"] for each in mallory.get("rolebinding", "binding-driver")["subjects"]] == ["binding-driver"]
        )
    )


def test_a_binding_made_in_advance_gives_a_driver_no_rights_elsewhere(mallory: Tenant) -> None:
    labels = EVIL_LABELS | {"millrace.io/query": "advance", "app.kubernetes.io/instance": "advance"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "advance-driver", "labels": labels},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "advance-driver", "namespace": "mallory"}],
    }
    mallory.apply(binding, query("advance"))
    mallory.wait_for_refusal("advance")
    driver = "system:serviceaccount:mallory:advance-driver"
    assert mallory.attempt("get", "secrets", namespace="bank", user=driver).returncode != 0


def test_an_emptied_network_policy_is_restored(mallory: Tenant) -> None:
    mallory.deploy(query("policy"))
    before = mallory.get("netpol", "policy-driver")["spec"]
    mallory.patch("netpol", "policy-driver", {"spec": {"podSelector": {"matchLabels": None, "matchExpressions": None}}})
    wait_until(lambda: mallory.get("netpol", "policy-driver")["spec"] == before)


def _status_now(tenant: Tenant) -> Document:
    """The status of a query without Degraded, which says after two minutes that no node has room for the driver."""
    status = tenant.status("trips")
    return status | {"conditions": [each for each in status["conditions"] if each["type"] != "Degraded"]}


def test_objects_with_the_victims_labels_are_not_the_victims(mallory: Tenant, bank: Tenant) -> None:
    configuration = mounted_configuration(bank.run, "trips").removeprefix("configmap/")
    victims = (("cm", configuration), ("cm", "trips-plan"), ("netpol", "trips-driver"))
    before = [version(bank, kind, name) for kind, name in victims]
    status = _status_now(bank)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trips-driver-0", "labels": EVIL_LABELS | {"millrace.io/role": "driver"}},
        "spec": {"containers": [{"name": "driver", "image": "none"}]},
    }
    forged = ("trips-plan", configuration)
    mallory.apply(pod, *(config_map(name, {"plan.yaml": "evil"}, labels=EVIL_LABELS) for name in forged))
    mallory.deploy(query("after"))
    assert [version(bank, kind, name) for kind, name in victims] == before
    assert _status_now(bank) == status
    assert mallory.get("cm", "trips-plan")["data"] == {"plan.yaml": "evil"}
    mallory.run("delete", "pod", "trips-driver-0", "--grace-period=0", "--force")
    mallory.run("delete", "cm", *forged)


def test_an_object_owned_by_the_victims_query_takes_nothing_of_the_victims_along(mallory: Tenant, bank: Tenant) -> None:
    uid = bank.get("sq", "trips")["metadata"]["uid"]
    reference = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "name": "trips",
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    mallory.apply(config_map("trips-healthy", {}, ownerReferences=[reference], labels=EVIL_LABELS))
    wait_until(
        lambda: mallory.attempt("get", "cm", "trips-healthy").returncode != 0
    )  # its owner is not in its namespace
    assert bank.get("sq", "trips")["metadata"]["uid"] == uid
    assert bank.get("cm", "trips-plan")["metadata"]["ownerReferences"][0]["uid"] == uid


def test_the_drivers_last_words_become_no_records_of_the_log_and_no_long_status(mallory: Tenant, operator) -> None:
    mallory.deploy(query("words"))
    line = (
        '\n{"time":"2026-01-01T00:00:00Z","level":"critical","namespace":"bank","query":"trips","message":"forged"}\n'
    )
    ended = {
        "exitCode": 1,
        "reason": "Error",
        "message": line + "x" * 3000,
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2999-01-01T00:00:00Z",
        "containerID": "test://1",
    }
    container = {
        "name": "driver",
        "image": "none",
        "imageID": "",
        "ready": False,
        "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    change = json.dumps({"status": {"phase": "Running", "containerStatuses": [container]}})
    kubelet = mallory.plane.kubectl(
        "-n", "mallory", "patch", "pod", "words-driver-0", "--subresource=status", "--type=merge", "-p", change
    )
    assert kubelet.returncode == 0, kubelet.stderr
    wait_until(lambda: mallory.status("words").get("attempts"))
    (attempt,) = mallory.status("words")["attempts"]
    assert len(attempt["message"]) <= 1024
    assert attempt["time"] < "2999"
    records = [json.loads(each) for each in operator.said.splitlines() if each.startswith("{")]
    assert not [each for each in records if each.get("level") == "critical"]


def test_a_finalizer_taken_away_ends_the_query_and_nothing_else(mallory: Tenant, bank: Tenant) -> None:
    mallory.deploy(query("hasty"))
    mallory.run("delete", "sq", "hasty", "--wait=false")
    mallory.attempt("patch", "sq", "hasty", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    wait_until(lambda: mallory.attempt("get", "sq", "hasty").returncode != 0)
    mallory.deploy(query("hasty"))
    bank.scale("trips", 1)


def test_a_forged_configuration_is_replaced_though_it_is_immutable(mallory: Tenant) -> None:
    """A driver reads every file in it, and nothing but another object can correct it."""
    mallory.deploy(query("configured"))
    name = mounted_configuration(mallory.run, "configured").removeprefix("configmap/")
    made = mallory.get("cm", name)
    metadata = {part: made["metadata"][part] for part in ("name", "labels")}
    mallory.run("annotate", "sq", "configured", "millrace.io/paused=true")
    wait_until(lambda: "Paused" in [each["reason"] for each in mallory.status("configured")["conditions"]])
    mallory.run("delete", "cm", name)
    mallory.run("create", "-f", "-", document=made | {"metadata": metadata, "data": {"spark-defaults.conf": "evil"}})
    mallory.run("annotate", "sq", "configured", "millrace.io/paused-")
    wait_until(lambda: mallory.get("cm", name)["data"] == made["data"])
