"""Objects of the second audit by which one namespace tried to stop the watches of all, or to fill the memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.control_plane import ControlPlane
from lab.processes import Process

from .. import raw_requests
from ..observed import wait_until
from ..operators import ask
from ..raw_requests import queries_in
from .tenants import Document, Tenant, query

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def token(plane: ControlPlane, mallory: Tenant) -> str:
    """Return a token with the attacker's rights, for requests without the cost of ``kubectl``."""
    mallory.run("create", "rolebinding", "audit", "--clusterrole=admin", "--serviceaccount=mallory:default")
    mallory.run(
        "create", "rolebinding", "audit-edit", "--clusterrole=millrace-edit", "--serviceaccount=mallory:default"
    )
    found = mallory.run("create", "token", "default", "--duration=2h").strip()
    wait_until(lambda: raw_requests.send(plane, found, "PATCH", queries_in("mallory", "none"), {}).status == 404)
    return found


@pytest.fixture(autouse=True)
def clean(mallory: Tenant, operator: Process) -> Iterator[None]:
    """Delete what the attacker made; the operator must have survived."""
    yield
    mallory.run("delete", "sq,cm", "--all", "--wait=false")
    assert ask(operator, "/healthz")[0] == 200
    assert operator.status is None


def memory_mib(operator: Process) -> int:
    """Return the most memory that the operator has had."""
    status = Path(f"/proc/{operator.pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def post(plane: ControlPlane, token: str, path: str, documents: list[Document]) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda each: raw_requests.send(plane, token, "POST", path, each).status, documents)
        assert set(answers) == {201}


@pytest.mark.in_turn
def test_labels_with_the_operators_prefix_stop_no_watch(
    plane: ControlPlane, token: str, bank: Tenant, operator: Process
) -> None:
    """Without the query's own label, which made place for them, the list of all ConfigMaps failed forever."""
    labels = {f"millrace.io/{number:060}": "x" * 60 for number in range(300)} | {"millrace.io/query": "bait"}
    bait: Document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bait", "labels": labels}}
    post(plane, token, "/api/v1/namespaces/mallory/configmaps", [bait | {"data": {"x": "y" * 400_000}}])
    bank.scale("trips", 3)
    bank.run("delete", "cm", "trips-plan")
    wait_until(lambda: bank.attempt("get", "cm", "trips-plan").returncode == 0)
    assert "the watch of configmaps is restarted" not in operator.said


@pytest.mark.in_turn
def test_queries_of_many_values_and_many_problems_are_refused_in_little_memory(
    plane: ControlPlane, token: str, mallory: Tenant, bank: Tenant, operator: Process
) -> None:
    """A hundred of each kind took 24 MiB each; the operator may have 512."""
    before = memory_mib(operator)
    for kind, values in (("empty", [{}] * 40_000), ("wrong", [1] * 4000)):
        spec = {"podTemplate": {"spec": {"tolerations" if kind == "empty" else "containers": values}}}
        queries = [query(f"{kind}-{number}", suspend=True, driver=spec) for number in range(40)]
        post(plane, token, queries_in("mallory"), queries)
    assert "values, of 5000 that one may have" in mallory.wait_for_refusal("empty-39")
    assert "is not a mapping" in mallory.wait_for_refusal("wrong-39")
    bank.scale("trips", 2)
    grown = memory_mib(operator) - before
    print(f"the operator's memory has grown by {grown} MiB")
    assert grown < 150


@pytest.mark.in_turn
def test_labels_of_a_quarter_of_a_megabyte_take_little_memory(
    plane: ControlPlane, token: str, bank: Tenant, operator: Process
) -> None:
    """Watches kept all labels with the operator's prefix, which no budget counted."""
    before = memory_mib(operator)
    labels = {f"millrace.io/{number:050}": "x" * 12 for number in range(3000)}
    baits: list[Document] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"bait-{number}", "labels": labels | {"millrace.io/query": f"bait-{number}"}},
        }
        for number in range(100)
    ]
    post(plane, token, "/api/v1/namespaces/mallory/configmaps", baits)
    bank.scale("trips", 3)
    grown = memory_mib(operator) - before
    print(f"the operator's memory has grown by {grown} MiB")
    assert grown < 80
