"""What the rights of one namespace do not reach: other namespaces, the operator's own objects, and its rights."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from lab.processes import Process

from ..observed import mounted_configuration
from ..operators import ask
from .tenants import OPERATORS, Tenant, query

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]


class Attempt(NamedTuple):
    """A command of kubectl in a namespace, as another user where one is named."""

    command: tuple[str, ...]
    namespace: str = "bank"
    user: str | None = None


MERGE = "--type=merge"
SPEC = json.dumps({"spec": {"suspend": True}})
OPERATOR = f"system:serviceaccount:{OPERATORS}:default"
FORBIDDEN = {
    "read another tenant's Secret": Attempt(("get", "secret", "kafka-login")),
    "read another tenant's query": Attempt(("get", "sq", "trips")),
    "suspend another tenant's query": Attempt(("patch", "sq", "trips", MERGE, "-p", SPEC)),
    "delete another tenant's query": Attempt(("delete", "sq", "trips")),
    "scale another tenant's query": Attempt(("scale", "sq", "trips", "--replicas=1")),
    "write another tenant's plan": Attempt(("patch", "cm", "trips-plan", MERGE, "-p", '{"data": {"plan.yaml": ""}}')),
    "delete another tenant's driver": Attempt(("delete", "pod", "trips-driver-0")),
    "list the queries of all": Attempt(("get", "sq", "--all-namespaces")),
    "take the operator's lease": Attempt(
        ("patch", "lease", "millrace-operator", MERGE, "-p", '{"spec": {"holderIdentity": "mallory"}}'), OPERATORS
    ),
    "delete the operator's canary": Attempt(("delete", "sq", "millrace-canary"), OPERATORS),
    "get a token of the operator's account": Attempt(("create", "token", "default"), OPERATORS),
    "change the operator's rights": Attempt(("patch", "clusterrole", "operator", MERGE, "-p", '{"rules": []}')),
    "change the kind": Attempt(("delete", "crd", "streamqueries.millrace.io")),
    "forge the status of a query": Attempt(
        ("patch", "sq", "own", "--subresource=status", MERGE, "-p", '{"status": {"phase": "Running"}}'), "mallory"
    ),
    "read Secrets as a driver": Attempt(("get", "secrets"), "mallory", "system:serviceaccount:mallory:own-driver"),
    "make pods elsewhere as a driver": Attempt(
        ("delete", "pod", "trips-driver-0"), "bank", "system:serviceaccount:mallory:own-driver"
    ),
    "write another query's plan as a driver": Attempt(
        ("patch", "cm", "second-plan", MERGE, "-p", "{}"), "mallory", "system:serviceaccount:mallory:own-driver"
    ),
    "write a healthy spec as a driver": Attempt(
        ("patch", "cm", "own-healthy", MERGE, "-p", "{}"), "mallory", "system:serviceaccount:mallory:own-driver"
    ),
}


@pytest.fixture(scope="module", autouse=True)
def own(mallory: Tenant, bank: Tenant) -> None:
    """A query of the attacker's."""
    mallory.deploy(query("own"))


@pytest.mark.parametrize("attempt", FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_tenants_attempt_beyond_its_rights_is_forbidden(mallory: Tenant, attempt: Attempt) -> None:
    done = mallory.attempt(*attempt.command, namespace=attempt.namespace, user=attempt.user)
    assert done.returncode != 0
    assert "forbidden" in done.stderr.lower(), done.stderr
    assert "open-sesame" not in done.stdout


def test_a_driver_follows_its_own_plan_and_no_more(mallory: Tenant) -> None:
    """The rights that the attempts above lack are not missing altogether."""
    driver = "system:serviceaccount:mallory:own-driver"
    assert mallory.attempt("get", "cm", "own-plan", user=driver).returncode == 0
    assert mallory.attempt("get", mounted_configuration(mallory.run, "own"), user=driver).returncode == 0
    assert mallory.run("create", "cm", "another", "--from-literal=key=value")
    for other in ("cm/another", "cm"):
        assert mallory.attempt("get", other, user=driver).returncode != 0


def test_a_driver_is_not_given_more_than_the_tenant_has(mallory: Tenant) -> None:
    role = ("create", "rolebinding", "more", "--clusterrole=cluster-admin", "--serviceaccount=mallory:own-driver")
    done = mallory.attempt(*role)
    assert "attempting to grant RBAC permissions not currently held" in done.stderr


def test_a_status_in_a_new_query_is_not_believed(mallory: Tenant) -> None:
    forged = query("forged") | {"status": {"phase": "Running", "observedGeneration": 1, "revision": "0123456789"}}
    mallory.deploy(forged)
    assert mallory.status("forged")["phase"] == "Deploying"


def test_more_executors_than_a_query_may_have_are_refused(mallory: Tenant) -> None:
    done = mallory.attempt("scale", "sq", "own", "--replicas=1000000000")
    assert done.returncode != 0
    assert mallory.status("own")["plan"]["executors"] == 1


def test_the_operator_is_alive_after_forbidden_attempts(operator: Process, bank: Tenant) -> None:
    bank.scale("trips", 2)
    assert ask(operator, "/healthz")[0] == 200
    assert ask(operator, "/readyz")[0] == 200
