"""State of a query that its namespace's tenants can write as well: the operator reads it and comes to no harm."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import QUERY_LABEL
from millrace_api.validation.loading import read_query
from millrace_operator.kube.informer import Informer
from millrace_operator.kube.object_api import OWNED
from millrace_operator.lifecycle.autoscaling.scaling_inputs import LEARNED, new_scaler, restore, situation_of
from millrace_operator.lifecycle.observation_cache import ObservationCache
from millrace_operator.lifecycle.observed_query import ObservedQuery
from millrace_operator.lifecycle.step import next_step
from millrace_operator.resources.manifests import healthy_spec, objects
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.telemetry.watches import WatchHealth
from unit.resources.cases import SMALLEST

DEEP = "[" * 100_000
NUMBERS = ("1e999", "-1e999", "NaN", "0", "-1", str(2**200), '"x"', "null", "[]", "{}")


def observed_with(**data: dict[str, str]) -> ObservedQuery:
    """A query whose ConfigMaps have this data in place of the operator's, by the end of their names."""
    body = yaml.safe_load(SMALLEST)
    body["metadata"] |= {"namespace": "mallory", "uid": "u", "generation": 1, "resourceVersion": "1"}
    found = ObservedQuery(body)
    maps = {
        name: found.owner.manifest("v1", "ConfigMap", f"{found.owner.name}-{name}", {"data": each})
        for name, each in data.items()
    }
    for each in maps.values():
        each["metadata"] |= {"uid": "c", "resourceVersion": "1", "annotations": {}}
    return replace(found, objects={("ConfigMap", each["metadata"]["name"]): each for each in maps.values()})


def a_plan() -> Plan:
    return Plan.initial(read_query(yaml.safe_load(SMALLEST)).spec)


@pytest.mark.parametrize("text", ["", "{", DEEP, "plan: &a [*a, *a]", *NUMBERS], ids=lambda text: repr(text[:100]))
def test_a_forged_plan_is_read_as_none_and_replaced(text: str) -> None:
    observed = observed_with(plan={"plan.yaml": text, "applied.json": text})
    assert observed.plan is None
    assert observed.applied is None
    step = next_step(observed, read_query(yaml.safe_load(SMALLEST)), PodDefaults("image"), datetime.now(UTC))
    assert step.status.plan is not None
    assert step.status.plan.epoch == 1


@pytest.mark.parametrize("text", ["", "{", DEEP, *NUMBERS, '{"pod": "u"}', '{"pod": "u", "waits": [{"text": "x"}]}'])
def test_a_forged_report_of_waits_is_read_as_none(text: str) -> None:
    observed = observed_with(plan={"waits.json": text})
    pod = {"kind": "Pod", "metadata": {"name": observed.owner.driver_pod, "uid": "u", "labels": {}}}
    with_pod = replace(observed, objects=dict(observed.objects) | {("Pod", observed.owner.driver_pod): pod})
    assert (with_pod.driver_waits.waits, with_pod.driver_waits.executors) == ((), False)


TIMES = '{"time": 2, "used": 1}, {"time": 1, "used": 1}'
SERIES = '{"pod": "u", "series": [{"part": "heap", "limit": 1, "samples": [%s]}]}'


@pytest.mark.parametrize(
    "text", ["", "{", DEEP, *NUMBERS, '{"pod": "u"}', '{"pod": "u", "series": [{}]}', SERIES % TIMES]
)
def test_a_forged_report_of_memory_is_read_as_none(text: str) -> None:
    observed = observed_with(plan={"memory.json": text})
    pod = {"kind": "Pod", "metadata": {"name": observed.owner.driver_pod, "uid": "u", "labels": {}}}
    with_pod = replace(observed, objects=dict(observed.objects) | {("Pod", observed.owner.driver_pod): pod})
    assert with_pod.driver_memory.series == ()


