"""The chart on a real API server: installed, upgraded, rolled back, tested and uninstalled, beside a query."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import yaml

from lab.control_plane import running_control_plane
from unit.chart.tools import CHART, VALUES, documents, find, rendered, tool
from unit.commands.queries import BUSY
from unit.resources.cases import SMALLEST

from .crd_documents import VALID
from .granted_rights import live
from .in_a_pod import run_in_a_pod
from .observed import wait_until
from .operators import ask, running_operator, start_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]

NAMESPACES = "streams", "cabs", "buses"
FOREIGN = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
"""Kinds of prometheus-operator, which is not here."""

CRD = "streamqueries.millrace.io"


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """A control plane of its own, since here the chart brings the CRD; its namespaces take restricted pods only."""
    with running_control_plane(tmp_path_factory.mktemp("control-plane")) as started:
        for name in NAMESPACES:
            done = started.kubectl("create", "namespace", name)
            assert done.returncode == 0, done.stderr
            started.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        yield started


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
    helm("uninstall", "millrace", "--wait", "--no-hooks")  # nothing runs the hook's pod here


def identity(plane, kind, name, namespace="streams"):
    """Of an object, and of its last change."""
    metadata = plane.get(kind, name, "--namespace", namespace)["metadata"]
    return metadata["uid"], metadata["resourceVersion"]


def test_the_crd_of_the_chart_takes_every_example(plane, release):
    release()
    plane.wait_for_crd(CRD)
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


def test_pods_of_the_operator_are_admitted_where_pods_are_restricted(plane, release):
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
        ("uninstall", "millrace", "--no-hooks"),
        ("install", "millrace", CHART),  # it takes the CRD over, which is of a release of this name
    ):
        done = helm(*arguments)
        assert done.returncode == 0, done.stderr
        assert identity(plane, "sq", "trips-by-cell", "cabs") == before
    assert plane.kubectl("-n", "cabs", "delete", "sq", "trips-by-cell").returncode == 0


def test_a_release_goes_on_after_a_refused_uninstall(helm, release):
    """Here the hook fails because nothing runs its pod."""
    release()
    assert helm("uninstall", "millrace", "--timeout", "5s").returncode != 0
    assert "no deployed releases" in helm("upgrade", "millrace", CHART).stderr
    for arguments in (("rollback", "millrace", "1"), ("upgrade", "millrace", CHART)):
        done = helm(*arguments)
        assert done.returncode == 0, done.stderr


def write_newer_crd(path):
    """The chart's CRD, with one more short name."""
    crd = yaml.safe_load((CHART / "files" / f"{CRD}.yaml").read_text(encoding="utf-8"))
    crd["spec"]["names"]["shortNames"].append("stream")
    path.write_text(yaml.safe_dump(crd, sort_keys=False), encoding="utf-8")


def short_names(plane):
    return plane.get("crd", CRD)["spec"]["names"]["shortNames"]


def test_the_crd_is_upgraded_and_rolled_back_with_the_release(plane, helm, release, tmp_path):
    release()
    newer = shutil.copytree(CHART, tmp_path / "millrace")
    write_newer_crd(newer / "files" / f"{CRD}.yaml")
    uid = plane.get("crd", CRD)["metadata"]["uid"]
    assert helm("upgrade", "millrace", newer).returncode == 0
    assert short_names(plane) == ["sq", "stream"]
    assert helm("rollback", "millrace", "1").returncode == 0
    assert short_names(plane) == ["sq"]
    assert plane.get("crd", CRD)["metadata"]["uid"] == uid


@pytest.fixture
def no_crd(plane):
    """Takes away what releases before have left."""
    done = plane.kubectl("delete", "crd", CRD, "--ignore-not-found")
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("no_crd", "release")
def test_a_crd_that_came_by_kubectl_is_taken_over(plane, helm):
    assert plane.kubectl("apply", "--server-side", "-f", CHART / "files" / f"{CRD}.yaml").returncode == 0
    uid = plane.get("crd", CRD)["metadata"]["uid"]
    assert "cannot be imported into the current release" in helm("install", "millrace", CHART).stderr
    done = helm("upgrade", "--install", "millrace", CHART, "--take-ownership")
    assert done.returncode == 0, done.stderr
    taken = plane.get("crd", CRD)["metadata"]
    assert (taken["uid"], taken["annotations"]["helm.sh/resource-policy"]) == (uid, "keep")


