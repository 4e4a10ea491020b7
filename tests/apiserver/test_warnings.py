"""The chart's warning at ``kubectl apply``, on a real API server: about what replaces a driver, and nothing else."""

from __future__ import annotations

import json
import time

import pytest
import yaml

from millrace_api.model.changes import Effect
from millrace_operator.resources.spec_changes import EFFECTS
from unit.api.documents import ON_CLUSTER
from unit.chart.tools import documents, rendered

from .conftest import new_namespace

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

NAME = "trips-by-cell"
KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")

REPLACING = {
    "sources": {"trips": {"files": {"maxFilesPerBatch": 3}}},
    "query": {"sql": "SELECT cell, count(*) AS n FROM trips WHERE fare > 1 GROUP BY cell"},
    "sink": {"console": None, "files": {"path": "out", "format": "csv"}},
    "emit": "OnWindowClose",
    "additionalOutputs": {"more": {"emit": "OnUpdate", "sink": {"console": {}}}},
    "batchInterval": "5s",
    "executors.cores": 3,
    "executors.memory": "3g",
    "executors.podTemplate": {"spec": {"priorityClassName": "high"}},
    "driver.cores": 3,
    "driver.memory": "3g",
    "driver.podTemplate": {"metadata": {"labels": {"team": "a"}}},
    "s3": {"region": "eu-central-1"},
    "azure": {"accountKey": {"env": "KEY"}},
    "labels": {"team": "payments"},
    "eventLog": {"path": "/data/events"},
    "lineage": {"http": {"url": "http://marquez:5000/api/v1/lineage"}},
    "lookups.tokens": {"env": "TOKENS"},
    "lookups.tls": {"certificate": {"env": "CERTIFICATE"}, "key": {"env": "KEY"}},
    "image": "example.org/jobs:2",
    "code": [{"uri": "s3a://code/routes.zip", "sha256": "0" * 64}],
    "serviceAccountName": "other",
    "sparkConf": {"spark.sql.shuffle.partitions": "3"},
    "scheduling": {"scheduler": "Kueue", "queue": "team-a"},
    "snapshots": {"every": "6h"},
    "restartNonce": 1,
}
"""A change of each field that replaces the driver, as a merge patch."""

_TABLE = {"sink": {"console": None, "table": {"bootstrapServers": "kafka:9092", "topic": "by-cell"}}}
_LOOKED_UP = _TABLE | {"lookups": {"tokens": {"env": "READERS"}}}
BEFORE = {"lookups.tokens": _TABLE, "lookups.tls": _LOOKED_UP, "lookups.namespaces": _LOOKED_UP}
"""What a field needs in the spec, as merge patches by field, in their order."""

IN_PLACE = {
    "partitioner.algorithm": "pkg",
    "partitioner.parameters": {"d": 3},
    "partitioner.placement": "Auto",
    "partitioner.replicas": {"min": 2},
    "partitioner.pod": {"cores": 2},
    "parallelism.initial": 9,
    "parallelism.min": 3,
    "parallelism.max": 60,
    "executors.initial": 3,
    "executors.min": 2,
    "executors.max": 12,
    "executors.maxMemory": "8Gi",
    "driver.maxMemory": "8g",
    "scaling.mode": "Advise",
    "scaling.target": 0.8,
    "scaling.step": 0.2,
    "scaling.window": 7,
    "scaling.grace": 7,
    "scaling.costs.rescale": 0.5,
    "scaling.costs.lateMinute": 3,
    "scaling.schedule": [{"start": "0 8 * * MON-FRI", "duration": "10h", "minExecutors": 4}],
    "lookups.namespaces": ["dashboards"],
    "upgrade": {"mode": "Shadow"},
    "suspend": True,
}
"""A change of each field that is changed in place."""

WATERMARK = ("format: csv}", "format: csv}\n      watermark: {column: at, delay: 30s}")


@pytest.fixture(scope="module", autouse=True)
def policy(plane):
    """The chart's policy, once the API server follows it."""
    objects = [each for each in documents(rendered()) if each["kind"] in KINDS and "driver-pods" not in str(each)]
    assert len(objects) == 2
    done = plane.kubectl("apply", "-f", "-", document=objects)
    assert done.returncode == 0, done.stderr
    namespace = new_namespace(plane)
    in_it = ("--namespace", namespace)
    plane.kubectl(*in_it, "apply", "-f", "-", document=ON_CLUSTER)
    deadline = time.monotonic() + 120
    while "Warning" not in patched(plane, namespace, "restartNonce", int(time.monotonic() * 1000)):
        assert time.monotonic() < deadline, "the API server does not follow the policy"
        time.sleep(0.5)
    yield
    plane.kubectl("delete", "namespace", namespace, "--wait=false")
    for each in objects:
        plane.kubectl("delete", each["kind"], each["metadata"]["name"])


