"""The objects of queries on a real API server: all of it takes them, also where pods are restricted."""

from __future__ import annotations

import pytest
import yaml

from unit.resources.cases import CASES, objects_of

from .crd_documents import as_users_write

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]


@pytest.fixture
def restricted(plane, namespace):
    """A namespace that takes pods of the restricted security level only."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    assert plane.kubectl("label", "namespace", namespace, label).returncode == 0
    return namespace


@pytest.mark.parametrize("case", CASES)
def test_the_api_server_takes_every_object(plane, restricted, case):
    objects = [each for each in objects_of(CASES[case], restricted) if each["kind"] != "PodGroup"]  # Volcano's CRD
    done = plane.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", document=objects)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


@pytest.mark.parametrize("case", CASES)
def test_driver_and_executors_are_admitted_where_pods_are_restricted(plane, restricted, case):
    found = {each["kind"] + each["metadata"]["name"]: each for each in objects_of(CASES[case], restricted)}
    template = found["StatefulSettrips-by-cell-driver"]["spec"]["template"]
    driver = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver"}, "spec": template["spec"]}
    (files,) = [each["data"] for each in found.values() if "executor-pod.yaml" in each.get("data", {})]
    executor = yaml.safe_load(files["executor-pod.yaml"])
    executor["metadata"]["name"] = "executor"
    executor["spec"]["containers"][0]["image"] = "example.org/image"  # which Spark fills in
    for pod in (driver, executor):
        pod["spec"].pop("priorityClassName", None)  # there is no such class here
        pod["spec"]["serviceAccountName"] = "default"  # nor is there another account
        done = plane.kubectl("create", "--namespace", restricted, "--dry-run=server", "-f", "-", document=pod)
        assert done.returncode == 0, done.stderr


def test_applying_the_objects_of_a_query_twice_changes_nothing(plane, namespace, kubectl):
    kubectl("apply", "-f", "-", document=owner_of(CASES["secured"], namespace))
    uid = plane.get("sq", "trips-by-cell", "--namespace", namespace)["metadata"]["uid"]
    documents = objects_of(CASES["secured"], namespace, uid)

    def apply() -> dict[str, str]:
        kubectl("apply", "--server-side", "--field-manager=millrace-operator", "-f", "-", document=documents)
        kinds = "sa,role,rolebinding,cm,svc,netpol,pdb"
        found = plane.get(kinds, "--namespace", namespace, "-l", "millrace.io/query=trips-by-cell")["items"]
        return {f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in found}

    first = apply()
    assert len(first) == 8
    assert apply() == first


def owner_of(text: str, namespace: str) -> dict[str, object]:
    """The query itself, in this namespace."""
    document: dict[str, object] = as_users_write(text)[-1]
    return document | {"metadata": {"name": "trips-by-cell", "namespace": namespace}}
