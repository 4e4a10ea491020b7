"""Two operators, of which one leads: it dies, is cut off, is paused, ends; and never do both of them change anything."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from http.client import GATEWAY_TIMEOUT

import pytest

from lab.ports import free_port
from lab.tcp_proxy import TcpProxy

from .conftest import new_namespace
from .deployed import apply_queries, are_deployed
from .observed import wait_until
from .operators import PATIENCE, ask, start_operator

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(600)]

BEFORE, DURING, AFTER = (tuple(f"{when}-{number}" for number in range(5)) for when in ("before", "during", "after"))
"""Names of queries, by when they are applied."""


@pytest.fixture
def proxy(plane):
    """Between the first operator and the API server."""
    started = TcpProxy(free_port(), int(plane.url.rpartition(":")[2]))
    yield started
    started.close()


@contextmanager
def two_operators(plane, namespace, folder, proxy):
    """The leader, which is ``operator-a``, and a standby that has seen all there is."""
    operators = []
    try:
        for user, url in (("operator-a", f"https://127.0.0.1:{proxy.port}"), ("operator-b", None)):
            kubeconfig = plane.kubeconfig_of(user, folder / f"{user}.kubeconfig", url)
            log = folder / f"{user}.log"
            operators.append(start_operator(plane, log, "--leader-elect", namespace=namespace, kubeconfig=kubeconfig))
            wait_until(lambda: ask(operators[-1], "/readyz")[0] == 200)
        leader, standby = operators
        assert [leads(each) for each in operators] == [True, False]
        yield leader, standby
    finally:
        for operator in operators:
            operator.kill()


def leads(operator):
    return "millrace_operator_leader 1.0" in ask(operator, "/metrics")[1]


def terms(plane, namespace):
    """Who has changed anything but a Lease, in order; each once for an unbroken run of changes.

    What a paused operator was in the middle of sending has changed nothing: the server gave up waiting for the rest.
    """
    users = [
        event["user"]["username"]
        for event in plane.changes()
        if event["objectRef"].get("namespace") == namespace
        and event["objectRef"]["resource"] != "leases"
        and event["responseStatus"]["code"] != GATEWAY_TIMEOUT
    ]
    return [user for before, user in zip([None, *users], users, strict=False) if user != before]


def lease_of(kubectl):
    return json.loads(kubectl("get", "lease", "millrace-operator", "-o", "json"))["spec"]


def killed(leader, proxy):
    leader.kill()


def cut_off(leader, proxy):
    proxy.black_hole(new=True)


def paused(leader, proxy):
    leader.pause()


@pytest.mark.parametrize("fault", [killed, cut_off, paused])
def test_another_leads_after_the_leader_and_never_both(plane, namespace, kubectl, tmp_path, proxy, fault):
    with two_operators(plane, namespace, tmp_path, proxy) as (leader, standby):
        apply_queries(kubectl, BEFORE)
        wait_until(lambda: are_deployed(kubectl, BEFORE))
        apply_queries(kubectl, DURING)  # the leader is in the middle of it
        fault(leader, proxy)
        wait_until(lambda: leads(standby))
        apply_queries(kubectl, AFTER)
        wait_until(lambda: are_deployed(kubectl, DURING + AFTER))
        proxy.heal()
        if fault is not killed:
            leader.resume()
            assert leader.wait(PATIENCE) == 1
            assert "the lease is lost" in leader.said
        apply_queries(kubectl, ["last"])
        wait_until(lambda: are_deployed(kubectl, ["last"]))
        assert leads(standby)
    assert terms(plane, namespace) == ["operator-a", "operator-b"]
    assert lease_of(kubectl)["leaseTransitions"] == 1


def test_a_leader_that_ends_hands_over(plane, namespace, kubectl, tmp_path, proxy):
    with two_operators(plane, namespace, tmp_path, proxy) as (leader, standby):
        apply_queries(kubectl, BEFORE)
        leader.send(signal.SIGTERM)
        assert leader.wait(PATIENCE) == 0
        assert "the lease is released" in leader.said
        wait_until(lambda: are_deployed(kubectl, BEFORE))
        assert leads(standby)
        standby.send(signal.SIGTERM)
        assert standby.wait(PATIENCE) == 0
    assert terms(plane, namespace) == ["operator-a", "operator-b"]
    assert lease_of(kubectl)["holderIdentity"] == ""


def test_two_operators_with_leases_of_their_own_both_lead(plane, namespace, kubectl, tmp_path):
    """As two releases in one namespace do, which watch different ones."""
    other = new_namespace(plane)
    operators = []
    try:
        for name, watched in (("cabs-operator", namespace), ("buses-operator", other)):
            options = ("--leader-elect", "--lease-namespace", namespace, "--lease-name", name)
            operators.append(start_operator(plane, tmp_path / f"{name}.log", *options, namespace=watched))
        for operator in operators:
            wait_until(lambda: leads(operator))  # noqa: B023 - at once
            wait_until(lambda: ask(operator, "/readyz")[0] == 200)  # noqa: B023
    finally:
        for operator in operators:
            operator.kill()
        plane.kubectl("delete", "namespace", other, "--wait=false")
    leases = {
        each.removeprefix("lease.coordination.k8s.io/") for each in kubectl("get", "leases", "-o", "name").split()
    }
    assert leases == {"cabs-operator", "buses-operator"}
    assert kubectl("get", "sq", "-o", "name").split() == ["streamquery.millrace.io/cabs-canary"]
