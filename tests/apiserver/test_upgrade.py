"""Objects that were stored under an older CRD, when the present one is applied over it."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
import yaml

from lab.control_plane import ControlPlane, running_control_plane
from unit.api.documents import MINIMAL, PYTHON, changed

from .conftest import CRD
from .crd_documents import STATUS, VALID

pytestmark = [pytest.mark.apiserver, pytest.mark.in_turn, pytest.mark.timeout(1800)]

RELEASED = CRD.parent / "released" / "v1alpha1.yaml"
PATIENCE = 60.0
NAME = "streamqueries.millrace.io"

Document = dict[str, Any]


def stored_when_released() -> list[Document]:
    """The valid documents without fields, or units of memory, that the released version lacks."""
    specs = ((document, document["spec"]) for document in map(yaml.safe_load, VALID))
    return [
        document
        for document, spec in specs
        if not {"additionalOutputs", "labels", "eventLog", "lineage", "lookups", "code"} & spec.keys()
        and not {"functions", "aggregates"} & spec["query"].keys()
        and not {"postgres", "mysql", "delta", "iceberg", "python"} & spec["sink"].keys()
        and spec.get("partitioner", {}).get("algorithm") != "python"
        and not any(map(_is_new, spec["sources"].values()))
        and not any(spec.get(part, {}).get("memory", "").endswith("i") for part in ("driver", "executors"))
    ]


def _is_new(source: Document) -> bool:
    """Whether a source has a field that the released version lacks, or an event time within a struct."""
    files = source.get("files", {}).keys()
    if {"partitionColumns", "order"} & files:
        return True
    if "connection" in source.get("kafka", {}):
        return True
    return bool(
        {"table", "timeFormats", "protobuf", "delta", "iceberg", "python"} & source.keys()
    ) or "." in source.get("watermark", {}).get("column", "")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory):
    """A control plane of its own: other tests need the present CRD in theirs."""
    with running_control_plane(tmp_path_factory.mktemp("control-plane")) as started:
        yield started


def document_of(path) -> Document:
    found: Document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def install(plane: ControlPlane, crd: Document) -> None:
    """A CRD in a cluster that has none, and nothing stored."""
    for arguments in (
        ("delete", "crd", NAME, "--ignore-not-found"),
        ("apply", "--server-side", "-f", "-"),
    ):
        done = plane.kubectl(*arguments, document=crd if arguments[0] == "apply" else None)
        assert done.returncode == 0, done.stderr
    plane.wait_for_crd(NAME)


def upgrade(plane: ControlPlane, kubectl) -> None:
    """Apply the present CRD as an administrator does, with a column more, which shows when it is served."""
    crd = document_of(CRD)
    column = {"name": "Upgraded", "type": "string", "jsonPath": ".metadata.name"}
    crd["spec"]["versions"][0]["additionalPrinterColumns"].append(column)
    done = plane.kubectl("apply", "--server-side", "-f", "-", document=crd)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + PATIENCE
    while "UPGRADED" not in kubectl("get", "sq"):
        assert time.monotonic() < deadline, "the API server does not serve the CRD that was applied"
        time.sleep(0.1)


def stored(kubectl) -> dict[str, Document]:
    """All objects of the namespace by name."""
    return {each["metadata"]["name"]: each for each in json.loads(kubectl("get", "sq", "-o", "json"))["items"]}


def has_all_of(after: Any, before: Any) -> bool:
    """Whether everything of a value is in another one, which may have more fields."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(name in after and has_all_of(after[name], value) for name, value in before.items())
    return bool(after == before)


def write_status(kubectl, *names: str) -> None:
    kubectl("patch", "sq", *names, "--subresource=status", "--type=merge", "-p", json.dumps({"status": STATUS}))


def test_objects_of_the_released_version_can_be_read_changed_and_reported_on(plane, namespace, kubectl):
    install(plane, document_of(RELEASED))
    kubectl("create", "-f", "-", document=stored_when_released())
    before = stored(kubectl)
    assert len(before) >= 20
    write_status(kubectl, "trips-by-cell")

    upgrade(plane, kubectl)
    after = stored(kubectl)
    assert [name for name in before if not has_all_of(after[name]["spec"], before[name]["spec"])] == []
    assert has_all_of(after["trips-by-cell"]["status"], STATUS)

    kubectl("annotate", "sq", "--all", "note=seen")
    write_status(kubectl, *before)
    kubectl("patch", "sq", *before, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    for name, each in stored(kubectl).items():
        assert each["metadata"]["annotations"]["note"] == "seen"
        assert has_all_of(each["status"], STATUS)
        assert has_all_of(each["spec"], {**before[name]["spec"], "suspend": True})
    rows = {row.split()[0]: row.split()[1:3] for row in kubectl("get", "sq").splitlines()[1:]}
    assert rows == {name: ["True", "BatchesRunning"] for name in before}


def older() -> Document:
    """The present CRD as it may once have been: without some fields, and with a narrower bound."""
    crd = copy.deepcopy(document_of(CRD))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    spec, status = schema["spec"]["properties"], schema["status"]["properties"]
    for absent in ("restartNonce", "serviceAccountName"):
        del spec[absent]
    for absent in ("rejected", "retryTime", "failures", "attempts"):
        del status[absent]
    for of_scaling in (spec["scaling"]["properties"], spec["scaling"]["default"]):
        del of_scaling["grace"]
    spec["parallelism"]["properties"]["max"]["maximum"] = 32
    return crd


def test_objects_of_an_older_version_get_the_defaults_of_new_fields(plane, namespace, kubectl):
    install(plane, older())
    wide = changed(MINIMAL, 12, "  parallelism: {max: 64}")
    refused = plane.kubectl("--namespace", namespace, "apply", "-f", "-", document=wide)
    assert "spec.parallelism.max" in refused.stderr
    kubectl("create", "-f", "-", document=[yaml.safe_load(text) for text in (MINIMAL, PYTHON)])
    write_status(kubectl, "trips-by-cell")
    before = stored(kubectl)
    assert all("grace" not in each["spec"]["scaling"] for each in before.values())

    upgrade(plane, kubectl)
    after = stored(kubectl)
    for name, each in before.items():
        assert has_all_of(after[name], {key: each[key] for key in ("spec", "status") if key in each})
        assert after[name]["spec"]["scaling"]["grace"] == 6
        assert after[name]["metadata"]["generation"] == each["metadata"]["generation"]
    assert after["trips-by-cell"]["status"]["failures"] == 0

    kubectl("apply", "-f", "-", document=wide)
    kubectl("patch", "sq", "trips-by-cell", "--type=merge", "-p", '{"spec": {"restartNonce": 1}}')
    spec = stored(kubectl)["trips-by-cell"]["spec"]
    assert (spec["parallelism"]["max"], spec["restartNonce"]) == (64, 1)
