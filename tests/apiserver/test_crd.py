"""The CRD on a real API server: what it takes and refuses, what ``kubectl`` shows, and what it does to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from unit.api.broken import BROKEN
from unit.api.documents import MINIMAL, PYTHON, changed

from .conftest import CRD
from .crd_documents import STATUS, VALID, as_told_by_cel, rules_without_cel
from .invalid import INVALID

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]


CHECKED_BY_CEL = [
    case
    for case in BROKEN
    if as_told_by_cel(case[3]).partition(";")[0] not in rules_without_cel() and "avro: {}" not in case[2]
]
"""Without what only resolving finds: Avro by a registry without a Connection."""


def test_the_crd_is_established_and_structural(plane):
    (conditions,) = [plane.get("crd", "streamqueries.millrace.io")["status"]["conditions"]]
    found = {condition["type"]: condition["status"] for condition in conditions}
    assert found["Established"] == found["NamesAccepted"] == "True"
    assert found.get("NonStructuralSchema", "False") == "False"


def test_applying_the_crd_again_changes_nothing(plane):
    before = plane.get("crd", "streamqueries.millrace.io")["metadata"]
    assert plane.kubectl("apply", "--server-side", "-f", CRD).returncode == 0
    after = plane.get("crd", "streamqueries.millrace.io")["metadata"]
    assert (after["resourceVersion"], after["generation"]) == (before["resourceVersion"], before["generation"])


@pytest.mark.parametrize("text", VALID, ids=lambda text: yaml.safe_load(text)["metadata"]["name"])
def test_what_is_valid_is_accepted(plane, text):
    done = plane.kubectl("apply", "--dry-run=server", "-f", "-", document=text)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("text", "line", "replacement", "expected"), CHECKED_BY_CEL)
def test_a_broken_rule_is_refused_with_its_sentence(plane, text, line, replacement, expected):
    done = plane.kubectl("apply", "--dry-run=server", "-f", "-", document=changed(text, line, replacement))
    assert done.returncode == 1
    assert as_told_by_cel(expected) in done.stderr


@pytest.mark.parametrize(("text", "line", "replacement", "said"), INVALID)
def test_what_the_schema_does_not_allow_is_refused(plane, text, line, replacement, said):
    done = plane.kubectl("apply", "--dry-run=server", "-f", "-", document=changed(text, line, replacement))
    assert done.returncode == 1
    assert said in done.stderr


def test_there_are_enough_valid_and_invalid_specs():
    assert len(CHECKED_BY_CEL) + len(INVALID) >= 60
    assert len(VALID) >= 20


def test_applying_a_query_twice_changes_nothing(kubectl):
    def apply() -> dict[str, Any]:
        kubectl("apply", "--server-side", "-f", "-", document=PYTHON)
        found: dict[str, Any] = json.loads(kubectl("get", "sq", "top-routes", "-o", "json"))
        return found

    assert apply() == apply()


def test_a_checkpoint_cannot_be_changed_later(plane, namespace, kubectl):
    kubectl("apply", "-f", "-", document=changed(MINIMAL, 12, "  checkpoint: {claimName: one}"))
    moved = changed(MINIMAL, 12, "  checkpoint: {claimName: other}")
    for document in (moved, MINIMAL):
        done = plane.kubectl("--namespace", namespace, "replace", "-f", "-", document=document)
        assert done.returncode == 1
        assert "checkpoint cannot be changed; to start from another one, delete this StreamQuery" in done.stderr


def test_every_printer_column_is_filled(kubectl):
    kubectl("apply", "-f", "-", document=MINIMAL)
    kubectl(
        "patch", "sq", "trips-by-cell", "--subresource=status", "--type=merge", "-p", json.dumps({"status": STATUS})
    )
    header, row = kubectl("get", "sq").splitlines()
    assert header.split() == ["NAME", "READY", "REASON", "UTILIZATION", "LAG", "AGE"]
    assert row.split()[:-1] == ["trips-by-cell", "True", "BatchesRunning", "0.83", "1200"]
    header, row = kubectl("get", "sq", "-o", "wide").splitlines()
    wide = ["ALGORITHM", "EXECUTORS", "WORKERS", "REPLICAS", "PLACEMENT"]
    assert header.split()[6:11] == wide
    assert row.split()[6:11] == ["pkg", "1", "8", "2", "Inline"]
    assert "trips-by-cell" in kubectl("get", "millrace")
    assert kubectl("wait", "sq/trips-by-cell", "--for=condition=Ready", "--timeout=10s")


def test_a_status_out_of_bounds_is_refused(plane, namespace, kubectl):
    kubectl("apply", "-f", "-", document=MINIMAL)
    patch = ("patch", "sq", "trips-by-cell", "--subresource=status", "--type=merge", "-p")
    attempts = [{"time": "2026-01-31T12:00:00Z", "reason": "UserCode", "message": ""}] * 11
    done = plane.kubectl("--namespace", namespace, *patch, json.dumps({"status": {"attempts": attempts}}))
    assert done.returncode == 1
    assert "status.attempts: Too many: 11: must have at most 10 items" in done.stderr


def test_scaling_by_the_subresource_keeps_to_the_bounds(plane, namespace, kubectl):
    kubectl("apply", "-f", "-", document=changed(MINIMAL, 12, "  executors: {initial: 2, max: 4}"))
    kubectl("scale", "sq", "trips-by-cell", "--replicas=3")
    assert json.loads(kubectl("get", "sq", "trips-by-cell", "-o", "json"))["spec"]["executors"]["initial"] == 3
    done = plane.kubectl("--namespace", namespace, "scale", "sq", "trips-by-cell", "--replicas=5")
    assert done.returncode == 1
    assert "min <= initial <= max does not hold; write values in that order" in done.stderr
    kubectl(
        "patch", "sq", "trips-by-cell", "--subresource=status", "--type=merge", "-p", json.dumps({"status": STATUS})
    )
    path = f"/apis/millrace.io/v1alpha1/namespaces/{namespace}/streamqueries/trips-by-cell/scale"
    scale = json.loads(kubectl("get", "--raw", path))
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 1, "selector": "millrace.io/query=trips-by-cell"}


def test_a_query_without_records_may_have_no_executor_and_kubectl_scale_keeps_it_from_none(plane, namespace, kubectl):
    kubectl("apply", "-f", "-", document=changed(MINIMAL, 12, "  executors: {min: 0}"))
    stored = json.loads(kubectl("get", "sq", "trips-by-cell", "-o", "json"))["spec"]["executors"]
    assert (stored["min"], stored["initial"]) == (0, 1)
    done = plane.kubectl("--namespace", namespace, "scale", "sq", "trips-by-cell", "--replicas=0")
    assert done.returncode == 1
    assert "spec.executors.initial" in done.stderr
    status = STATUS | {"plan": STATUS["plan"] | {"executors": 0}}
    kubectl(
        "patch", "sq", "trips-by-cell", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
    )
    path = f"/apis/millrace.io/v1alpha1/namespaces/{namespace}/streamqueries/trips-by-cell/scale"
    assert json.loads(kubectl("get", "--raw", path))["status"]["selector"] == "millrace.io/query=trips-by-cell"


def test_kubectl_explains_every_field(kubectl):
    said = kubectl("explain", "sq.spec")
    assert "What the user wants." in said
    properties = yaml.safe_load(CRD.read_text(encoding="utf-8"))["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = properties["properties"]["spec"]["properties"]
    words = " ".join(said.split())
    for name, field in spec.items():
        assert f" {name} <" in words
        assert " ".join(field["description"].split()) in words
    whole = kubectl("explain", "sq", "--recursive")
    assert "secretKeyRef" in whole
    assert "lastTransitionTime" in whole
