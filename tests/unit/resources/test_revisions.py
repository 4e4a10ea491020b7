"""Which fields of a spec replace the driver: every one is classified, and the revision follows just those."""

from typing import get_args

import pytest
import yaml

from millrace_api.model.changes import Effect
from millrace_api.model.streamquery import Spec
from millrace_operator.resources.spec_changes import EFFECTS, replaced_fields, revision, with_in_place

from .cases import CASES, LOOKED_UP, SMALLEST, query_of

CHANGES = {
    "suspend": True,
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
    "code": [{"uri": "s3a://code/routes.zip", "sha256": "0" * 64}],
    "serviceAccountName": "another",
    "sparkConf": {"spark.sql.adaptive.enabled": "true"},
    "labels": {"team": "payments"},
    "eventLog": {"path": "/data/events"},
    "lineage": {"file": "lineage.jsonl"},
    "scheduling": {"scheduler": "Kueue", "queue": "team-a"},
    "restartNonce": 4,
    "query": {"sql": "SELECT cell, count(*) AS many FROM trips GROUP BY cell"},
    "sink": {"console": {}},
}


PARENTS = {f"{field.rpartition('.')[0]}." for field in EFFECTS}


def fields_of(model, above=""):
    """All fields that must be classified: one that is not itself has all its parts classified."""
    for name, field in model.model_fields.items():
        path = f"{above}{field.alias or name}"
        part = next((each for each in get_args(field.annotation) if f"{path}." in PARENTS), field.annotation)
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


def looked_up(**changes):
    """The spec of the case, with changes of its ``lookups``; None leaves a field out."""
    document = yaml.safe_load(LOOKED_UP)
    lookups = document["spec"]["lookups"] | changes
    document["spec"]["lookups"] = {name: value for name, value in lookups.items() if value is not None}
    return query_of(yaml.safe_dump(document)).spec


def without_lookups():
    document = yaml.safe_load(LOOKED_UP)
    del document["spec"]["lookups"]
    return query_of(yaml.safe_dump(document)).spec


def test_the_driver_is_replaced_for_who_may_look_up_and_not_for_from_where():
    before = looked_up()
    assert replaced_fields(before, looked_up(namespaces=["a", "b"])) == []
    assert revision(looked_up(namespaces=None)) == revision(before)
    assert replaced_fields(before, looked_up(tokens={"env": "OTHER"})) == ["spec.lookups.tokens"]
    assert replaced_fields(before, looked_up(tls=None)) == ["spec.lookups.tls"]
    assert replaced_fields(without_lookups(), looked_up(tls=None)) == ["spec.lookups.tokens"]


def test_a_spec_that_is_rolled_back_to_opens_look_ups_only_to_those_that_are_wanted():
    everywhere = looked_up(namespaces=["*"])
    assert with_in_place(everywhere, looked_up(tls=None, namespaces=["a"])) == looked_up(namespaces=["a"])
    assert with_in_place(everywhere, looked_up(namespaces=None)) == looked_up(namespaces=None)
    assert with_in_place(everywhere, without_lookups()) == looked_up(namespaces=None)


def test_a_spec_without_look_ups_takes_the_other_fields_that_are_in_place():
    wanted = looked_up().model_copy(update={"executors": query_of(SMALLEST).spec.executors})
    assert with_in_place(without_lookups(), wanted) == without_lookups().model_copy(
        update={"executors": wanted.executors}
    )


def test_fields_that_do_not_go_with_a_spec_keep_no_other_part_from_being_taken():
    healthy = query_of(SMALLEST + "  executors: {memory: 4g, max: 6}\n").spec
    wanted = query_of(
        SMALLEST + "  executors: {memory: 1g, maxMemory: 2g, max: 9}\n  scaling: {target: 0.7}\n  suspend: true\n"
    ).spec
    taken = with_in_place(healthy, wanted)
    assert (taken.suspend, taken.scaling.target) == (True, 0.7)
    assert taken.executors == healthy.executors  # 2g is less than the memory that they have


def test_a_part_that_goes_with_the_spec_only_after_another_one_is_taken():
    entry = "{{start: 0 8 * * *, duration: 1h, minExecutors: {}}}"
    spec = (
        "  executors: {{memory: 4g, max: {}}}\n  scaling: {{schedule: [{}]}}\n  driver: {{memory: {}, maxMemory: {}}}\n"
    )
    healthy = query_of(SMALLEST + spec.format(8, entry.format(6), "4g", "6g")).spec
    wanted = query_of(SMALLEST + spec.format(4, entry.format(4), "1g", "2g")).spec
    taken = with_in_place(healthy, wanted)
    assert (taken.executors.max, taken.scaling, taken.driver) == (4, wanted.scaling, healthy.driver)


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