def patched(plane, namespace, field, value, *options):
    """Change a field by a merge patch; what kubectl writes beside its output."""
    for part in reversed(field.split(".")):
        value = {part: value}
    change = ("patch", "sq", NAME, "--type=merge", "-p", json.dumps({"spec": value}), *options)
    done = plane.kubectl("--namespace", namespace, *change)
    assert done.returncode == 0, done.stderr
    return done.stderr


def prepare(plane, namespace, field):
    for needed, value in BEFORE.get(field, {}).items():
        patched(plane, namespace, needed, value)


@pytest.fixture
def query(kubectl):
    kubectl("apply", "-f", "-", document=f"{ON_CLUSTER.replace(*WATERMARK)}  executors: {{initial: 2}}\n")


def test_every_field_is_tried_with_the_warning():
    assert REPLACING.keys() | IN_PLACE.keys() | {"checkpoint"} == EFFECTS.keys()
    assert REPLACING.keys() == {field for field, effect in EFFECTS.items() if effect is Effect.REPLACED}


@pytest.mark.usefixtures("query")
@pytest.mark.parametrize("field", REPLACING)
def test_a_change_that_replaces_the_driver_is_made_with_a_warning(plane, namespace, field):
    prepare(plane, namespace, field)
    warning = patched(plane, namespace, field, REPLACING[field])
    assert f"spec.{field} changed: the driver ends after its running batch" in warning
    assert warning.count("spec.") == 1


@pytest.mark.usefixtures("query")
@pytest.mark.parametrize("field", IN_PLACE)
def test_a_change_in_place_is_made_without_a_warning(plane, namespace, field):
    prepare(plane, namespace, field)
    assert patched(plane, namespace, field, IN_PLACE[field]) == ""


@pytest.mark.usefixtures("query")
@pytest.mark.parametrize(("field", "is_compared"), [("query", True), ("batchInterval", False)])
def test_a_change_that_is_compared_first_says_so(plane, namespace, field, is_compared):
    patched(plane, namespace, "upgrade", {"mode": "Shadow"})
    prepare(plane, namespace, field)
    warning = patched(plane, namespace, field, REPLACING[field])
    assert ("goes on until both are compared on the same records" in warning) is is_compared
    assert ("the driver ends after its running batch" in warning) is not is_compared


@pytest.mark.usefixtures("query")
def test_several_fields_are_one_warning_of_kubectl_apply(plane, namespace):
    document = yaml.safe_load(ON_CLUSTER.replace(*WATERMARK))
    document["spec"] |= {"image": "example.org/jobs:3", "batchInterval": "3s"}
    done = plane.kubectl("--namespace", namespace, "apply", "-f", "-", document=document)
    assert (done.returncode, done.stderr.count("Warning")) == (0, 1)
    assert "spec.batchInterval, spec.image changed: the driver ends" in done.stderr


@pytest.mark.usefixtures("query")
def test_defaults_that_are_written_out_are_no_change(plane, namespace):
    document = yaml.safe_load(ON_CLUSTER.replace(*WATERMARK))
    document["spec"] |= {"batchInterval": "2s", "executors": {"cores": "2", "memory": "2Gi"}, "sparkConf": {}}
    done = plane.kubectl("--namespace", namespace, "apply", "-f", "-", document=document)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("query")
def test_changes_of_scale_status_and_labels_are_made_without_a_warning(plane, namespace):
    for change in (
        ("scale", "sq", NAME, "--replicas=4"),
        ("label", "sq", NAME, "team=a"),
        ("patch", "sq", NAME, "--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Running"}}'),
        ("delete", "sq", NAME),
    ):
        done = plane.kubectl("--namespace", namespace, *change)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("query")
def test_without_a_driver_there_is_nothing_to_warn_about(plane, namespace):
    assert patched(plane, namespace, "suspend", True) == ""
    assert patched(plane, namespace, "image", "example.org/jobs:4") == ""
    assert patched(plane, namespace, "suspend", False) == ""
    assert "spec.image changed" in patched(plane, namespace, "image", "example.org/jobs:5")
