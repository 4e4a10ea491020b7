"""What the operator keeps of a namespace: bounded in bytes, by object and in all, and nothing decided by half of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_operator.kube.bounded_json import decode_bounded
from millrace_operator.lifecycle.checked_queries import CheckedQueries
from millrace_operator.lifecycle.objects.object_sizes import LARGEST_OBJECT, LARGEST_QUERY, TOO_LARGE
from millrace_operator.lifecycle.observation_cache import ObservationCache
from millrace_operator.lifecycle.observed_query import ObservedQuery, QueryKey

Document = dict[str, Any]
KEY = QueryKey("shop", "totals")


def an_object(kind: str, name: str, **parts: Any) -> Document:
    metadata = {
        "name": name,
        "namespace": KEY.namespace,
        "uid": name,
        "resourceVersion": "1",
        "generation": 1,
        "labels": {"millrace.io/query": KEY.name, "team": "x" * 100},
    }
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata | parts.pop("metadata", {}), **parts}


def a_query(**parts: Any) -> Document:
    return an_object("StreamQuery", KEY.name, **{"spec": {"suspend": True}} | parts)


def read(document: Document) -> Document:
    """Return a document as it comes from the API server."""
    found: Document = decode_bounded(json.dumps(document).encode())
    return found


LARGE = {"text": "x" * LARGEST_QUERY}
WIDE: Document = {"lists": [[] for _ in range(400_000)]}


@pytest.mark.parametrize("spec", [LARGE, WIDE], ids=["text", "lists"])
@pytest.mark.parametrize("form", ["object", "event", "list"])
def test_of_a_query_that_is_too_large_only_what_identifies_it_is_read(spec: Document, form: str) -> None:
    query = a_query(spec=spec, status={"phase": "Running"}, metadata={"finalizers": ["millrace.io/drain"]})
    match form:
        case "object":
            found = read(query)
        case "event":
            found = read({"type": "MODIFIED", "object": query})["object"]
        case _:
            body = {name: part for name, part in query.items() if name not in ("apiVersion", "kind")}
            listed = read({"kind": "StreamQueryList", "metadata": {"continue": ""}, "items": [body, body]})
            assert listed["metadata"] == {"continue": ""}
            found = listed["items"][1]
    assert found[TOO_LARGE] > LARGEST_QUERY
    assert "spec" not in found
    assert found["metadata"] == query["metadata"]
    assert found["status"] == {"phase": "Running"}


def test_what_kubectl_and_the_api_server_add_does_not_count() -> None:
    added: Document = {"managedFields": [{"fieldsV1": {"x": "y" * 900_000}}]}
    added["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "z" * 200_000, "mine": "1"}
    found = read(a_query(metadata=added, spec={"text": "x" * 100_000}))
    assert TOO_LARGE not in found
    assert found["metadata"]["annotations"] == {"mine": "1"}
    assert found["spec"] == {"text": "x" * 100_000}


def test_of_managed_fields_those_that_the_operator_applied_are_read_unless_they_are_too_large() -> None:
    ours = {"manager": "millrace-operator", "operation": "Apply", "fieldsV1": {"f:spec": {}}}
    others = [ours | {"operation": "Update"}, ours | {"manager": "kubectl"}, {"manager": "x" * 900_000}]
    body = an_object("StatefulSet", "driver", metadata={"managedFields": [*others, ours]}, spec={"text": "x" * 100_000})
    for found in (read(body), read({"kind": "StatefulSetList", "metadata": {}, "items": [body]})["items"][0]):
        assert found["metadata"]["managedFields"] == [ours]
    body["metadata"]["managedFields"] = [ours | {"fieldsV1": {"f:spec": {"f:x": "y" * 20_000}}}]
    assert read(body)["metadata"]["managedFields"] == []


def test_labels_that_are_too_large_do_not_hide_whose_an_object_is() -> None:
    labels = {f"label-{number}": "x" * 60 for number in range(10_000)} | {"millrace.io/query": KEY.name}
    found = read(an_object("ConfigMap", "bait", metadata={"labels": labels}))
    assert found[TOO_LARGE] > LARGEST_OBJECT
    assert found["metadata"]["labels"] == {"millrace.io/query": KEY.name}


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")), lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), each, max_size=3)))  # fmt: skip
def test_what_is_large_but_no_object_of_kubernetes_is_read_as_it_is(value: Any) -> None:
    for document in ({"status": "success", "data": [value, "x" * 70_000]}, [value, "x" * 70_000], "x" * 70_000):
        assert decode_bounded(json.dumps(document).encode()) == document
    small = a_query(spec={"value": value, "text": "x" * 70_000})
    assert read(small) == small


def the_reason(observed: ObservedQuery | None) -> str:
    assert observed is not None
    assert isinstance(observed.unreadable, MillraceError)
    return str(observed.unreadable)


def test_a_query_that_is_not_kept_is_not_acted_upon_and_says_why() -> None:
    observations = ObservationCache()
    observations.query_seen(read(a_query(spec=LARGE)))
    assert "the query takes 128 KiB, of 128 KiB that one may take" in the_reason(observations.of(KEY))
    observations.query_seen(a_query())
    observations.object_seen(read(an_object("ConfigMap", "bait", data=LARGE | WIDE)))
    found = observations.of(KEY)
    assert found is not None
    assert found.unreadable is None  # it is none of the query's own
    observations.object_seen(read(an_object("ConfigMap", "totals-plan", data=LARGE | WIDE)))
    assert "ConfigMap totals-plan takes 1" in the_reason(observations.of(KEY))


def test_the_version_that_is_stored_is_known_and_no_other_one() -> None:
    observations = ObservationCache()
    for make, seen in ((a_query, observations.query_seen), (plan_of_query, observations.object_seen)):
        body = make(metadata={"resourceVersion": "7"})
        assert not observations.is_stored(body)
        seen(body)
        assert observations.is_stored(body)
        for other in ({"resourceVersion": "8"}, {"resourceVersion": "7", "uid": "another"}, {"resourceVersion": "x"}):
            assert not observations.is_stored(make(metadata=other))
    seen(plan_of_query(metadata={"resourceVersion": "no number"}))
    assert not observations.is_stored(plan_of_query(metadata={"resourceVersion": "no number"}))


def at(document: Document, version: int) -> Document:
    return document | {"metadata": document["metadata"] | {"resourceVersion": str(version)}}


def test_a_late_response_does_not_bring_back_what_was_deleted_after_it() -> None:
    observations = ObservationCache()
    query, service = a_query(), an_object("Service", "totals-driver")
    observations.query_seen(at(query, 3))
    observations.object_seen(at(service, 4))
    with observations.step(KEY):
        observations.object_gone(at(service, 7))
        observations.object_seen(at(service, 6))  # the response to a change before the deletion
        found = observations.of(KEY)
        assert found is not None
        assert ("Service", "totals-driver") not in found.objects
        observations.query_gone(at(query, 9))
        observations.query_seen(at(query, 8))
    assert observations.of(KEY) is None
    assert observations.kept_bytes() == {}


def test_what_may_be_read_again_comes_back_in_the_version_that_it_had() -> None:
    observations = ObservationCache()
    observations.query_seen(at(a_query(), 3))
    with observations.step(KEY):
        observations.query_gone(at(a_query(), 3))
        observations.query_seen(at(a_query(), 3))
    assert observations.of(KEY) is not None


def test_an_object_of_which_only_the_name_is_kept_is_not_known() -> None:
    observations = ObservationCache(namespace_bytes=1_000)
    observations.query_seen(a_query())
    body = plan_of_query(data={"text": "x" * 2_000})
    observations.object_seen(body)
    assert the_reason(observations.of(KEY))
    assert not observations.is_stored(body)


def plan_of_query(**parts: Any) -> Document:
    return an_object("ConfigMap", "totals-plan", **parts)


def test_a_namespace_that_is_full_keeps_the_names_and_takes_a_query_up_again_when_there_is_room() -> None:
    observations = ObservationCache(namespace_bytes=100_000)
    text = "x" * 40_000
    parts = [an_object("ConfigMap", f"totals-{name}", data={"text": text}) for name in ("plan", "query", "healthy")]
    observations.query_seen(a_query())
    other = an_object("ConfigMap", "other", metadata={"labels": {"millrace.io/query": "other"}}, data={"text": text})
    for each in (other, *parts[:2]):
        observations.object_seen(each)
    assert "has more queries and objects than the 0.0953674 MiB that" in the_reason(observations.of(KEY))
    assert observations.kept_bytes()["shop"] < 60_000
    observations.object_seen(parts[2])
    found = observations.of(KEY)
    assert found is not None
    assert set(found.objects) == {("ConfigMap", f"totals-{name}") for name in ("plan", "query", "healthy")}
    assert all("data" not in each and each["metadata"]["uid"] for each in found.objects.values())
    assert found.owner.uid == "totals"
    assert observations.has_room(KEY)
    observations.read_again(KEY, a_query(), parts)
    assert the_reason(observations.of(KEY))
    observations.object_gone(other)
    observations.read_again(KEY, a_query(), parts[:2])
    found = observations.of(KEY)
    assert found is not None
    assert found.unreadable is None
    assert found.objects["ConfigMap", "totals-plan"] == parts[0]
    for each in parts:
        observations.object_gone(each)
    observations.query_gone(a_query())
    assert observations.kept_bytes() == {}


@given(st.lists(st.tuples(st.sampled_from(["seen", "gone"]), st.integers(0, 3), st.integers(0, 30_000), st.integers(1, 5)), max_size=40))  # fmt: skip
def test_the_bytes_of_a_namespace_are_those_of_what_is_kept(steps: list[tuple[str, int, int, int]]) -> None:
    observations = ObservationCache(namespace_bytes=50_000)
    for what, number, size, version in steps:
        label = {"labels": {"millrace.io/query": f"q{number % 2}"}, "resourceVersion": str(version)}
        body = an_object("ConfigMap", f"c{number}", metadata=label, data={"text": "x" * size})
        if what == "seen":
            observations.object_seen(body)
        else:
            observations.object_gone(body)
        kept = [each for found in observations._records.values() for each in found.objects.values()]
        assert observations.kept_bytes().get("shop", 0) == sum(map(len, kept))
        assert sum(map(len, kept)) <= 50_000 + 4 * 400


def test_results_of_checks_are_dropped_where_most_are_and_used_ones_last() -> None:
    checked = CheckedQueries(most=10_000)
    error = MillraceError()

    def observed(namespace: str, name: str) -> tuple[QueryKey, ObservedQuery]:
        body = {"metadata": {"namespace": namespace, "name": name, "uid": name, "generation": 1}}
        return QueryKey(namespace, name), ObservedQuery(body, size=3_000)

    bank = observed("bank", "b")
    mallory = [observed("mallory", f"m{number}") for number in range(4)]
    checked.put(*bank, error)
    for each in mallory[:2]:
        checked.put(*each, error)
    assert checked.get(*mallory[0]) is error
    checked.put(*mallory[2], error)
    assert [checked.get(*each) is error for each in (bank, *mallory[:3])] == [True, True, False, True]
    checked.forget(mallory[0][0])
    checked.put(*mallory[3], error)
    assert [checked.get(*each) is error for each in (bank, *mallory)] == [True, False, False, True, True]
