"""The operator against a real API server: what it reports, and that it comes through the faults of the server."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
import yaml

from unit.api.broken import BROKEN
from unit.api.documents import ON_CLUSTER, changed
from unit.api.unsound import UNSOUND
from unit.resources.cases import CASES, objects_of

from .conftest import install_crd
from .crd_documents import as_told_by_cel, as_users_write, rules_without_cel
from .observed import PATIENCE, mounted_configuration, ready_of, status_of, wait_until
from .operators import running_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1800)]

WRITTEN = re.compile(r'resource="(configmaps|services|statefulsets|roles)"')
REPORTED = [
    *(
        (text, line, new, [said])
        for text, line, new, said in BROKEN
        if as_told_by_cel(said).partition(";")[0] in rules_without_cel()
    ),
    *UNSOUND,
]
"""Documents that the API server takes, and the operator finds fault with."""


@pytest.fixture(scope="module")
def operator(plane, tmp_path_factory):
    """The operator that tests share."""
    with running_operator(plane, tmp_path_factory.mktemp("operator")) as started:
        yield started


@pytest.mark.in_turn
@pytest.mark.usefixtures("operator")
def test_what_the_api_server_cannot_see_is_reported(kubectl):
    documents = {}
    for number, (text, line, replacement, expected) in enumerate(REPORTED):
        document = yaml.safe_load(changed(text, line, replacement))
        document["metadata"]["name"] = f"query-{number}"
        documents[f"query-{number}"] = (document, expected)
    kubectl("apply", "-f", "-", document=[document for document, _ in documents.values()])
    for name, (_, expected) in documents.items():
        ready = ready_of(kubectl, name)
        assert (ready["status"], ready["reason"]) == ("False", "InvalidQuery"), name
        for sentence in expected:
            assert sentence.split(": ", 1)[1] in ready["message"], name


@pytest.mark.usefixtures("operator")
def test_a_correction_is_seen_and_told_in_events(kubectl):
    kubectl("apply", "-f", "-", document=changed(ON_CLUSTER, 10, "    sql: SELECT cel FROM trips"))
    assert ready_of(kubectl, "trips-by-cell")["reason"] == "InvalidQuery"
    kubectl("apply", "-f", "-", document=ON_CLUSTER)
    assert ready_of(kubectl, "trips-by-cell", generation=2)["reason"] == "Deploying"
    deadline = time.monotonic() + PATIENCE
    events: list[dict[str, Any]] = []
    ours = ("--field-selector", "involvedObject.kind=StreamQuery")
    while len(events) < 2 and time.monotonic() < deadline:
        events = json.loads(kubectl("get", "events", *ours, "-o", "json"))["items"]
    assert sorted((each["type"], each["reason"]) for each in events) == [
        ("Normal", "Deploying"),
        ("Warning", "InvalidQuery"),
    ]
    assert "Deploying" in kubectl("describe", "sq", "trips-by-cell")


@pytest.mark.usefixtures("operator")
def test_everything_that_a_query_needs_is_made_and_put_right_and_goes_with_it(kubectl):
    kubectl("apply", "-f", "-", document=as_users_write(CASES["secured"]))
    made = [each for each in objects_of(CASES["secured"]) if not each.get("immutable")]
    names = [f"{each['kind']}/{each['metadata']['name']}" for each in made]
    wait_until(lambda: kubectl("get", *names, "-o", "name").count("trips-by-cell") == len(names))
    wait_until(lambda: status_of(kubectl, "trips-by-cell").get("driver", {}).get("pod") == "trips-by-cell-driver-0")
    header, row = kubectl("get", "sq", "-o", "wide").splitlines()
    assert header.split()[:3] == ["NAME", "READY", "REASON"]
    assert row.split()[:3] == ["trips-by-cell", "False", "Deploying"]
    assert "native 3 8 2 Inline" in " ".join(row.split())

    configuration = mounted_configuration(kubectl)
    kubectl("delete", "service/trips-by-cell-driver", configuration)
    kubectl("patch", "pdb", "trips-by-cell-exec", "-p", '{"spec": {"minAvailable": 0}}')
    wait_until(lambda: kubectl("get", *names, "-o", "name").count("trips-by-cell") == len(names))
    wait_until(lambda: kubectl("get", "pdb", "trips-by-cell-exec", "-o", "jsonpath={.spec.minAvailable}") == "2")
    wait_until(lambda: kubectl("get", configuration, "-o", "jsonpath={.immutable}") == "true")

    kubectl("patch", "sq", "trips-by-cell", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    wait_until(lambda: status_of(kubectl, "trips-by-cell")["phase"] == "Suspended")
    kubectl("patch", "sq", "trips-by-cell", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    wait_until(lambda: status_of(kubectl, "trips-by-cell")["phase"] == "Deploying")

    kubectl("delete", "sq", "trips-by-cell")
    labeled = ("-l", "millrace.io/query=trips-by-cell", "-o", "name")
    wait_until(lambda: not kubectl("get", "sts,svc,cm,pdb,netpol,role,rolebinding,sa,pod", *labeled))


@pytest.mark.in_turn
@pytest.mark.usefixtures("operator")
def test_at_rest_nothing_is_written(plane, kubectl):
    kubectl("apply", "-f", "-", document=ON_CLUSTER)
    wait_until(lambda: status_of(kubectl, "trips-by-cell").get("driver", {}).get("pod") == "trips-by-cell-driver-0")
    time.sleep(5)
    query, shown = ("sq", "trips-by-cell"), ("-o", "jsonpath={.metadata.resourceVersion}")
    before, version = writes(plane), kubectl("get", *query, *shown)
    assert before > 0
    time.sleep(5)
    assert kubectl("get", *query, *shown) == version
    woken = kubectl("annotate", *query, "note=seen", *shown)  # which wakes the operator, and changes nothing for it
    time.sleep(5)
    assert writes(plane) == before
    assert kubectl("get", *query, *shown) == woken


def writes(plane) -> int:
    """Requests so far that could change what belongs to a StreamQuery."""
    lines = plane.kubectl("get", "--raw", "/metrics").stdout.splitlines()
    counted = [line for line in lines if line.startswith("apiserver_request_total{") and WRITTEN.search(line)]
    changing = [line for line in counted if any(f'verb="{verb}"' in line for verb in ("APPLY", "PATCH", "PUT", "POST"))]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in changing)


@pytest.mark.in_turn
def test_an_api_server_that_was_away_is_found_again(tmp_path_factory, tmp_path):
    from lab.control_plane import running_control_plane

    with running_control_plane(tmp_path_factory.mktemp("own-control-plane")) as plane:
        install_crd(plane)

        def kubectl(*arguments: str, document: object = None) -> str:
            done = plane.kubectl(*arguments, document=document)
            assert done.returncode == 0, done.stderr
            return done.stdout

        with running_operator(plane, tmp_path) as operator:
            kubectl("apply", "-f", "-", document=ON_CLUSTER)
            ready_of(kubectl, "trips-by-cell")
            plane.part("kube-apiserver").kill()
            time.sleep(10)
            plane.restart("kube-apiserver")
            kubectl("apply", "-f", "-", document=changed(ON_CLUSTER, 10, "    sql: SELECT cel FROM trips"))
            assert ready_of(kubectl, "trips-by-cell", generation=2)["reason"] == "InvalidQuery"
            assert operator.end() == 0
