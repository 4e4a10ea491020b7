"""Which fields of a spec replace the driver: every one is classified, and the revision follows just those."""

import pytest
import yaml

from millrace_api.model.streamquery import Spec
from millrace_operator.resources.spec_fields import EFFECTS, Effect, replaced_fields, revision

from .cases import CASES, SMALLEST, query_of

CHANGES = {
    "state": "Suspended",
    "emit": "OnUpdate",
    "batchInterval": "7s",
    "partitioner.algorithm": "hash",
    "partitioner.replicas": {"max": 3},
    "partitioner.placement": "Dedicated",
    "partitioner.pod": {"cores": 2, "memory": "2g"},
    "parallelism.initial": 5,
    "parallelism.min": 2,
    "parallelism.max": 17,
    "executors.initial": 2,
    "executors.max": 9,
    "executors.cores": 3,
    "executors.memory": "3g",
    "executors.podTemplate": {"spec": {"priorityClassName": "low"}},
    "driver.cores": 3,
    "driver.memory": "3g",
    "driver.podTemplate": {"spec": {"priorityClassName": "low"}},
    "scaling.mode": "Off",
    "scaling.target": 0.8,
    "image": "example.org/another",
    "serviceAccountName": "another",
    "sparkConf": {"spark.sql.adaptive.enabled": "true"},
    "labels": {"team": "payments"},
    "eventLog": {"path": "/data/events"},
    "lineage": {"file": "lineage.jsonl"},
    "restartNonce": 4,
    "replanNonce": 4,
    "query": {"sql": "SELECT cell, count(*) AS many FROM trips GROUP BY cell"},
    "sink": {"console": {}},
}


def fields_of(model, above=""):
    """All fields that must be classified: one that is not itself has all its parts classified."""
    for name, field in model.model_fields.items():
        path, part = f"{above}{field.alias or name}", field.annotation
        if path not in EFFECTS and hasattr(part, "model_fields"):
            yield from fields_of(part, f"{path}.")
        else:
            yield path


def test_every_field_is_classified_and_nothing_else():
    assert sorted(fields_of(Spec)) == sorted(EFFECTS)


@pytest.mark.parametrize("field", CHANGES)
def test_the_revision_changes_with_fields_that_replace_the_driver(field):
    before = query_of(SMALLEST).spec
    document = yaml.safe_load(SMALLEST)
    place, *parts = field.split(".")
    document["spec"][place] = {parts[0]: CHANGES[field]} if parts else CHANGES[field]
    after = query_of(yaml.safe_dump(document)).spec
    changed = EFFECTS[field] is Effect.REPLACED and after != before
    assert (revision(after) != revision(before)) == changed
    assert replaced_fields(before, after) == ([f"spec.{field}"] if changed else [])


@pytest.mark.parametrize("name", CASES)
def test_the_revision_is_that_of_the_pods_template(name):
    from .cases import objects_of

    driver = objects_of(CASES[name])[-1]
    annotations = driver["spec"]["template"]["metadata"]["annotations"]
    assert annotations["millrace.io/revision"] == revision(query_of(CASES[name]).spec)


def test_a_default_that_is_written_out_is_no_change():
    document = yaml.safe_load(SMALLEST)
    document["spec"] = query_of(SMALLEST).spec.to_document()
    assert revision(query_of(yaml.safe_dump(document)).spec) == revision(query_of(SMALLEST).spec)


def test_a_revision_is_the_same_in_every_version_that_reads_the_same_spec():
    assert revision(query_of(SMALLEST).spec) == "5c7fffa270"
