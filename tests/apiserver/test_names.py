"""Objects that are not the query's, under the names that it needs: never touched, and named; on a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from unit.resources.cases import CASES, SMALLEST, objects_of

from .crd_documents import as_users_write
from .observed import ready_of, status_of, wait_until
from .operators import running_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

NAME = "trips-by-cell"
Kubectl = Callable[..., str]
NEEDED = {each["kind"]: each for each in objects_of(SMALLEST)}


@pytest.fixture(scope="module")
def operator(plane, tmp_path_factory):
    """The operator that tests share."""
    with running_operator(plane, tmp_path_factory.mktemp("operator")) as started:
        yield started


def of_someone_else(needed: dict[str, Any]) -> dict[str, Any]:
    """An object of the same kind and name, with nothing of the operator's on it, and with the least of its own."""
    parts: dict[str, Any] = {
        "ConfigMap": {"data": {"theirs": "yes"}},
        "NetworkPolicy": {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
        "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "theirs"}}}},
        "Service": {"spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}}},
        "Role": {"rules": []},
        "RoleBinding": {"roleRef": needed.get("roleRef"), "subjects": []},
        "StatefulSet": {
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "theirs"}},
                "template": {
                    "metadata": {"labels": {"app": "theirs"}},
                    "spec": {"containers": [{"name": "c", "image": "none"}]},
                },
            }
        },
    }
    kind = needed["kind"]
    metadata = {"name": needed["metadata"]["name"]}
    return {"apiVersion": needed["apiVersion"], "kind": kind, "metadata": metadata, **parts.get(kind, {})}


def shown(kubectl: Kubectl, document: dict[str, Any]) -> dict[str, Any]:
    """The object as it is stored, whose version changes with anything in it but a workload's own status."""
    found: dict[str, Any] = json.loads(kubectl("get", document["kind"], document["metadata"]["name"], "-o", "json"))
    return {part: each for part, each in found.items() if part != "status"} | {
        "metadata": {name: each for name, each in found["metadata"].items() if name != "resourceVersion"}
    }


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("kind", sorted(NEEDED))
def test_an_object_of_someone_else_is_left_alone_also_when_the_query_is_deleted(kubectl: Kubectl, kind: str) -> None:
    theirs = of_someone_else(NEEDED[kind])
    kubectl("apply", "-f", "-", document=theirs)
    wait_until(lambda: "uid" in shown(kubectl, theirs)["metadata"])
    before = shown(kubectl, theirs)
    kubectl("apply", "-f", "-", document=SMALLEST)

    def is_named() -> bool:
        ready = ready_of(kubectl, NAME)
        hint = "rename or delete it, or give the query another name"
        said = f"{kind} {theirs['metadata']['name']} exists and is not this query's; {hint}"
        return (ready["status"], ready["reason"], ready["message"]) == ("False", "NameTaken", said)

    wait_until(is_named)
    assert shown(kubectl, theirs) == before
    kubectl("delete", "sq", NAME, "--timeout=60s")
    wait_until(lambda: kubectl("get", "cm,sa,svc,sts,netpol,pdb,role,rolebinding", "-o", "name").count(NAME) == 1)
    assert shown(kubectl, theirs) == before


@pytest.mark.in_turn
@pytest.mark.usefixtures("operator")
def test_a_query_goes_on_when_the_name_is_free(kubectl: Kubectl) -> None:
    theirs = of_someone_else(NEEDED["NetworkPolicy"])
    kubectl("apply", "-f", "-", document=theirs)
    kubectl("apply", "-f", "-", document=SMALLEST)
    wait_until(lambda: ready_of(kubectl, NAME)["reason"] == "NameTaken")
    assert "trips-by-cell-driver" not in kubectl("get", "sts", "-o", "name")
    kubectl("delete", "netpol", theirs["metadata"]["name"])
    wait_until(lambda: status_of(kubectl, NAME).get("driver", {}).get("pod") == f"{NAME}-driver-0")
    owners = kubectl("get", "netpol", theirs["metadata"]["name"], "-o", "jsonpath={.metadata.ownerReferences[*].name}")
    assert owners == NAME


@pytest.mark.usefixtures("operator")
def test_what_another_client_takes_off_an_object_comes_back(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", document=SMALLEST)
    wait_until(lambda: status_of(kubectl, NAME).get("driver", {}).get("pod") == f"{NAME}-driver-0")
    policy = f"{NAME}-driver"
    kubectl("patch", "netpol", policy, "--type=merge", "-p", '{"metadata": {"ownerReferences": null}}')
    path = "jsonpath={.metadata.ownerReferences[*].name}"
    wait_until(lambda: kubectl("get", "netpol", policy, "-o", path) == NAME)
    kubectl("label", "netpol", policy, "millrace.io/query-")
    wait_until(lambda: policy in kubectl("get", "netpol", "-l", f"millrace.io/query={NAME}", "-o", "name"))


@pytest.mark.in_turn
@pytest.mark.usefixtures("operator")
def test_a_quota_is_named_and_a_larger_one_is_found(kubectl: Kubectl) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"count/services": "0"}},
    }
    kubectl("apply", "-f", "-", document=quota)
    wait_until(lambda: "services" in kubectl("get", "quota", "small", "-o", "jsonpath={.status.hard}"))
    kubectl("apply", "-f", "-", document=SMALLEST)
    wait_until(lambda: ready_of(kubectl, NAME)["reason"] == "QuotaExceeded")
    assert "exceeded quota: small" in ready_of(kubectl, NAME)["message"]
    kubectl("delete", "quota", "small")
    wait_until(lambda: status_of(kubectl, NAME).get("driver", {}).get("pod") == f"{NAME}-driver-0")


@pytest.mark.in_turn
@pytest.mark.usefixtures("operator")
def test_queries_whose_names_continue_each_other_share_no_object(kubectl: Kubectl) -> None:
    names = (NAME, f"{NAME}-driver", f"{NAME}-partitioner")
    for name in names:
        *connections, query = as_users_write(CASES["dedicated"])
        query["metadata"]["name"] = name
        kubectl("apply", "-f", "-", document=[*connections, query])
    for name in names:
        wait_until(lambda name=name: status_of(kubectl, name).get("driver", {}).get("pod") == f"{name}-driver-0")
        assert ready_of(kubectl, name)["reason"] == "Deploying"
