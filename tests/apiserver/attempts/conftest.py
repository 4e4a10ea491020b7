"""One control plane, one operator with its own rights alone, an attacker and a victim, for all tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.control_plane import ControlPlane, running_control_plane
from lab.processes import Process
from unit.chart.tools import documents, rendered

from ..conftest import install_crd
from ..granted_rights import RULES, grant
from ..observed import wait_until
from ..operators import running_operator
from .tenants import OPERATORS, Tenant, new_tenant, query

USER_ROLES = "millrace-edit", "millrace-view", "millrace-connections"
DRIVER_PODS = "millrace-operator-driver-pods"


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, since the operator is that of the whole cluster."""
    with running_control_plane(tmp_path_factory.mktemp("attempts")) as started:
        install_crd(started)
        release = documents(rendered())
        roles = [each for each in release if each["metadata"]["name"] in USER_ROLES]
        policy = [each for each in release if each["metadata"]["name"] == DRIVER_PODS]
        assert (len(roles), len(policy)) == (len(USER_ROLES), 2)
        done = started.kubectl("apply", "-f", "-", document=[*roles, *policy])
        assert done.returncode == 0, done.stderr
        assert started.kubectl("create", "namespace", OPERATORS).returncode == 0
        yield started


@pytest.fixture(scope="package")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """The operator of the whole cluster, with a policy for the namespace ``confined``."""
    folder: Path = tmp_path_factory.mktemp("operator")
    grant(plane, "operator", RULES)
    asked = ("auth", "can-i", "list", "streamqueries.millrace.io", "--all-namespaces", "--as=operator")
    wait_until(lambda: plane.kubectl(*asked).returncode == 0)
    kubeconfig = plane.kubeconfig_of("operator", folder / "kubeconfig")
    policy = folder / "policy.yaml"
    policy.write_text("policy: [{namespaces: [confined]}]\n", encoding="utf-8")
    options = ("--leader-elect", "--lease-namespace", OPERATORS, "--log-format", "json", "--policy", str(policy))
    with running_operator(plane, folder, *options, kubeconfig=kubeconfig) as started:
        yield started
        assert started.status is None, started.said[-3000:]


@pytest.fixture(scope="package")
def mallory(plane: ControlPlane, operator: Process) -> Tenant:
    """The attacker, with all that Kubernetes and the chart give to the administrator of a namespace."""
    return new_tenant(plane, "mallory", ("admin", *USER_ROLES))


@pytest.fixture(scope="package")
def confined(plane: ControlPlane, operator: Process) -> Tenant:
    """An attacker with the same rights, in a namespace that a policy is for."""
    return new_tenant(plane, "confined", ("admin", *USER_ROLES))


@pytest.fixture(scope="package")
def bank(plane: ControlPlane, operator: Process) -> Tenant:
    """The victim, who has a query ``trips`` with a driver, and a Secret."""
    tenant = new_tenant(plane, "bank", ("admin", *USER_ROLES))
    tenant.run("create", "secret", "generic", "kafka-login", "--from-literal=password=open-sesame")
    tenant.deploy(query("trips"))
    return tenant
