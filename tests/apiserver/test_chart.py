"""The chart on a real API server: installed, upgraded, rolled back, tested and uninstalled, beside a query."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from lab.cache import MissingError
from lab.control_plane import running_control_plane
from unit.chart.tools import CHART, VALUES, documents, find, rendered, tool
from unit.resources.cases import SMALLEST

from .operators import ask, running_operator, start_operator
from .test_crd import VALID
from .test_operator import wait_until
from .test_rbac import live

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]  # the first time, control plane and tools are built

NAMESPACES = "streams", "cabs", "buses"
FOREIGN = {"PodMonitor", "PrometheusRule"}
"""Kinds of prometheus-operator, which is not here."""

CRD = "streamqueries.millrace.io"


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """A control plane of its own, since here the chart brings the CRD; its namespaces take restricted pods only."""
    try:
        tool("helm", "version")
        with running_control_plane(tmp_path_factory.mktemp("control-plane")) as started:
            for name in NAMESPACES:
                done = started.kubectl("create", "namespace", name)
                assert done.returncode == 0, done.stderr
                started.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
            yield started
    except MissingError as error:
        pytest.skip(f"no Kubernetes control plane, or no Helm: {error}")


@pytest.fixture(scope="module")
def helm(plane):
    """Runs Helm in the namespace ``streams``."""
    return lambda *arguments: tool("helm", "--kubeconfig", plane.kubeconfig, "--namespace", "streams", *arguments)


@pytest.fixture
def release(plane, helm):
    """Installs the release ``millrace``, and takes it away at the end."""

    def install(values: str = "default", *options: str) -> None:
        files = [] if VALUES[values] is None else ["--values", VALUES[values]]
        done = helm("install", "millrace", CHART, *files, *options)
        assert done.returncode == 0, done.stderr

    yield install
    helm("uninstall", "millrace", "--wait")


def identity(plane, kind, name, namespace="streams"):
    """Of an object, and of its last change."""
    metadata = plane.get(kind, name, "--namespace", namespace)["metadata"]
    return metadata["uid"], metadata["resourceVersion"]


def test_the_crd_of_the_chart_takes_every_example(plane, release):
    release()
    assert plane.kubectl("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=60s").returncode == 0
    for text in VALID:
        done = plane.kubectl("apply", "--dry-run=server", "-f", "-", document=text)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("values", VALUES)
def test_the_api_server_takes_every_object(plane, release, values):
    release()  # so that there is the CRD
    objects = [each for each in documents(rendered(values)) if each["kind"] not in FOREIGN]
    for each in objects:
        if each["kind"] == "Pod":
            each["spec"]["serviceAccountName"] = "default"
    done = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", document=objects)
    assert done.returncode == 0, done.stderr
    assert "would violate PodSecurity" not in done.stderr


def test_its_pods_are_admitted_where_pods_are_restricted(plane, release):
    release()

    def pods():
        return plane.get("pod", "--namespace", "streams", "-l", "app.kubernetes.io/component=operator")["items"]

    wait_until(lambda: len(pods()) == 2)


def test_nothing_that_happens_to_the_release_touches_a_query(plane, helm, release):
    release()
    wait_until(lambda: plane.kubectl("-n", "cabs", "apply", "-f", "-", document=SMALLEST).returncode == 0)
    before = identity(plane, "sq", "trips-by-cell", "cabs")
    for arguments in (
        ("upgrade", "millrace", CHART, "--set", "replicas=3,jobs.image.tag=v2,rbac.userRoles=false"),
        ("rollback", "millrace", "1"),
        ("upgrade", "millrace", CHART, "--set", "crds.install=false"),
        ("upgrade", "millrace", CHART, "--set", "crds.install=true"),
        ("uninstall", "millrace"),
        ("install", "millrace", CHART),  # it takes the CRD over, which is of a release of this name
    ):
        done = helm(*arguments)
        assert done.returncode == 0, done.stderr
        assert identity(plane, "sq", "trips-by-cell", "cabs") == before
    assert plane.kubectl("-n", "cabs", "delete", "sq", "trips-by-cell").returncode == 0


def test_the_crd_is_upgraded_and_rolled_back_with_the_release(plane, helm, release, tmp_path):
    release()
    newer = shutil.copytree(CHART, tmp_path / "millrace")
    path = newer / "files" / f"{CRD}.yaml"
    crd = yaml.safe_load(path.read_text(encoding="utf-8"))
    crd["spec"]["names"]["shortNames"].append("stream")
    path.write_text(yaml.safe_dump(crd, sort_keys=False), encoding="utf-8")

    def short_names():
        return plane.get("crd", CRD)["spec"]["names"]["shortNames"]

    uid = plane.get("crd", CRD)["metadata"]["uid"]
    assert helm("upgrade", "millrace", newer).returncode == 0
    assert short_names() == ["sq", "stream"]
    assert helm("rollback", "millrace", "1").returncode == 0
    assert short_names() == ["sq"]
    assert plane.get("crd", CRD)["metadata"]["uid"] == uid


@pytest.mark.parametrize("values", ["default", "namespaced"])
def test_with_the_rights_of_the_release_the_operator_lacks_nothing(plane, helm, release, tmp_path, values):
    """As it runs in its pods: two of them, by their service account, with its options but for Prometheus."""
    release()
    if values == "namespaced":
        options = ("--reuse-values", "--values", VALUES[values], "--set", "crds.install=true")
        done = helm("upgrade", "millrace", CHART, *options, "--set", "monitoring.podMonitor.enabled=false")
        assert done.returncode == 0, done.stderr
    kubeconfig = plane.write_kubeconfig(tmp_path / "kubeconfig", account(plane, "millrace-operator"))
    options = ["--leader-elect", "--lease-seconds", "3", "--lease-namespace", "streams"]
    watched = find(rendered(values), "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    options += [each for each in watched if each.startswith("--namespace=")]

    def kubectl(*arguments: str, document: object = None) -> str:
        done = plane.kubectl("--namespace", "cabs", *arguments, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    wait_until(lambda: may_own_objects(plane))
    with ExitStack() as stack:
        leader = stack.enter_context(running_operator(plane, tmp_path, *options, kubeconfig=kubeconfig))
        wait_until(lambda: ask(leader, "/readyz")[0] == 200)
        standby = start_operator(plane, tmp_path / "standby.log", *options, kubeconfig=kubeconfig)
        stack.callback(standby.kill)
        wait_until(lambda: ask(standby, "/readyz")[0] == 200)  # or no rolling update would come to its end
        assert "millrace_operator_leader 0.0" in ask(standby, "/metrics")[1]
        live(kubectl)
        assert leader.end() == 0
        wait_until(lambda: "millrace_operator_leader 1.0" in ask(standby, "/metrics")[1])
        assert standby.end() == 0
    assert "forbidden" not in (leader.said + standby.said).lower()


def may_own_objects(plane):
    """Whether the admission of owners knows of StreamQueries, which it notices some seconds after there is the CRD."""
    owner = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "name": "trips", "uid": "1"}
    metadata = {"name": "owned", "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}]}
    owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    operator = "--as=system:serviceaccount:streams:millrace-operator"
    done = plane.kubectl("-n", "cabs", "create", "--dry-run=server", operator, "-f", "-", document=owned)
    assert done.returncode == 0 or "cannot find RESTMapping" in done.stderr, done.stderr
    return done.returncode == 0


def test_of_leases_in_other_namespaces_it_may_nothing(plane, release):
    release()
    for verb in ("get", "create", "update"):
        asked = ("auth", "can-i", verb, "leases", "--as=system:serviceaccount:streams:millrace-operator")
        assert plane.kubectl(*asked, "--namespace", "streams").stdout.strip() == "yes"
        assert plane.kubectl(*asked, "--namespace", "kube-system").stdout.strip() == "no"


@pytest.mark.parametrize(
    ("role", "verb", "allowed"),
    [
        ("view", "list", "yes"),
        ("view", "patch", "no"),
        ("edit", "patch", "yes"),
        ("admin", "delete", "yes"),
    ],
)
def test_users_of_a_namespace_may_do_the_same_with_its_queries(plane, release, role, verb, allowed):
    release()
    user = f"{role}-of-cabs"
    plane.kubectl("-n", "cabs", "create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}")
    asked = ("auth", "can-i", verb, "streamqueries.millrace.io", f"--as={user}")
    wait_until(lambda: plane.kubectl("-n", "cabs", *asked).stdout.strip() == allowed)
    assert plane.kubectl("-n", "buses", *asked).stdout.strip() == "no"


def test_what_helm_test_makes_is_enough_for_its_pod_and_goes_with_it(plane, helm, release, tmp_path):
    """There is nobody here to run the pod: what it asks first is asked for it, with its account and its kubeconfig."""
    release()
    with ThreadPoolExecutor() as pool:
        testing = pool.submit(helm, "test", "millrace", "--timeout", "180s")
        wait_until(lambda: plane.kubectl("-n", "streams", "get", "pod", "millrace-test").returncode == 0)
        done = subprocess.run(
            [Path(sys.executable).with_name("millrace"), "status", "millrace-test"],
            env=os.environ | {"KUBECONFIG": str(kubeconfig_of_the_pod(plane, tmp_path))},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        succeeded = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": {"phase": "Succeeded"}}))
        assert plane.kubectl("-n", "streams", "patch", "pod", "millrace-test", *succeeded).returncode == 0
        tested = testing.result()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("millrace-test unknown")  # no operator has seen it
    assert tested.returncode == 0, tested.stderr
    left = plane.kubectl("-n", "streams", "get", "sq,pod,role,rolebinding,sa,cm", "-o", "name").stdout
    assert "millrace-test" not in left


def account(plane, name):
    """A token of a service account of the release."""
    done = plane.kubectl("-n", "streams", "create", "token", name)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def kubeconfig_of_the_pod(plane, folder):
    """That of the pod of ``helm test``, with the places of this API server, of its certificate and of the token."""
    written = plane.get("configmap", "millrace-test", "--namespace", "streams")["data"]["kubeconfig"]
    (folder / "token").write_text(account(plane, "millrace-test"), encoding="utf-8")
    mounted = "/var/run/secrets/kubernetes.io/serviceaccount"
    places = {
        "https://kubernetes.default.svc": plane.url,
        f"{mounted}/ca.crt": str(plane.authority),
        f"{mounted}/token": str(folder / "token"),
    }
    for there, here in places.items():
        assert written.count(there) == 1
        written = written.replace(there, here)
    path = folder / "kubeconfig"
    path.write_text(written, encoding="utf-8")
    return path
