"""The operator's own rights: it comes out with them, needs every one of them, and has no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control_plane import ControlPlane
from unit.resources.cases import SMALLEST, objects_of

from .granted_rights import RULES, VOLCANO, Right, grant, live, rights
from .observed import wait_until
from .operators import running_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]


NAMESPACE = "restricted"


def rules_without(right: Right) -> list[dict[str, Any]]:
    """The operator's rules, but for one verb on one resource."""
    return [
        {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
        for each in sorted(rights(RULES) - {right})
    ]


DRIVERS = next(each for each in objects_of(SMALLEST) if each["kind"] == "Role")
GRANTED = rights(DRIVERS["rules"])
FINALIZERS = Right("millrace.io", "streamqueries/finalizers", "update")
APPLIED = {
    "configmaps": "ConfigMap",
    "networkpolicies": "NetworkPolicy",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "podgroups": "PodGroup",
    "rolebindings": "RoleBinding",
    "roles": "Role",
    "serviceaccounts": "ServiceAccount",
    "services": "Service",
    "statefulsets": "StatefulSet",
    "streamqueries": "StreamQuery",
}
"""What is made by applying it: for the audit log that is a patch, and it takes the right to create as well."""

CREATED = {right for right in rights(RULES) if right.verb == "create" and right.resource in APPLIED}


@pytest.fixture(scope="module")
def used(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> dict[Right, dict[str, Any]]:
    """What the operator asks for in the life of a query, with its own rights alone: a request of each kind."""
    folder = tmp_path_factory.mktemp("restricted")
    grant(plane, "operator", RULES)
    asked = ("auth", "can-i", "list", "streamqueries.millrace.io", "--all-namespaces", "--as=operator")
    wait_until(lambda: plane.kubectl(*asked).returncode == 0)  # the authorizer has seen the binding
    namespace = NAMESPACE
    plane.kubectl("create", "namespace", namespace)

    def kubectl(*arguments: str, document: object = None) -> str:
        done = plane.kubectl("--namespace", namespace, *arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    kubeconfig = plane.kubeconfig_of("operator", folder / "kubeconfig")
    with running_operator(plane, folder, "--leader-elect", "--lease-seconds", "3", kubeconfig=kubeconfig):
        live(kubectl)
    found = {}
    for event in plane.requests():
        about = event.get("objectRef") or {}
        if "resource" in about:
            resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
            found[Right(about.get("apiGroup", ""), resource, event["verb"])] = event
    return found


def test_the_operator_is_refused_nothing(plane: ControlPlane, used: dict[Right, dict[str, Any]]) -> None:
    refused = [event for event in plane.requests() if event["responseStatus"]["code"] == 403]
    # in the namespaces of other tests, the same user had other rights, and quotas refuse what any right would allow
    assert [each for each in refused if each["objectRef"].get("namespace", NAMESPACE) == NAMESPACE] == []
    assert used


def test_the_operator_has_no_right_that_it_does_not_use_or_grant(used: dict[Right, dict[str, Any]]) -> None:
    assert rights(RULES) == set(used) | GRANTED | CREATED | {FINALIZERS}


@pytest.mark.parametrize("right", sorted(rights(RULES) - GRANTED - CREATED - {FINALIZERS}), ids=str)
def test_a_request_of_the_operator_is_refused_without_its_right(
    plane: ControlPlane, used: dict[Right, dict[str, Any]], right: Right
) -> None:
    event = used[right]
    about = event["objectRef"]
    asked = {
        "verb": event["verb"],
        "group": about.get("apiGroup", ""),
        "resource": about["resource"],
        "subresource": about.get("subresource", ""),
        "namespace": about.get("namespace", ""),
        "name": about.get("name", ""),
    }
    assert _is_allowed(plane, "operator", asked)
    grant(plane, "reduced", rules_without(right))
    assert not _is_allowed(plane, "reduced", asked)


def _is_allowed(plane: ControlPlane, user: str, asked: dict[str, str]) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": asked},
    }
    done = plane.kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed}", document=review)
    assert done.returncode == 0, done.stderr
    return done.stdout == "true"


@pytest.fixture
def owned(plane: ControlPlane, namespace: str, kubectl: Callable[..., str]) -> Callable[[str], dict[str, Any]]:
    """Objects of a query that there is, by their kind."""
    kubectl("apply", "-f", "-", document=SMALLEST)
    uid = kubectl("get", "sq", "trips-by-cell", "-o", "jsonpath={.metadata.uid}")
    made = {each["kind"]: each for each in objects_of(SMALLEST + VOLCANO, namespace=namespace, uid=uid)}
    another = yaml.safe_load(SMALLEST)
    another["metadata"] |= {"name": "another", "namespace": namespace}
    made["StreamQuery"] = another
    return lambda kind: made[kind]


@pytest.mark.parametrize("right", sorted(CREATED), ids=str)
def test_the_operator_cannot_create_an_object_without_the_right(
    plane: ControlPlane, owned: Callable[[str], dict[str, Any]], right: Right
) -> None:
    if right.resource == "rolebindings":
        assert plane.kubectl("apply", "-f", "-", document=owned("Role")).returncode == 0
    refused = _applied_without(plane, right, owned(APPLIED[right.resource]))
    assert f'cannot create resource "{right.resource}"' in refused


@pytest.mark.parametrize("right", sorted(GRANTED), ids=str)
def test_the_operator_cannot_grant_a_driver_a_right_that_it_lacks(
    plane: ControlPlane, owned: Callable[[str], dict[str, Any]], right: Right
) -> None:
    refused = _applied_without(plane, right, owned("Role"))
    assert "attempting to grant RBAC permissions not currently held" in refused


def test_the_operator_cannot_block_the_deletion_of_an_owner_without_the_right(
    plane: ControlPlane, owned: Callable[[str], dict[str, Any]]
) -> None:
    refused = _applied_without(plane, FINALIZERS, owned("Service"))
    assert "cannot set blockOwnerDeletion" in refused


def _applied_without(plane: ControlPlane, right: Right, manifest: dict[str, Any]) -> str:
    """Why the API server refuses an object to an operator without a right, which it accepts with it."""
    grant(plane, "whole", [*RULES])
    grant(plane, "reduced", rules_without(right))
    answers = [
        plane.kubectl("apply", "--server-side", "--dry-run=server", f"--as={user}", "-f", "-", document=manifest)
        for user in ("whole", "reduced")
    ]
    assert [answer.returncode for answer in answers] == [0, 1], answers
    return answers[1].stderr


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "secrets"),
        ("list", "secrets"),
        ("watch", "secrets"),
        ("patch", "secrets"),
        ("update", "secrets"),
        ("deletecollection", "secrets"),
        ("create", "pods/exec"),
        ("delete", "streamqueries"),
        ("delete", "statefulsets"),
        ("create", "clusterroles"),
        ("bind", "roles"),
        ("escalate", "roles"),
        ("impersonate", "users"),
        ("get", "nodes"),
        ("delete", "persistentvolumeclaims"),
        ("create", "serviceaccounts/token"),
        ("update", "resourcequotas"),
        ("delete", "limitranges"),
    ],
)
@pytest.mark.usefixtures("used")
def test_the_operator_may_do_nothing_else(plane: ControlPlane, verb: str, resource: str) -> None:
    name, _, subresource = resource.partition("/")
    more = [f"--subresource={subresource}"] if subresource else []
    done = plane.kubectl("auth", "can-i", verb, name, *more, "--as=operator", "--all-namespaces")
    assert done.stdout.strip() == "no"


def test_no_rule_is_for_everything() -> None:
    assert "*" not in json.dumps(RULES)


@pytest.mark.in_turn
def test_an_operator_of_one_namespace_needs_no_right_beyond_that(
    plane: ControlPlane, namespace: str, kubectl: Callable[..., str], tmp_path: Path
) -> None:
    kubectl("create", "serviceaccount", "operator")
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "operator"}, "rules": RULES}
    kubectl("apply", "-f", "-", document=role)
    kubectl("create", "rolebinding", "operator", "--role=operator", f"--serviceaccount={namespace}:operator")
    kubeconfig = plane.write_kubeconfig(tmp_path / "kubeconfig", kubectl("create", "token", "operator").strip())
    options = ("--leader-elect", "--lease-seconds", "3")
    with running_operator(plane, tmp_path, *options, namespace=namespace, kubeconfig=kubeconfig) as operator:
        live(kubectl)
        assert operator.end() == 0
    assert "forbidden" not in operator.said.lower()
