"""What probes and metrics say of an operator whose watches or workers are stuck."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from lab.api_proxy import ApiProxy, Fault, HoldWatch, Refuse
from lab.ports import free_port

from .deployed import apply_queries, are_deployed
from .observed import wait_until
from .operators import ask, running_operator

KINDS = "sa,cm,svc,pod,role,rolebinding,netpol,pdb,sts,connections.millrace.io"
CONNECTION = {
    "apiVersion": "millrace.io/v1alpha1",
    "kind": "Connection",
    "metadata": {"name": "trips", "labels": {"millrace.io/query": "none"}},
    "spec": {"kafka": {"bootstrapServers": "kafka:9092"}},
}
"""A Connection that is found with the objects of queries."""

pytestmark = [pytest.mark.in_turn, pytest.mark.apiserver, pytest.mark.timeout(600)]


@pytest.fixture
def proxy(plane):
    """Between an operator and the API server."""
    started = ApiProxy(free_port(), int(plane.url.rpartition(":")[2]), plane.authority)
    yield started
    started.close()


def value(operator, series):
    """The value of a series of an operator; None without it."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", ask(operator, "/metrics")[1], re.M)
    return None if found is None else float(found[1])


def errors(operator, resource):
    return value(operator, f'millrace_operator_informer_errors_total{{resource="{resource}"}}')


@pytest.mark.parametrize(
    ("resource", "fault"),
    [("pods", HoldWatch()), ("pods", Refuse(503)), ("streamqueries", HoldWatch())],
    ids=["held", "refused", "held of queries"],
)
def test_an_operator_says_which_watch_hears_nothing_and_is_ready_when_it_does_again(
    plane, namespace, kubectl, tmp_path, proxy, resource: str, fault: Fault
):
    numbers = itertools.count()

    def answers(status):
        """Change an object of each kind, since the API server sends bookmarks too seldom; return whether that holds."""
        kubectl("annotate", KINDS, "-l", "millrace.io/query", f"tick={next(numbers)}", "--overwrite")
        return ask(operator, "/readyz")[0] == status

    kubeconfig = plane.kubeconfig_of("operator-a", tmp_path / "kubeconfig", proxy.url)
    with running_operator(plane, tmp_path, namespace=namespace, kubeconfig=kubeconfig, deaf=True) as operator:
        apply_queries(kubectl, ["query-1"])
        kubectl("apply", "-f", "-", document=CONNECTION)
        wait_until(lambda: are_deployed(kubectl, ["query-1"]))
        wait_until(lambda: answers(200))
        before = errors(operator, resource)
        with proxy.fault(lambda request: fault if request.watches and f"/{resource}" in request.path else None):
            proxy.break_watches()
            wait_until(lambda: answers(503))
            said = ask(operator, "/readyz")[1]
            assert re.fullmatch(rf"the watch of {resource} in {namespace} has heard nothing for [0-9]+ s\n", said)
            assert value(operator, f'millrace_operator_informer_age_seconds{{resource="{resource}"}}') > 30
            if resource == "pods":  # without a watch of StreamQueries, the canary is not shown
                assert ask(operator, "/healthz")[0] == 200
        proxy.break_watches()
        wait_until(lambda: answers(200))
        assert errors(operator, resource) > before


def test_an_operator_whose_worker_hangs_is_unhealthy_though_its_watches_live(plane, namespace, kubectl, tmp_path):
    with running_operator(plane, tmp_path, namespace=namespace, deaf=True, hangs="query-1") as operator:
        wait_until(lambda: ask(operator, "/readyz")[0] == 200)
        wait_until(lambda: value(operator, "millrace_operator_canary_path_seconds") is not None)
        assert ask(operator, "/healthz")[0] == 200
        apply_queries(kubectl, ["query-1"])
        wait_until(lambda: ask(operator, "/healthz")[0] == 503)
        assert ask(operator, "/healthz")[1] == f"the workers hang: nothing answers the canary in {namespace}\n"
        assert ask(operator, "/readyz")[0] == 200
        path, age = (value(operator, f"millrace_operator_canary_{each}_seconds") for each in ("path", "age"))
        assert path > age


def test_the_canary_is_answered_and_never_deployed(plane, namespace, kubectl, tmp_path):
    with running_operator(plane, tmp_path, namespace=namespace, deaf=True) as operator:
        wait_until(lambda: ask(operator, "/readyz")[0] == 200)
        wait_until(lambda: "seen the touch of" in kubectl("get", "sq", "millrace-canary", "-o", "json"))
        canary = json.loads(kubectl("get", "sq", "millrace-canary", "-o", "json"))
        assert canary["status"]["phase"] == "Suspended"
        assert "finalizers" not in canary["metadata"]
        assert kubectl("get", "sts,cm,svc,sa,pod", "-l", "millrace.io/query", "-o", "name") == ""
        assert "millrace-canary" not in ask(operator, "/metrics")[1]
        kubectl("delete", "sq", "millrace-canary")
        wait_until(lambda: "millrace-canary" in kubectl("get", "sq", "-o", "name"))
        assert ask(operator, "/healthz")[0] == 200
