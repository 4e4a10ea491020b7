"""Queries that read one another's results, on a real API server: order, health, waiting, and rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.claims import claim_and_volume
from lab.control_plane import ControlPlane
from lab.kwok import running_kwok

from .observed import status_of, wait_until
from .operators import running_operator
from .played_pods import fail
from .quiet_fleet import is_quiet, rounds, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]

Kubectl = Callable[..., str]
CHAIN = {"orders": "raw", "enriched": "orders", "totals": "enriched"}
"""Queries in order, each with the topic that it reads; each writes the topic of its own name."""


def query(name: str, reads: str) -> dict[str, Any]:
    """Return a query from one topic to the one of its own name."""
    kafka = {"bootstrapServers": "kafka:9092"}
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": name},
        "spec": {
            "sources": {"lines": {"kafka": kafka | {"topic": reads}, "schema": "shop STRING"}},
            "query": {"sql": "SELECT shop, count(*) AS n FROM lines GROUP BY shop"},
            "sink": {"kafka": kafka | {"topic": name}},
            "checkpoint": {"claimName": "checkpoints"},
        },
    }


def condition(kubectl: Kubectl, name: str, type: str = "UpstreamReady") -> tuple[str, str, str]:
    """Return status, reason and message of a condition; the query must have it."""
    conditions = status_of(kubectl, name).get("conditions", ())
    assert conditions, f"{name} has no status yet"
    (found,) = [each for each in conditions if each["type"] == type]
    return found["status"], found["reason"], found["message"]


def reasons(kubectl: Kubectl) -> list[str]:
    return [condition(kubectl, name)[1] for name in CHAIN]


def suspend(kubectl: Kubectl, wanted: bool) -> None:
    kubectl("patch", "sq", "orders", "--type=merge", "-p", json.dumps({"spec": {"suspend": wanted}}))


@pytest.mark.in_turn
def test_a_chain_is_shown_in_order_with_its_health_and_comes_to_rest(
    plane: ControlPlane, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    kubeconfig = plane.kubeconfig_of("operator-a", tmp_path / "operator-a.kubeconfig")
    runs = ["NoUpstream", "UpstreamRunning", "UpstreamRunning"]
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    kubectl("apply", "-f", "-", document=list(claim_and_volume(namespace)))
    with running_kwok(plane, nodes=1):
        with running_operator(plane, folders[0], namespace=namespace, kubeconfig=kubeconfig):
            for name in reversed(CHAIN):
                kubectl("apply", "-f", "-", document=query(name, CHAIN[name]))
            wait_until(lambda: reasons(kubectl) == runs)
            header, *rows = kubectl("get", "sq", "-l", "!millrace.io/canary", "-o", "wide").splitlines()
            assert "CHAIN" in header.split()
            assert "orders -> enriched -> totals" in next(row for row in rows if row.startswith("totals"))
            assert status_of(kubectl, "totals")["chain"] == {
                "order": "orders -> enriched -> totals",
                "depth": 2,
                "upstream": [
                    {"name": "enriched", "source": "lines", "reads": "topic enriched", "phase": "Running"},
                ],
            }
            wait_until(lambda: is_quiet(plane, namespace))
        written = writes(plane, namespace)
        with running_operator(plane, folders[1], namespace=namespace, kubeconfig=kubeconfig) as operator:
            wait_until(lambda: rounds(operator) >= len(CHAIN))
            assert writes(plane, namespace) == written, "an operator that starts knows all before its first step"
            suspend(kubectl, True)
            wait_until(lambda: reasons(kubectl) == ["NoUpstream", "UpstreamNotRunning", "UpstreamNotRunning"])
            wait_until(lambda: condition(kubectl, "totals")[2] == "orders is Suspended")
            suspend(kubectl, False)
            wait_until(lambda: reasons(kubectl) == runs)
            kubectl("apply", "-f", "-", document=query("orders", "totals"))
            wait_until(lambda: reasons(kubectl) == ["Cycle"] * 3)
            assert "orders -> enriched -> totals -> orders" in condition(kubectl, "orders")[2]
            assert "Cycle" in kubectl("get", "events", "--field-selector", "involvedObject.name=orders")
            kubectl("delete", "sq", "orders")
            wait_until(lambda: status_of(kubectl, "totals")["chain"]["order"] == "enriched -> totals")
            wait_until(lambda: condition(kubectl, "enriched")[1] == "NoUpstream")


@contextmanager
def two_shards(plane: ControlPlane, namespace: str, folder: Path) -> Iterator[None]:
    """Run two operators, each of which has some of the queries."""
    with ExitStack() as operators:
        for number in (1, 2):
            (folder / str(number)).mkdir()
            options = ("--shard", f"{number}/2")
            operators.enter_context(running_operator(plane, folder / str(number), *options, namespace=namespace))
        yield


def test_a_query_without_its_topic_waits_for_the_query_before_it_and_starts_when_that_is_ready(
    plane: ControlPlane, namespace: str, kubectl: Kubectl, tmp_path: Path
) -> None:
    kubectl("apply", "-f", "-", document=list(claim_and_volume(namespace)))
    with two_shards(plane, namespace, tmp_path):
        kubectl("apply", "-f", "-", document=[query(name, reads) for name, reads in CHAIN.items()])
        missing = "Kafka at kafka:9092 has no topic enriched"
        for run in (1, 2):
            wait_until(lambda: kubectl("get", "pod", "totals-driver-0", "-o", "name") != "")
            fail(kubectl, "SourceMissing", missing, run, pod="totals-driver-0")
            wait_until(lambda run=run: status_of(kubectl, "totals")["failures"] == run)  # type: ignore[misc]
        wait_until(lambda: status_of(kubectl, "totals")["phase"] == "Pending")
        status, reason, message = condition(kubectl, "totals", "Ready")
        assert (status, reason) == ("False", "WaitingForUpstream")
        assert "enriched (topic enriched) is Deploying" in message
        assert missing in message
        assert condition(kubectl, "totals", "Degraded")[0] == "False"
        with running_kwok(plane, nodes=1):
            wait_until(lambda: reasons(kubectl) == ["NoUpstream", "UpstreamRunning", "UpstreamRunning"])
            wait_until(lambda: status_of(kubectl, "totals")["phase"] == "Running")