@pytest.mark.usefixtures("no_crd")
def test_a_crd_of_the_release_is_given_to_kubectl(plane, helm, release, tmp_path):
    release()
    uid = plane.get("crd", CRD)["metadata"]["uid"]
    assert helm("upgrade", "millrace", CHART, "--set", "crds.install=false").returncode == 0
    write_newer_crd(tmp_path / "newer.yaml")
    apply = ("apply", "--server-side", "-f", tmp_path / "newer.yaml")
    assert 'conflict with "helm"' in plane.kubectl(*apply).stderr
    assert plane.kubectl(*apply, "--force-conflicts").returncode == 0
    assert short_names(plane) == ["sq", "stream"]
    assert helm("upgrade", "millrace", CHART, "--set", "crds.install=false,replicas=3").returncode == 0
    assert short_names(plane) == ["sq", "stream"]
    assert plane.get("crd", CRD)["metadata"]["uid"] == uid


@pytest.mark.in_turn
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
    options += [each for each in watched if each.startswith(("--namespace=", "--lease-name="))]

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


def test_the_operator_may_not_touch_leases_in_other_namespaces(plane, release):
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
    """There is nobody here to run the pod: its command is run for it, by its account. The test is the operator."""
    release()
    with ThreadPoolExecutor() as pool:
        testing = pool.submit(helm, "test", "millrace", "--timeout", "180s")
        wait_until(lambda: plane.kubectl("-n", "streams", "get", "pod", "millrace-test").returncode == 0)
        report(plane, "sq", BUSY | {"observedGeneration": 1, "plan": BUSY["plan"] | {"appliedEpoch": 4}})
        (container,) = plane.get("pod", "millrace-test", "--namespace", "streams")["spec"]["containers"]
        token = account(plane, "millrace-test")
        done = run_in_a_pod(plane, tmp_path, "streams", token, container["command"])
        report(plane, "pod", {"phase": "Succeeded"})
        tested = testing.result()
    assert done.status == 0, done.err
    assert done.out.startswith("millrace-test Running")
    assert tested.returncode == 0, tested.stderr
    kinds = "sq,pod,pvc,role,rolebinding,sa,cm"
    # a controller removes the claim's own finalizer a moment later
    wait_until(lambda: "millrace-test" not in plane.kubectl("-n", "streams", "get", kinds, "-o", "name").stdout)


def test_what_helm_test_makes_goes_with_a_failure_too(plane, helm, release):
    """A pod holds the claim for as long as its query exists. Helm would wait for the claim for all of its time."""
    release()
    with ThreadPoolExecutor() as pool:
        testing = pool.submit(helm, "test", "millrace", "--timeout", "25s")
        wait_until(lambda: plane.kubectl("-n", "streams", "get", "pod", "millrace-test").returncode == 0)
        query, pod = (plane.get(kind, "millrace-test", "--namespace", "streams") for kind in ("sq", "pod"))
        driver = _driver_with_the_claim(query, pod["spec"])
        assert plane.kubectl("-n", "streams", "create", "-f", "-", document=json.dumps(driver)).returncode == 0
        report(plane, "pod", {"phase": "Failed"})
        tested = testing.result()
    assert tested.returncode != 0
    assert "timed out" not in tested.stderr
    left = plane.kubectl("-n", "streams", "get", "sq,pvc,role,rolebinding,sa", "-o", "name").stdout
    assert "millrace-test" not in left
    assert plane.kubectl("-n", "streams", "delete", "pod", "millrace-test").returncode == 0


def _driver_with_the_claim(query, allowed):
    """A pod of the query, on a node, so that the claim is in use; it ends at once when it is deleted."""
    owner = {name: query[name] for name in ("apiVersion", "kind")}
    owner |= {name: query["metadata"][name] for name in ("name", "uid")}
    (container,) = allowed["containers"]
    context = container["securityContext"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "millrace-test-driver", "namespace": "streams", "ownerReferences": [owner]},
        "spec": {
            "nodeName": "anywhere",
            "terminationGracePeriodSeconds": 0,
            "securityContext": allowed["securityContext"],
            "containers": [{"name": "driver", "image": "driver", "securityContext": context}],
            "volumes": [{"name": "checkpoint", "persistentVolumeClaim": {"claimName": "millrace-test"}}],
        },
    }


