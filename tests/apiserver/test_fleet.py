"""Many queries at once, on simulated nodes: each becomes Running, and then nothing is written for it."""

from __future__ import annotations

import pytest

from lab.claims import claim_and_volume
from lab.clock import Clock
from lab.kwok import running_kwok
from millrace_operator.lifecycle.pods.driver_health import HEALTHY_AFTER

from .deployed import apply_queries
from .observed import wait_until
from .operators import running_operator
from .quiet_fleet import is_quiet, phases, rounds, writes

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(1800)]

NAMES = [f"query-{number}" for number in range(40)]

OWNED = "statefulsets,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,pods"


@pytest.fixture(scope="module")
def nodes(plane):
    """Simulated nodes, on which drivers become ready."""
    with running_kwok(plane, nodes=2):
        yield


@pytest.fixture
def later(tmp_path, monkeypatch):
    """By the operator's clock it is later: drivers that have just become ready have been so for long enough."""
    clock = Clock(tmp_path / "clock")
    clock.step(2 * HEALTHY_AFTER.seconds)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("nodes", "later")
def test_a_fleet_comes_to_rest_outlives_its_operator_and_goes(plane, namespace, kubectl, tmp_path):
    kubeconfig = plane.kubeconfig_of("operator-a", tmp_path / "operator-a.kubeconfig")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    kubectl("apply", "-f", "-", document=list(claim_and_volume(namespace)))
    with running_operator(plane, folders[0], namespace=namespace, kubeconfig=kubeconfig):
        apply_queries(kubectl, NAMES)
        wait_until(lambda: phases(kubectl) == ["Running"] * len(NAMES))
        wait_until(lambda: kubectl("get", "configmaps", "-o", "name").count("-healthy") == len(NAMES))
        wait_until(lambda: is_quiet(plane, namespace))
    written = writes(plane, namespace)
    with running_operator(plane, folders[1], namespace=namespace, kubeconfig=kubeconfig) as operator:
        wait_until(lambda: rounds(operator) >= len(NAMES))
        assert writes(plane, namespace) == written
        kubectl("delete", "sq", *NAMES, "--wait=false")
        wait_until(lambda: phases(kubectl) == [])
    wait_until(lambda: not kubectl("get", OWNED, "-l", "millrace.io/query", "-o", "name"))
