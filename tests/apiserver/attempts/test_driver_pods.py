"""What a driver's account may create: pods as Spark makes executors, and none that the restricted level forbids.

Nothing else enforces that level here: the namespaces have no label of Pod Security.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from millrace_api.validation.loading import read_query
from millrace_operator.resources.names import Owner
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.resources.pods import made_executor

from ..observed import wait_until
from .tenants import Document, Tenant, query

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

QUERY = "driving"
DRIVER = f"system:serviceaccount:mallory:{QUERY}-driver"
REFUSED = "millrace-operator-driver-pods"


def of_pod(field: str, value: Any, pod: Document) -> None:
    pod["spec"][field] = value


def of_context(field: str, value: Any, pod: Document) -> None:
    pod["spec"]["securityContext"][field] = value


def of_container(field: str, value: Any, pod: Document) -> None:
    pod["spec"]["containers"][0][field] = value


def of_containers_context(field: str, value: Any, pod: Document) -> None:
    pod["spec"]["containers"][0]["securityContext"][field] = value


def without(field: str, pod: Document) -> None:
    for context in (pod["spec"]["securityContext"], pod["spec"]["containers"][0]["securityContext"]):
        context.pop(field, None)


def with_volume(pod: Document, **source: Any) -> None:
    pod["spec"].setdefault("volumes", []).append({"name": "more", **source})


def with_init_container(pod: Document, **fields: Any) -> None:
    pod["spec"]["initContainers"] = [{"name": "first", "image": "example.org/x", **fields}]


def with_annotation(name: str, value: str, pod: Document) -> None:
    pod["metadata"].setdefault("annotations", {})[name] = value


def with_unmasked_proc(pod: Document) -> None:
    of_pod("hostUsers", False, pod)
    of_containers_context("procMount", "Unmasked", pod)


def with_windows_process(pod: Document) -> None:
    of_pod("hostNetwork", True, pod)
    of_context("windowsOptions", {"hostProcess": True}, pod)


ASKED = {"httpGet": {"host": "169.254.169.254", "port": 80}}
ATTEMPTS: dict[str, Callable[[Document], None]] = {
    "another account of the namespace": partial(of_pod, "serviceAccountName", "deployer"),
    "the node's network": partial(of_pod, "hostNetwork", True),
    "the node's processes": partial(of_pod, "hostPID", True),
    "the node's IPC": partial(of_pod, "hostIPC", True),
    "a path of the node": partial(with_volume, hostPath={"path": "/"}),
    "a volume of an NFS server": partial(with_volume, nfs={"server": "10.0.0.1", "path": "/"}),
    "an image as a volume": partial(with_volume, image={"reference": "example.org/x"}),
    "a port of the node": partial(of_container, "ports", [{"containerPort": 1, "hostPort": 1}]),
    "privileges": partial(of_container, "securityContext", {"privileged": True}),
    "user 0 for the pod": partial(of_context, "runAsUser", 0),
    "user 0 for a container": partial(of_containers_context, "runAsUser", 0),
    "any user": partial(without, "runAsNonRoot"),
    "any user for a container": partial(of_containers_context, "runAsNonRoot", False),
    "escalation": partial(of_containers_context, "allowPrivilegeEscalation", True),
    "escalation by leaving it out": partial(without, "allowPrivilegeEscalation"),
    "capabilities": partial(of_containers_context, "capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    "default capabilities": partial(without, "capabilities"),
    "no seccomp": partial(of_containers_context, "seccompProfile", {"type": "Unconfined"}),
    "no seccomp by leaving it out": partial(without, "seccompProfile"),
    "no AppArmor": partial(of_containers_context, "appArmorProfile", {"type": "Unconfined"}),
    "no AppArmor by an annotation": partial(
        with_annotation, "container.apparmor.security.beta.kubernetes.io/executor", "unconfined"
    ),
    "a type of SELinux": partial(of_containers_context, "seLinuxOptions", {"type": "spc_t"}),
    "a role of SELinux": partial(of_context, "seLinuxOptions", {"role": "sysadm_r"}),
    "an unmasked /proc": with_unmasked_proc,
    "a setting of the kernel": partial(of_context, "sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
    "a process of the Windows host": with_windows_process,
    "a first container without a context": with_init_container,
    "a first container with privileges": partial(with_init_container, securityContext={"privileged": True}),
    "a probe of another host": partial(of_container, "livenessProbe", ASKED),
    "a hook that asks another host": partial(of_container, "lifecycle", {"postStart": ASKED}),
}


@pytest.fixture(scope="module")
def executor(mallory: Tenant) -> Document:
    """Deploy a query, and return a pod like those that its driver makes."""
    mallory.deploy(query(QUERY))
    mallory.run("create", "serviceaccount", "deployer")
    wait_until(lambda: mallory.attempt("get", "serviceaccount", "default").returncode == 0)
    found = mallory.get("sq", QUERY)
    owner = Owner("mallory", QUERY, uid=found["metadata"]["uid"])
    pod = made_executor(read_query(found), owner, PodDefaults("example.org/jobs"))
    pod["spec"]["volumes"] = [each for each in pod["spec"].get("volumes", []) if "secret" not in each]
    for container in pod["spec"]["containers"]:
        names = {each["name"] for each in pod["spec"]["volumes"]}
        container["volumeMounts"] = [each for each in container.get("volumeMounts", []) if each["name"] in names]
    return {"apiVersion": "v1", "kind": "Pod"} | pod


def create(mallory: Tenant, pod: Document, user: str = DRIVER) -> str:
    """Create a pod in a dry run, and return what the API server says against it, which is nothing if it would."""
    done = mallory.attempt("create", "--dry-run=server", "--validate=false", "-f", "-", document=pod, user=user)
    return done.stderr if done.returncode else ""


def test_a_driver_creates_executors(mallory: Tenant, executor: Document) -> None:
    assert create(mallory, executor) == ""


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
def test_a_driver_does_not_create_pods_that_executors_are_not(
    mallory: Tenant, executor: Document, attempt: Callable[[Document], None]
) -> None:
    pod = copy.deepcopy(executor)
    attempt(pod)
    assert REFUSED in create(mallory, pod)


def test_a_driver_does_not_change_pods_to_what_it_may_not_create(mallory: Tenant) -> None:
    """Of what can be changed in a pod, that is nothing: the pod of somebody else stays as its author made it."""
    loose = {"metadata": {"name": "loose"}, "spec": {"containers": [{"name": "c", "image": "example.org/x"}]}}
    mallory.run("create", "-f", "-", document={"apiVersion": "v1", "kind": "Pod"} | loose)
    change = '{"spec": {"containers": [{"name": "c", "image": "example.org/evil"}]}}'
    done = mallory.attempt("patch", "pod", "loose", "-p", change, user=DRIVER)
    assert (done.returncode != 0, REFUSED in done.stderr) == (True, True), done.stderr


def test_users_and_other_accounts_create_what_the_cluster_lets_them(mallory: Tenant, executor: Document) -> None:
    """Neither administrators, who have all rights, nor accounts of the namespace that drive nothing are held to it."""
    pod = copy.deepcopy(executor)
    of_pod("hostNetwork", True, pod)
    robot = "system:serviceaccount:mallory:deployer"
    mallory.run("create", "rolebinding", "deployer", "--clusterrole=admin", "--serviceaccount=mallory:deployer")
    wait_until(lambda: mallory.attempt("auth", "can-i", "create", "pods", user=robot).returncode == 0)
    for user in (mallory.name, robot):
        assert create(mallory, pod, user) == ""
    administrator = mallory.plane.kubectl("create", "-n", "mallory", "--dry-run=server", "-f", "-", document=pod)
    assert administrator.returncode == 0, administrator.stderr
