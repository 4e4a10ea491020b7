"""An operator of some namespaces, of which one is deleted, comes back, or never was: the others are served on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control_plane import ControlPlane
from lab.processes import Process
from unit.chart.tools import documents, rendered
from unit.resources.cases import SMALLEST

from .conftest import new_namespace
from .observed import wait_until
from .operators import ask, running_operator
from .raw_requests import queries_in, send

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(900)]

Document = dict[str, Any]
RIGHTS = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
POLICY = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def query(name: str, executors: int = 1) -> Document:
    document: Document = yaml.safe_load(SMALLEST)
    document["metadata"]["name"] = name
    document["spec"]["executors"] = {"initial": executors}
    return document


class Release:
    """A release of the chart for two namespaces, with the chart's rights and a service account of its own."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.home, self.kept, self.gone = (new_namespace(plane) for _ in range(3))
        self.name = f"r{uuid.uuid4().hex[:8]}"
        options = ("--set", f"watchNamespaces={{{self.kept},{self.gone}}}", "--set", f"fullnameOverride={self.name}")
        text = rendered("default", *options).replace("namespace: streams", f"namespace: {self.home}")
        text = text.replace("system:serviceaccount:streams", f"system:serviceaccount:{self.home}")
        self._objects = documents(text)
        (self.account,) = [
            each["metadata"]["name"]
            for each in self._objects
            if each["kind"] == "ServiceAccount" and "operator" in each["metadata"]["name"]
        ]
        self.kubectl("create", "serviceaccount", self.account, "--namespace", self.home)

    def kubectl(self, *arguments: str, document: object = None) -> str:
        done = self.plane.kubectl(*arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def grant(self) -> None:
        """Apply the operator's rights, as `helm upgrade` does."""
        kinds = (*RIGHTS, *POLICY)
        found = [each for each in self._objects if each["kind"] in kinds and "driver-is-replaced" not in str(each)]
        self.kubectl("apply", "-f", "-", document=[each for each in found if "helm.sh/hook" not in str(each)])

    @contextmanager
    def operator(self) -> Iterator[Process]:
        """Run the operator with the account's rights alone."""
        token = self.kubectl("create", "token", self.account, "--namespace", self.home).strip()
        kubeconfig = self.plane.write_kubeconfig(self.folder / "kubeconfig", token)
        watched = ("--namespace", self.kept, "--namespace", self.gone)
        options = ("--leader-elect", "--lease-namespace", self.home, *watched)
        folder = self.folder / uuid.uuid4().hex[:8]
        folder.mkdir()
        with running_operator(self.plane, folder, *options, kubeconfig=kubeconfig) as started:
            yield started

    def is_served(self, namespace: str, name: str) -> Callable[[], bool]:
        """Return a check whether the operator has planned a query."""
        path = "jsonpath={.status.plan.executors}"
        return lambda: bool(self.plane.kubectl("-n", namespace, "get", "sq", name, "-o", path).stdout)

    def exists(self, *what: str) -> bool:
        return "NotFound" not in self.plane.kubectl("get", *what).stderr


@pytest.fixture
def release(plane: ControlPlane, tmp_path: Path) -> Iterator[Release]:
    made = Release(plane, tmp_path)
    made.grant()
    yield made
    plane.kubectl("delete", *POLICY[:1], "--all", "--wait=false")
    plane.kubectl("delete", *POLICY[1:], "--all", "--wait=false")


def test_a_deleted_namespace_goes_and_the_others_are_served_before_and_after_a_restart(release: Release) -> None:
    with release.operator() as operator:
        wait_until(lambda: ask(operator, "/readyz")[0] == 200)
        for namespace in (release.kept, release.gone):
            release.kubectl("-n", namespace, "apply", "-f", "-", document=query("first"))
            wait_until(release.is_served(namespace, "first"))
        assert release.kubectl("-n", release.gone, "get", "sq", "first", "-o", "jsonpath={.metadata.finalizers}")
        # the worst order, which the namespace's controller takes by chance: the rights go first
        release.kubectl("-n", release.gone, "delete", "rolebinding", "--all")
        release.kubectl("delete", "namespace", release.gone, "--wait=false")
        wait_until(lambda: not release.exists("namespace", release.gone))
        release.kubectl("-n", release.kept, "apply", "-f", "-", document=query("second"))
        wait_until(release.is_served(release.kept, "second"))
        assert operator.status is None
    with release.operator() as operator:
        release.kubectl("-n", release.kept, "apply", "-f", "-", document=query("third"))
        wait_until(release.is_served(release.kept, "third"))
        refused = f'millrace_operator_refused_namespace{{watched="{release.gone}"}} 1.0'
        wait_until(lambda: refused in ask(operator, "/metrics")[1])
        assert ask(operator, "/readyz")[0] == 200
        release.kubectl("create", "namespace", release.gone)
        release.grant()
        release.kubectl("-n", release.gone, "apply", "-f", "-", document=query("again"))
        wait_until(release.is_served(release.gone, "again"))
        wait_until(lambda: refused not in ask(operator, "/metrics")[1])
        assert operator.status is None


def test_a_namespace_without_rights_is_served_once_they_are_given_back(release: Release) -> None:
    with release.operator() as operator:
        release.kubectl("-n", release.gone, "apply", "-f", "-", document=query("first"))
        wait_until(release.is_served(release.gone, "first"))
    release.kubectl("-n", release.gone, "delete", "rolebinding", "--all")
    with release.operator() as operator:
        release.kubectl("-n", release.kept, "apply", "-f", "-", document=query("second"))
        wait_until(release.is_served(release.kept, "second"))
        assert "are not watched until they can be" in operator.said
        release.grant()
        release.kubectl(
            "-n", release.gone, "patch", "sq", "first", "--type=merge", "-p", '{"spec":{"executors":{"initial":3}}}'
        )
        planned = ("-n", release.gone, "get", "sq", "first", "-o", "jsonpath={.status.plan.executors}")
        wait_until(lambda: release.kubectl(*planned) == "3")
        assert operator.status is None


def test_the_right_to_remove_finalizers_is_good_for_nothing_else(release: Release, plane: ControlPlane) -> None:
    other = new_namespace(plane)
    held = query("held")
    held["metadata"]["finalizers"] = ["millrace.io/drain"]
    release.kubectl("-n", other, "apply", "-f", "-", document=held)
    token = release.kubectl("create", "token", release.account, "--namespace", release.home).strip()

    def patched(change: Document) -> str:
        return send(plane, token, "PATCH", queries_in(other, "held"), change).text

    refusal = "it may remove its finalizer only"
    image, finalizers = {"spec": {"image": "evil"}}, {"metadata": {"finalizers": None}}
    wait_until(lambda: refusal in patched(image))  # the API server has seen the policy
    assert refusal in patched(finalizers)
    release.kubectl("-n", other, "delete", "sq", "held", "--wait=false")
    for change in (
        {"spec": {"image": "worse"}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
    ):
        assert refusal in patched(change), change
    assert refusal not in patched(finalizers)
    wait_until(lambda: not release.exists("-n", other, "sq", "held"))
