"""Admission that changes what the operator applies, and pods: accepted, and told apart from what others change by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from lab.claims import claim_and_volume
from lab.control_plane import ControlPlane
from lab.kwok import running_kwok
from unit.resources.cases import SMALLEST

from .observed import status_of, wait_until
from .operators import running_operator
from .quiet_fleet import is_quiet, writes

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(900)]

NAME, SET = "trips-by-cell", "trips-by-cell-driver"
TOLERANT = SMALLEST + "  driver: {podTemplate: {spec: {tolerations: [{key: spot, operator: Exists}]}}}\n"
MIRROR = "mirror.example/"

Kubectl = Callable[..., str]

POD = '"/spec/template/spec"'
SPEC = "object.spec.template.spec"
DRIVER = f"{SPEC}.containers[0]"


def added(path: str, entries: str, name: str, value: str, key: str = "name") -> str:
    """The change that adds an entry to a list that has none of the name."""
    return f"""{entries}.exists(each, each.{key} == '{name}') ? [] :
        [JSONPatch{{op: "add", path: {POD} + "{path}", value: {value}}}]"""


CHANGES = {
    ("apps", "statefulsets"): [
        f"""{DRIVER}.image.startsWith('{MIRROR}') ? [] :
            [JSONPatch{{op: "replace", path: {POD} + "/containers/0/image", value: "{MIRROR}" + {DRIVER}.image}}]""",
        f"""has({SPEC}.initContainers) ? [] : [JSONPatch{{op: "add", path: {POD} + "/initContainers",
            value: [{{"name": "istio-proxy", "image": "proxy", "restartPolicy": "Always"}}]}}]""",
        added("/containers/0/env/-", f"{DRIVER}.env", "HTTP_PROXY", '{"name": "HTTP_PROXY", "value": "proxy:3128"}'),
        added("/containers/-", f"{SPEC}.containers", "shipper", '{"name": "shipper", "image": "shipper"}'),
        added("/tolerations/-", f"{SPEC}.tolerations", "pool", '{"key": "pool", "operator": "Exists"}', key="key"),
        f"""has({DRIVER}.readinessProbe) ? [JSONPatch{{op: "remove", path: {POD} + "/containers/0/readinessProbe"}}] :
            []""",
    ],
    ("policy", "poddisruptionbudgets"): [
        '[JSONPatch{op: "replace", path: "/spec/unhealthyPodEvictionPolicy", value: "IfHealthyBudget"}]'
    ],
    ("", "services"): [
        '[JSONPatch{op: "replace", path: "/metadata/labels/app.kubernetes.io~1name", value: "another"}]'
    ],
}
"""What policies make of each resource, given by its group and plural; none of it twice."""

WIDENED = {
    ("networking.k8s.io", "networkpolicies"): [
        """object.spec.ingress.size() > 2 ? [] :
            [JSONPatch{op: "add", path: "/spec/ingress/-", value: {"ports": [{"port": 15020}]}}]"""
    ]
}
"""A policy that opens a port in what confines a query."""


@pytest.fixture
def mutated(plane: ControlPlane, namespace: str, request: pytest.FixtureRequest) -> Iterator[None]:
    """Policies that change what is created and updated in the namespace; the parameter says what."""
    group, documents = "admissionregistration.k8s.io", []
    for (api, resource), changes in request.param.items():
        name = f"{namespace}-{resource}"
        rule = {"apiGroups": [api], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}
        spec = {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "here", "expression": f"object.metadata.namespace == '{namespace}'"}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": each}} for each in changes],
        }
        api_version = f"{group}/v1"
        documents += [
            {"apiVersion": api_version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
            {
                "apiVersion": api_version,
                "kind": "MutatingAdmissionPolicyBinding",
                "metadata": {"name": name},
                "spec": {"policyName": name},
            },
        ]
    done = plane.kubectl("apply", "-f", "-", document=documents)
    assert done.returncode == 0, done.stderr
    yield
    plane.kubectl("delete", "-f", "-", "--wait=false", document=documents)


def get(kubectl: Kubectl, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", kind, name, "-o", "json"))
    return found


def conditions_of(kubectl: Kubectl) -> dict[str, tuple[str, str]]:
    conditions = status_of(kubectl, NAME).get("conditions", ())
    return {each["type"]: (each["status"], each["reason"]) for each in conditions}


def is_settled(kubectl: Kubectl) -> bool:
    conditions = conditions_of(kubectl)
    return conditions.get("Ready") == ("True", "Running") and conditions["Progressing"] == ("False", "Settled")


def container(kubectl: Kubectl) -> dict[str, Any]:
    """The driver's container in its StatefulSet's template."""
    found: dict[str, Any] = get(kubectl, "sts", SET)["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.usefixtures("mutated")
@pytest.mark.parametrize("mutated", [CHANGES], indirect=True, ids=["all but what confines"])
def test_changes_by_admission_are_accepted_and_changes_by_others_are_undone(
    plane, namespace, kubectl: Kubectl, tmp_path
) -> None:
    kubeconfig = plane.kubeconfig_of("operator-a", tmp_path / "operator-a.kubeconfig")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    kubectl("apply", "-f", "-", document=list(claim_and_volume(namespace)))
    wait_until(lambda: changes_a_budget(kubectl))
    with running_kwok(plane, nodes=1), running_operator(plane, folders[0], namespace=namespace, kubeconfig=kubeconfig):
        kubectl("apply", "-f", "-", document=TOLERANT)
        wait_until(lambda: is_settled(kubectl))
        wait_until(lambda: is_quiet(plane, namespace))
        template = get(kubectl, "sts", SET)["spec"]["template"]["spec"]
        assert template["containers"][0]["image"] == f"{MIRROR}millrace-jobs"
        assert [each["name"] for each in template["containers"]] == ["driver", "shipper"]
        assert [each["key"] for each in template["tolerations"]] == ["spot", "pool"]
        assert is_settled(kubectl)

        image = '{"spec":{"template":{"spec":{"containers":[{"name":"driver","image":"mirror.example/evil"}]}}}}'
        kubectl("patch", "sts", SET, "-p", image)
        wait_until(lambda: container(kubectl)["image"] == f"{MIRROR}millrace-jobs")
        kubectl("set", "env", f"statefulset/{SET}", "--containers=driver", "POD_NAME-")
        wait_until(lambda: "POD_NAME" in [each["name"] for each in container(kubectl)["env"]])
        kubectl("patch", "pdb", "trips-by-cell-exec", "-p", '{"spec": {"minAvailable": 7}}')
        wait_until(lambda: get(kubectl, "pdb", "trips-by-cell-exec")["spec"]["minAvailable"] == 0)
        kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=scaler", "-f", "-", document=scaled(2))
        wait_until(lambda: get(kubectl, "sts", SET)["spec"]["replicas"] == 1)
        kubectl("scale", "sts", SET, "--replicas=2")
        wait_until(lambda: get(kubectl, "sts", SET)["spec"]["replicas"] == 1)
        kubectl("delete", "netpol", SET)
        wait_until(lambda: kubectl("get", "netpol", "-o", "name") != "")
        wait_until(lambda: is_settled(kubectl))
        wait_until(lambda: is_quiet(plane, namespace))

        kubectl("patch", "sq", NAME, "--type=merge", "-p", '{"spec": {"executors": {"initial": 3}}}')
        wait_until(lambda: get(kubectl, "pdb", "trips-by-cell-exec")["spec"]["minAvailable"] == 2)
        wait_until(lambda: is_settled(kubectl))
        wait_until(lambda: is_quiet(plane, namespace))
    written = writes(plane, namespace)
    with running_kwok(plane, nodes=1), running_operator(plane, folders[1], namespace=namespace, kubeconfig=kubeconfig):
        time.sleep(5)
        assert writes(plane, namespace) == written
        assert is_settled(kubectl)


@pytest.mark.usefixtures("mutated")
@pytest.mark.parametrize("mutated", [WIDENED], indirect=True, ids=["a NetworkPolicy"])
def test_a_network_policy_that_admission_widens_is_reported_and_tried_more_and_more_seldom(
    plane, namespace, kubectl: Kubectl, tmp_path
) -> None:
    kubeconfig = plane.kubeconfig_of("operator-a", tmp_path / "operator-a.kubeconfig")
    kubectl("apply", "-f", "-", document=list(claim_and_volume(namespace)))
    wait_until(lambda: opens_a_port(kubectl))
    with running_kwok(plane, nodes=1), running_operator(plane, tmp_path, namespace=namespace, kubeconfig=kubeconfig):
        kubectl("apply", "-f", "-", document=SMALLEST)
        wait_until(lambda: conditions_of(kubectl).get("Ready") == ("True", "Running"))
        assert conditions_of(kubectl)["Progressing"] == ("True", "Applying")
        assert len(get(kubectl, "netpol", SET)["spec"]["ingress"]) == 3
        written = writes(plane, namespace)
        time.sleep(10)
        assert writes(plane, namespace) - written < 5


def scaled(replicas: int) -> dict[str, Any]:
    """What an autoscaler of StatefulSets applies."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": SET},
        "spec": {"replicas": replicas},
    }


def changes_a_budget(kubectl: Kubectl) -> bool:
    """Whether the policies are in effect, which takes the API server a moment."""
    budget = yaml.safe_load("""
        apiVersion: policy/v1
        kind: PodDisruptionBudget
        metadata: {name: probe}
        spec: {minAvailable: 1, unhealthyPodEvictionPolicy: AlwaysAllow, selector: {}}
    """)
    made = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", document=budget)
    return bool(json.loads(made)["spec"]["unhealthyPodEvictionPolicy"] == "IfHealthyBudget")


def opens_a_port(kubectl: Kubectl) -> bool:
    """Whether the policy that widens NetworkPolicies is in effect."""
    closed = yaml.safe_load("""
        apiVersion: networking.k8s.io/v1
        kind: NetworkPolicy
        metadata: {name: probe}
        spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8080}]}]}
    """)
    made = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", document=closed)
    return len(json.loads(made)["spec"]["ingress"]) == 2
