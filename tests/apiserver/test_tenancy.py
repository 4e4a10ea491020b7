"""What the author of a StreamQuery cannot make the operator do, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from lab.control_plane import ControlPlane
from unit.resources.cases import SECURED, SMALLEST

from .crd_documents import as_users_write
from .observed import ready_of, status_of, wait_until
from .operators import running_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]

DRIVER = {"name": "driver"}
TEMPLATES: dict[str, dict[str, Any]] = {
    "a path of the node": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
    "the node's network": {"hostNetwork": True},
    "the node's processes": {"hostPID": True},
    "another account": {"serviceAccountName": "cluster-admin"},
    "a privileged container": {"containers": [DRIVER | {"securityContext": {"privileged": True}}]},
    "root": {"securityContext": {"runAsUser": 0}},
    "a capability": {"containers": [DRIVER | {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
}
SETTINGS = {
    "spark.kubernetes.authenticate.driver.serviceAccountName": "admin",
    "spark.kubernetes.driver.podTemplateFile": "/etc/passwd",
    "spark.kubernetes.executor.secrets.other": "/etc/secrets",
    "spark.master": "k8s://https://elsewhere",
}


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The operator that tests share."""
    with running_operator(plane, tmp_path_factory.mktemp("operator")) as started:
        yield started


def query(name: str, **spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(SMALLEST)
    document["metadata"]["name"] = name
    document["spec"] |= spec
    return document


@pytest.mark.usefixtures("operator")
def test_nothing_is_deployed_that_reaches_past_its_namespace(kubectl: Callable[..., str]) -> None:
    refused = {
        f"{pod}-{number}": query(f"{pod}-{number}", **{pod: {"podTemplate": {"spec": template}}})
        for pod in ("driver", "executors")
        for number, template in enumerate(TEMPLATES.values())
    }
    refused |= {
        f"setting-{number}": query(f"setting-{number}", sparkConf={name: value})
        for number, (name, value) in enumerate(SETTINGS.items())
    }
    kubectl("apply", "-f", "-", document=list(refused.values()))
    for name in refused:
        ready = ready_of(kubectl, name)
        assert (ready["status"], ready["reason"]) == ("False", "InvalidQuery"), name
    assert not kubectl("get", "sts,pod", "-o", "name")


@pytest.mark.usefixtures("operator")
def test_a_secret_is_of_the_querys_own_namespace_and_is_only_mounted(
    plane: ControlPlane, kubectl: Callable[..., str]
) -> None:
    ca = {"name": "kafka-ca", "key": "ca.crt", "namespace": "kube-system"}
    kafka = {"bootstrapServers": "kafka:9093", "tls": {"ca": {"secretKeyRef": ca}}}
    elsewhere = {"apiVersion": "millrace.io/v1alpha1", "kind": "Connection", "spec": {"kafka": kafka}}
    done = plane.kubectl("apply", "--server-side", "-f", "-", document=elsewhere | {"metadata": {"name": "trips"}})
    assert done.returncode != 0
    assert "namespace: field not declared in schema" in done.stderr

    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kafka-login"}}
    kubectl("apply", "-f", "-", document=secret | {"stringData": {"username": "me", "password": "open-sesame"}})
    kubectl("apply", "-f", "-", document=as_users_write(SECURED))
    wait_until(lambda: (status_of(kubectl, "trips-by-cell").get("driver") or {}).get("pod") is not None)
    pod = json.loads(kubectl("get", "pod", "trips-by-cell-driver-0", "-o", "json"))
    mounted = [each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each]
    *of_sources, auth = mounted
    assert of_sources == ["kafka-ca", "kafka-login"]
    assert auth.startswith("trips-by-cell-auth-")
    everything = kubectl("get", "sq,cm,sts,pod,events,role,sa", "-o", "json")
    assert "open-sesame" not in everything