@pytest.mark.parametrize("number", NUMBERS)
def test_forged_scaling_state_is_discarded_or_harmless(number: str) -> None:
    query = read_query(yaml.safe_load(SMALLEST))
    plan = a_plan()
    scaler = new_scaler(query.spec, plan, 8)
    saved = json.dumps(scaler.save(), default=sorted)
    document = json.loads(saved)
    forged = [f'{{"{name}": {number}}}' for name in document]
    forged += [number, DEEP, saved.replace("0", number.strip('"'))]
    for text in forged:
        observed = observed_with(scaling={LEARNED: text})
        scaler = new_scaler(query.spec, plan, 8)
        if not restore(scaler, observed):
            scaler = new_scaler(query.spec, plan, 8)
        decision = scaler.step(None, situation_of(observed, query.spec, plan, datetime.now(UTC)))
        assert not decision.changed


def test_a_forged_healthy_spec_with_the_nodes_network_is_none() -> None:
    document = yaml.safe_load(SMALLEST)
    document["metadata"]["namespace"] = "mallory"
    good = read_query(document)
    document["spec"]["driver"] = {"podTemplate": {"spec": {"hostNetwork": True}}}
    evil = read_query(document)
    observed = observed_with()
    for query, counts in ((good, True), (evil, False)):
        saved = healthy_spec(query, observed.owner)
        found = replace(observed, objects={("ConfigMap", saved["metadata"]["name"]): saved})
        assert (found.healthy is not None) is counts


def test_a_query_with_a_pod_of_endless_grace_can_be_deleted() -> None:
    observed = observed_with()
    metadata = observed.body["metadata"] | {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["millrace.io/drain"],
        "annotations": {"millrace.io/skip-drain": "true"},
    }
    pod = {
        "kind": "Pod",
        "metadata": {"name": observed.owner.driver_pod, "labels": {}},
        "spec": {"terminationGracePeriodSeconds": 2**62},
    }
    observed = replace(
        observed, body=observed.body | {"metadata": metadata}, objects={("Pod", observed.owner.driver_pod): pod}
    )
    step = next_step(observed, read_query(yaml.safe_load(SMALLEST)), PodDefaults("image"), datetime.now(UTC))
    assert [each.present for each in step.actions] == [False]  # type: ignore[union-attr]


def test_an_object_that_is_relabeled_again_and_again_is_kept_once() -> None:
    observations, kind = ObservationCache(), next(kind for kind in OWNED if kind.name == "ConfigMap")

    def note(type: str, body: dict[str, Any]) -> None:
        (observations.object_gone if type == "DELETED" else observations.object_seen)(body)

    bodies = [
        {
            "metadata": {
                "uid": "one",
                "name": "bait",
                "namespace": "mallory",
                "resourceVersion": str(number),
                "labels": {QUERY_LABEL: f"query-{number}"},
            }
        }
        for number in range(50)
    ]

    class Server:
        def request(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"items": [bodies[0]], "metadata": {"resourceVersion": "0"}}

        def lines(self, *_: Any) -> Any:
            for body in bodies[1:]:
                yield {"type": "MODIFIED", "object": body}
            informer.stop()
            yield {"type": "BOOKMARK", "object": bodies[-1]}

    informer = Informer(Server(), kind, None, note, WatchHealth(kind.plural), lambda: None)  # type: ignore[arg-type]
    informer._run()
    kept = [key for key, found in observations._records.items() if found.objects]
    assert [key.name for key in kept] == ["query-49"]
    assert len(observations._records) == 1


def test_the_objects_of_a_query_name_no_other_namespace() -> None:
    document = yaml.safe_load(SMALLEST)
    document["metadata"]["namespace"] = "mallory"
    document["spec"]["serviceAccountName"] = "bank:payments"
    template = {"metadata": {"namespace": "bank"}}
    document["spec"] |= {"driver": {"podTemplate": template}, "executors": {"podTemplate": template}}
    query, owner = read_query(document), observed_with().owner
    made = objects(query, owner, a_plan(), PodDefaults("image"), running=True, auth="")
    assert {each["metadata"]["namespace"] for each in made} == {"mallory"}
    (binding,) = [each for each in made if each["kind"] == "RoleBinding"]
    assert [each["namespace"] for each in binding["subjects"]] == ["mallory"]
    assert binding["roleRef"]["kind"] == "Role"
