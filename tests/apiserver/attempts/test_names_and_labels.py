"""Names, labels and annotations that are chosen to be taken for another's, or for the operator's own."""

from __future__ import annotations

import pytest

from lab.processes import Process

from ..observed import wait_until
from ..operators import ask
from .tenants import Document, Tenant, query

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

CANARY = {"millrace.io/canary": "true"}


def test_a_query_of_the_victims_name_shares_nothing_with_it(mallory: Tenant, bank: Tenant) -> None:
    before = bank.get("sts", "trips-driver")
    mallory.deploy(query("trips", image="example.org/evil:1"))
    mallory.run("delete", "sq", "trips")
    wait_until(lambda: mallory.attempt("get", "sts", "trips-driver").returncode != 0)
    after = bank.get("sts", "trips-driver")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_a_query_named_like_the_canary_is_a_query_like_any_other(mallory: Tenant, operator: Process) -> None:
    mallory.deploy(query("millrace-canary"))
    mallory.run("delete", "sq", "millrace-canary")
    assert ask(operator, "/healthz")[0] == 200


def test_a_query_labeled_as_a_canary_later_can_be_deleted_and_made_again(mallory: Tenant) -> None:
    mallory.deploy(query("hidden"))
    mallory.patch("sq", "hidden", {"metadata": {"labels": CANARY, "finalizers": None}})
    mallory.run("delete", "sq", "hidden")
    wait_until(lambda: mallory.attempt("get", "pod", "hidden-driver-0").returncode != 0)
    mallory.deploy(query("hidden", image="example.org/second:1"))
    assert mallory.get("sts", "hidden-driver")["spec"]["template"]["spec"]["containers"][0]["image"].endswith(
        "second:1"
    )


def test_a_query_labeled_as_a_canary_touches_no_canary(mallory: Tenant, operator: Process) -> None:
    document = query("canary-too")
    document["metadata"] |= {"labels": CANARY, "annotations": {"millrace.io/touched": "2999-01-01T00:00:00+00:00"}}
    mallory.apply(document)
    mallory.deploy(query("beside"))
    assert "status" not in mallory.get("sq", "canary-too")
    assert ask(operator, "/healthz")[0] == 200
    mallory.patch("sq", "canary-too", {"metadata": {"labels": {"millrace.io/canary": None}}})
    wait_until(lambda: mallory.status("canary-too").get("driver", {}).get("pod") == "canary-too-driver-0")


@pytest.mark.parametrize("annotation", ["last-handled-configuration", "on_query", "KopfFinalizerMarker"])
def test_an_annotation_of_kopfs_own_hides_no_query(mallory: Tenant, annotation: str) -> None:
    document = query(f"kopf-{len(annotation)}")
    document["metadata"]["annotations"] = {f"kopf.zalando.org/{annotation}": "[" * 5000}
    mallory.deploy(document)


@pytest.mark.parametrize("name", ["a" * 64, "..", "a/../trips", "a.b"])
def test_a_name_that_could_become_a_path_or_too_long_is_refused(mallory: Tenant, name: str) -> None:
    done = mallory.attempt("create", "-f", "-", document=query(name))
    assert done.returncode != 0


def test_a_query_that_writes_and_reads_the_victims_topics_is_in_no_chain_with_it(mallory: Tenant, bank: Tenant) -> None:
    def between(name: str, reads: str, writes: str) -> Document:
        kafka = {"bootstrapServers": "kafka:9092"}
        source = {"trips": {"kafka": kafka | {"topic": reads}, "schema": "cell STRING, fare DOUBLE"}}
        return query(name, sources=source, sink={"kafka": kafka | {"topic": writes}})

    bank.deploy(between("ledger", "deposits", "balances"))
    mallory.deploy(between("writer", "elsewhere", "deposits"))
    mallory.deploy(between("reader", "balances", "nowhere"))
    bank.scale("ledger", 2)
    assert "chain" not in bank.status("ledger")
    assert "chain" not in mallory.status("reader")


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"millrace.io/query": "trips"}},
        {"labels": {"millrace.io/role": "driver"}},
        {"annotations": {"millrace.io/revision": "0123456789"}},
    ],
    ids=str,
)
def test_pods_are_not_labeled_as_those_of_another_query(mallory: Tenant, change: dict[str, dict[str, str]]) -> None:
    name = f"labels-{len(str(change))}"
    mallory.apply(query(name, executors={"podTemplate": {"metadata": change}}))
    assert "is the operator's own" in mallory.wait_for_refusal(name)
    assert mallory.attempt("get", "sts", f"{name}-driver").returncode != 0


def test_no_text_of_a_tenant_is_a_label_of_the_operators_metrics(mallory: Tenant, operator: Process) -> None:
    document = query("marked", image="marker-one", sparkConf={"spark.marker": "marker-two"})
    document["metadata"] |= {"labels": {"marker-three": "x"}, "annotations": {"marker": "marker-four"}}
    mallory.deploy(document)
    mallory.patch("sq", "marked", {"spec": {"query": {"sql": "SELECT marker_five FROM trips"}}})
    assert "marker_five" in mallory.wait_for_refusal("marked")
    assert "marker" not in ask(operator, "/metrics")[1]
