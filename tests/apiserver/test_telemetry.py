"""What a real operator tells of itself."""

from __future__ import annotations

import json
import re
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.ports import free_port
from lab.tcp_proxy import TcpProxy
from millrace_operator.kube.object_api import LIMITING, OWNED
from millrace_operator.telemetry.contract import CONTRACT

from .deployed import apply_queries, are_deployed
from .observed import wait_until
from .operators import ask, running_operator, start_operator

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(600)]


def test_a_running_operator_serves_metrics_and_probes_and_logs_json(plane, namespace, kubectl, tmp_path):
    with running_operator(plane, tmp_path, "--log-format", "json", namespace=namespace) as operator:
        wait_until(lambda: ask(operator, "/readyz") == (200, "ok\n"))
        apply_queries(kubectl, ["query-1"])
        wait_until(lambda: are_deployed(kubectl, ["query-1"]))
        assert ask(operator, "/healthz") == (200, "ok\n")
        assert ask(operator, "/elsewhere")[0] == 404
        families = {family.name: family for family in text_string_to_metric_families(ask(operator, "/metrics")[1])}
        assert operator.end() == 0
    declared = {metric.name.removesuffix("_total"): metric for metric in CONTRACT}
    ours = {name for name in families if name.startswith("millrace_") and not name.endswith("_created")}
    assert ours == declared.keys()
    assert [each for name in ours for s in families[name].samples for each in declared[name].violations(s.labels)] == []
    (info,) = families["millrace_query_info"].samples
    assert (info.labels["query_namespace"], info.labels["query"]) == (namespace, "query-1")
    watched = {each.labels["resource"] for each in families["millrace_operator_informer_age_seconds"].samples}
    assert watched == {"streamqueries", "connections", *(kind.plural for kind in (*OWNED, *LIMITING))}
    requests = families["millrace_operator_api_requests"].samples
    assert ("PATCH", "streamqueries/status", "200") in {
        (each.labels["verb"], each.labels["resource"], each.labels["code"]) for each in requests if each.value
    }
    results = {each.labels["result"]: each.value for each in families["millrace_operator_reconciles"].samples}
    assert results["success"] > 0
    lines = [json.loads(line) for line in operator.said.splitlines()]
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    assert {(line["namespace"], line["query"]) for line in lines if "query" in line} == {(namespace, "query-1")}


@pytest.fixture
def proxy(plane):
    """Between an operator and the API server."""
    started = TcpProxy(free_port(), int(plane.url.rpartition(":")[2]))
    yield started
    started.close()


@pytest.fixture
def kubeconfig(plane, proxy, tmp_path):
    """By way of the proxy."""
    return plane.kubeconfig_of("operator-a", tmp_path / "kubeconfig", f"https://127.0.0.1:{proxy.port}")


def test_an_operator_whose_watch_is_dead_while_it_can_ask_is_unhealthy(plane, namespace, tmp_path, proxy, kubeconfig):
    with running_operator(plane, tmp_path, namespace=namespace, kubeconfig=kubeconfig, deaf=True) as operator:
        wait_until(lambda: ask(operator, "/readyz")[0] == 200)
        assert ask(operator, "/healthz")[0] == 200
        proxy.black_hole(new=False)
        wait_until(lambda: ask(operator, "/healthz")[0] == 503)
        assert f"does not show the canary in {namespace}" in ask(operator, "/healthz")[1]


def test_a_standby_whose_watch_is_dead_is_unhealthy(plane, namespace, tmp_path, proxy, kubeconfig):
    """By what the leader touches: the standby changes nothing itself."""
    with running_operator(plane, tmp_path, "--leader-elect", namespace=namespace, deaf=True) as leader:
        wait_until(lambda: ask(leader, "/readyz")[0] == 200)
        log = tmp_path / "standby.log"
        standby = start_operator(plane, log, "--leader-elect", namespace=namespace, kubeconfig=kubeconfig, deaf=True)
        try:
            wait_until(lambda: ask(standby, "/readyz")[0] == 200)
            proxy.black_hole(new=False)
            wait_until(lambda: ask(standby, "/healthz")[0] == 503)
            assert f"does not show the canary in {namespace}" in ask(standby, "/healthz")[1]
            assert "millrace_operator_leader 0.0" in ask(standby, "/metrics")[1]
            assert ask(leader, "/healthz")[0] == 200
        finally:
            standby.kill()


def test_a_standby_asks_nothing_of_the_canary_that_its_watch_shows(plane, namespace, tmp_path):
    with running_operator(plane, tmp_path, "--leader-elect", namespace=namespace, deaf=True) as leader:
        wait_until(lambda: ask(leader, "/readyz")[0] == 200)
        standby = start_operator(plane, tmp_path / "standby.log", "--leader-elect", namespace=namespace, deaf=True)
        try:
            wait_until(lambda: ask(standby, "/readyz")[0] == 200)
            asked = requests(standby)
            touched = requests(leader)
            wait_until(lambda: requests(leader) >= touched + 10)
            assert requests(standby) <= asked + 2, "only a watch that has ended asks again, once, and lists"
            assert ask(standby, "/healthz")[0] == 200
        finally:
            standby.kill()


def requests(operator):
    """What an operator itself has asked of StreamQueries so far."""
    found = re.findall(
        r'^millrace_operator_api_requests_total\{.*resource="streamqueries",.*\} (\S+)',
        ask(operator, "/metrics")[1],
        re.M,
    )
    return sum(map(float, found))


@pytest.mark.slow(minutes=1.8)
def test_watches_whose_connections_have_died_silently_come_back(plane, namespace, kubectl, tmp_path, proxy, kubeconfig):
    """Kopf restarts them before the operator would be called unhealthy."""
    with running_operator(plane, tmp_path, namespace=namespace, kubeconfig=kubeconfig) as operator:
        wait_until(lambda: ask(operator, "/readyz")[0] == 200)
        proxy.black_hole(new=False)
        apply_queries(kubectl, ["query-1"])
        deadline = time.monotonic() + 300
        while not are_deployed(kubectl, ["query-1"]):
            assert ask(operator, "/healthz")[0] == 200
            assert time.monotonic() < deadline
            time.sleep(1)