@pytest.mark.parametrize("values", ["default", "namespaced"])
def test_an_uninstall_fails_while_there_are_queries_and_names_them(plane, helm, release, tmp_path, values):
    """The hook's pod is run here by its command and account; its Job is reported to have ended as the command has."""
    options = ("--set", "crds.install=true,monitoring.podMonitor.enabled=false")
    release(values, *options)
    wait_until(lambda: plane.kubectl("-n", "cabs", "apply", "-f", "-", document=SMALLEST).returncode == 0)
    done, uninstalled = uninstall(plane, helm, tmp_path)
    assert done.status == 1
    assert "cabs/trips-by-cell; delete them first" in done.err
    assert uninstalled.returncode != 0
    assert plane.get("deployment", "millrace-operator", "--namespace", "streams")["spec"]["replicas"] == 2
    assert plane.kubectl("-n", "cabs", "delete", "sq", "trips-by-cell").returncode == 0
    done, uninstalled = uninstall(plane, helm, tmp_path)
    assert done.status == 0, done.err
    assert uninstalled.returncode == 0, uninstalled.stderr
    left = plane.kubectl("get", "clusterrole,clusterrolebinding,role,rolebinding,sa,job", "-A", "-o", "name").stdout
    assert "millrace-uninstall" not in left


def uninstall(plane, helm, folder):
    """Uninstall the release; return what the hook's command said, and what Helm did."""
    job = ("job", "millrace-uninstall")
    before = uid(plane, *job)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(helm, "uninstall", "millrace", "--timeout", "120s")
        wait_until(lambda: uid(plane, *job) not in (None, before))
        (container,) = plane.get(*job, "--namespace", "streams")["spec"]["template"]["spec"]["containers"]
        done = run_in_a_pod(plane, folder, "streams", account(plane, "millrace-uninstall"), container["command"])
        end(plane, succeeded=done.status == 0)
        return done, running.result()


def uid(plane, kind, name):
    """Of an object of the release; None if there is none."""
    done = plane.kubectl("-n", "streams", "get", kind, name, "-o", "jsonpath={.metadata.uid}")
    return done.stdout if done.returncode == 0 else None


def end(plane, *, succeeded):
    """Report the end of the hook's only pod, from which its controller concludes that of the Job."""
    selector = ("-l", "app.kubernetes.io/component=uninstall", "-o", "jsonpath={.items[*].metadata.name}")

    def pods():
        return plane.kubectl("-n", "streams", "get", "pod", *selector).stdout.split()

    wait_until(lambda: len(pods()) == 1)
    patch = json.dumps({"status": {"phase": "Succeeded" if succeeded else "Failed"}})
    done = plane.kubectl("-n", "streams", "patch", "pod", *pods(), "--subresource=status", "--type=merge", "-p", patch)
    assert done.returncode == 0, done.stderr


def test_each_shard_has_a_deployment_whose_pods_are_its_own(plane, release):
    release("default", "--set", "shards=2")

    def pods(shard):
        selector = ("-l", f"app.kubernetes.io/component=operator,millrace.io/shard={shard}")
        return plane.get("pod", "--namespace", "streams", *selector)["items"]

    wait_until(lambda: len(pods("1-of-2")) == len(pods("2-of-2")) == 2)
    found = plane.get("deployment", "--namespace", "streams")["items"]
    assert [each["metadata"]["name"] for each in found] == ["millrace-operator-1-of-2", "millrace-operator-2-of-2"]


def report(plane, kind, status):
    """Write the status of what is named millrace-test."""
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    done = plane.kubectl("-n", "streams", "patch", kind, "millrace-test", *patch)
    assert done.returncode == 0, done.stderr


def account(plane, name):
    """A token of a service account of the release."""
    done = plane.kubectl("-n", "streams", "create", "token", name)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
