"""Objects that a tenant makes so that the operator keeps more of them than their share."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import QUERY_LABEL
from millrace_operator.kube.bounded_json import decode_bounded
from millrace_operator.kube.informer import identity
from millrace_operator.lifecycle.chains.chains import MOST_LINKS, Chains
from millrace_operator.lifecycle.checked_queries import MOST_BYTES, CheckedQueries
from millrace_operator.lifecycle.events import EVENTS_OF_NAMESPACE, SECONDS_EACH_OF_NAMESPACE
from millrace_operator.lifecycle.observation_cache import MOST_BYTES_OF_LIMITS, ObservationCache
from millrace_operator.lifecycle.observed_query import ObservedQuery, QueryKey
from millrace_operator.lifecycle.reconcile import MOST_PROBLEMS, Reconciler
from millrace_operator.lifecycle.token_buckets import TokenBuckets
from millrace_operator.lifecycle.workqueue import WorkQueue
from millrace_operator.resources.pod_defaults import PodDefaults
from unit.resources.cases import SMALLEST

Document = dict[str, Any]

KAFKA = {"bootstrapServers": "kafka:9092"}
KEY = QueryKey("mallory", "q")


def read(document: Document) -> Document:
    """Return an object as it comes from the API server."""
    text = json.dumps({"type": "ADDED", "object": document}, separators=(",", ":"))
    found: Document = decode_bounded(text.encode())["object"]
    return found


def an_object(kind: str, name: str, labels: Document | None = None, **parts: Any) -> Document:
    metadata = {"name": name, "namespace": KEY.namespace, "uid": name, "resourceVersion": "1", "generation": 1}
    metadata["labels"] = {QUERY_LABEL: KEY.name} | (labels or {})
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata | parts.pop("metadata", {}), **parts}


def a_query(name: str = KEY.name, **spec: Any) -> Document:
    document: Document = yaml.safe_load(SMALLEST)
    document["spec"] |= spec
    return an_object("StreamQuery", name, spec=document["spec"])


def template(**spec: Any) -> Document:
    return {"podTemplate": {"spec": spec}}


class Nothing:
    """An API that is never asked."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def a_reconciler() -> Reconciler:
    return Reconciler(Nothing(), Nothing(), PodDefaults("image"))  # type: ignore[arg-type]


OUR_PREFIX = {f"millrace.io/{number:0200}": "x" * 60 for number in range(200)}


@pytest.mark.parametrize("data", ["x" * 400_000, ""], ids=["too large", "not too large"])
def test_labels_with_the_operators_prefix_hide_no_object_and_are_not_kept(data: str) -> None:
    """Without the query's label, the watch of all objects of a kind would fail again and again, for all tenants."""
    body = read(an_object("ConfigMap", "bait", OUR_PREFIX, data={"x": data}))
    assert body["metadata"]["labels"][QUERY_LABEL] == KEY.name
    assert identity(body)["metadata"]["labels"] == {QUERY_LABEL: KEY.name}
    observations = ObservationCache()
    assert observations.object_seen(body) == KEY


LONG_LISTS: dict[str, Document] = {
    "labels": {"labels": OUR_PREFIX | {QUERY_LABEL: KEY.name}},
    "labels that others recommend": {
        "labels": {f"app.kubernetes.io/{number}": "x" for number in range(3000)} | {QUERY_LABEL: KEY.name}
    },
    "annotations": {"annotations": {f"millrace.io/{number}": "x" * 100 for number in range(1000)}},
    "finalizers": {"finalizers": [f"mallory.example/{number}" for number in range(3000)]},
    "owners": {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": f"pod-{number}", "uid": str(number)} for number in range(500)
        ]
    },
}


@pytest.mark.parametrize("metadata", LONG_LISTS.values(), ids=LONG_LISTS)
@pytest.mark.parametrize("kind", ["ConfigMap", "StreamQuery", "Pod"])
def test_what_has_no_room_takes_a_few_hundred_bytes(kind: str, metadata: Document) -> None:
    observations = ObservationCache(namespace_bytes=1)
    for number in range(10):
        body = read(an_object(kind, f"bait-{number}", metadata=metadata))
        (observations.query_seen if kind == "StreamQuery" else observations.object_seen)(body)
    assert observations.kept_bytes()[KEY.namespace] <= 10 * 800


MANY_VALUES: dict[str, Document] = {
    "empty objects": {"driver": template(tolerations=[{}] * 40_000)},
    "empty lists": {"driver": template(x=[[]] * 40_000)},
    "nulls": {"driver": template(tolerations=[None] * 25_000)},
    "numbers": {"driver": template(containers=list(range(20_000)))},
    "fractions": {"driver": template(containers=[0.5] * 30_000)},
    "short texts": {"driver": template(containers=[{"name": "driver", "args": ["ab"] * 20_000}])},
    "settings": {"sparkConf": {f"a{number}": "" for number in range(9000)}},
    "sources": {"sources": {f"a{number}": 1 for number in range(9000)}},
    "unknown fields": {f"a{number}": 1 for number in range(9000)},
}


@pytest.mark.parametrize("spec", MANY_VALUES.values(), ids=MANY_VALUES)
def test_a_query_of_many_values_is_not_decoded_and_says_why(spec: Document) -> None:
    """Each takes 3 bytes of JSON and 70 of memory; of 256 such queries, the results of checks took gigabytes."""
    query = a_query(**spec)
    assert len(json.dumps(query, separators=(",", ":"))) < 128 << 10
    body = read(query)
    assert "spec" not in body
    observations = ObservationCache()
    found = observations.of(observations.query_seen(body))
    assert found is not None
    assert "values, of 5000 that one may have" in str(found.unreadable)


def test_texts_with_commas_and_brackets_are_few_values() -> None:
    sql = "SELECT cell FROM trips WHERE cell IN (" + ",".join(["'[{'"] * 10_000) + ")"
    assert read(a_query(query={"sql": sql}))["spec"]["query"]["sql"] == sql


@pytest.mark.parametrize("data", [{f"a{number}": "" for number in range(20_000)}], ids=["entries"])
def test_an_object_of_many_values_is_not_decoded_and_only_counts_where_it_is_the_querys_own(data: Document) -> None:
    observations = ObservationCache()
    observations.query_seen(a_query())
    for name, reason in (("bait", "None"), ("q-plan", "values, of 10000 that it may have")):
        observations.object_seen(read(an_object("ConfigMap", name, data=data)))
        found = observations.of(KEY)
        assert found is not None
        assert reason in str(found.unreadable)


def test_short_values_count_as_what_they_take() -> None:
    observations = ObservationCache(namespace_bytes=1 << 20)
    observations.query_seen(a_query())
    for number in range(100):
        observations.object_seen(read(an_object("Pod", f"p-{number}", spec={"tolerations": [{}] * 4900})))
    assert observations.kept_bytes()[KEY.namespace] < (1 << 20) + 100 * 500
    found = observations.of(KEY)
    assert found is not None
    assert "has more queries and objects" in str(found.unreadable)


PROBLEMS: dict[str, Document] = {
    "containers": {"driver": template(containers=[1] * 4000)},
    "tolerations": {"driver": template(tolerations=[1] * 4000)},
    "labels": {"driver": {"podTemplate": {"metadata": {"labels": {f"millrace.io/{n}": "" for n in range(4000)}}}}},
    "settings": {"sparkConf": {f"spark.ssl.{number}": "" for number in range(4000)}},
    "sources": {"sources": {f"a{number}": {} for number in range(4000)}},
    "outputs": {"additionalOutputs": {f"a{number}": {"sink": {}} for number in range(1500)}},
    "fields": {f"a{number}": 1 for number in range(4000)},
}


@pytest.mark.parametrize("spec", PROBLEMS.values(), ids=PROBLEMS)
def test_few_of_many_problems_are_kept(spec: Document) -> None:
    reconciler = a_reconciler()
    body = read(a_query(**spec))
    key = reconciler.observations.query_seen(body)
    observed = reconciler.observations.of(key)
    assert observed is not None
    found = reconciler.query_of(key, observed)
    assert isinstance(found, MillraceError)
    assert 0 < len(found.problems) <= MOST_PROBLEMS


def test_results_of_checks_of_many_small_queries_are_bounded() -> None:
    checked = CheckedQueries()
    for number in range(20_000):
        body = {"metadata": {"namespace": "mallory", "name": f"q{number}", "uid": "u", "generation": 1}}
        checked.put(QueryKey("mallory", f"q{number}"), ObservedQuery(body, size=300), MillraceError())
    kept = len(checked._entries["mallory"])
    assert kept * 10_400 <= 6 * MOST_BYTES


@pytest.mark.parametrize("kind", ["ResourceQuota", "LimitRange"])
@pytest.mark.parametrize("part", ["annotations", "labels", "spec"])
def test_what_limits_a_namespace_is_bounded(kind: str, part: str) -> None:
    observations = ObservationCache()
    many = {f"requests.example.com/{number}": "1" for number in range(1000)}
    for number in range(500):
        body = an_object(kind, f"limit-{number}", metadata={} if part == "spec" else {part: many})
        spec = {"hard": many} if part == "spec" else {}
        observations.limit_seen(body | {"spec": spec})
    kept = observations._limits["mallory"]
    assert sum(map(len, kept.values())) <= MOST_BYTES_OF_LIMITS
    observations.query_seen(a_query())
    found = observations.of(KEY)
    assert found is not None
    assert all(not each["metadata"].get("annotations") for each in found.limits)
    for number in range(500):
        observations.limit_gone(an_object(kind, f"limit-{number}"))
    assert not observations._limits


def writers(number: int, topics: int) -> Iterator[Document]:
    for writer in range(number):
        outputs = {f"o{n}": {"sink": {"kafka": KAFKA | {"topic": f"t{writer}-{n}"}}} for n in range(topics)}
        yield a_query(f"writer-{writer}", additionalOutputs=outputs)


def reader(name: str, sources: int, **kafka: str) -> Document:
    return a_query(name, sources={f"s{n}": {"kafka": KAFKA | kafka, "schema": "cell STRING"} for n in range(sources)})


def stars() -> Iterator[Document]:
    """Each of some sources reads all results of each writer."""
    yield from writers(5, 255)
    yield reader("reader", 255, topicPattern=".*")


def crowd() -> Iterator[Document]:
    """All queries read the results of all others."""
    for number in range(100):
        body = reader(f"q-{number}", 16, topic="all")
        yield body | {"spec": body["spec"] | {"sink": {"kafka": KAFKA | {"topic": "all"}}}}


def brokers() -> Iterator[Document]:
    """Each source has brokers of its own."""
    for number in range(20):
        sources = {
            f"s{n}": {
                "kafka": {"topic": "a", "bootstrapServers": ",".join(f"h{number}-{n}-{m}:1" for m in range(64))},
                "schema": "cell STRING",
            }
            for n in range(100)
        }
        yield a_query(f"q-{number}", sources=sources)


@pytest.mark.parametrize("queries", [stars, crowd, brokers], ids=lambda each: each.__name__)
def test_chains_take_little_memory(queries: Callable[[], Iterator[Document]]) -> None:
    chains, documents = Chains(), list(queries())
    tracemalloc.start()
    try:
        for each in documents:
            chains.seen(each)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 15 << 20
    members = chains._namespaces["mallory"]
    links = sum(len(each) for member in members._members.values() for each in member.links.values())
    assert links == members._links <= MOST_LINKS
    for each in documents:
        chains.gone(each)
    assert not chains._namespaces


def test_nothing_is_kept_of_names_that_come_and_go() -> None:
    reconciler = a_reconciler()
    for number in range(300):
        query = a_query(f"q-{number}")
        pod = an_object("Pod", f"q-{number}-exec-1", metadata={"labels": {QUERY_LABEL: f"q-{number}"}})
        key = reconciler.observations.query_seen(query)
        reconciler.observations.object_seen(pod)
        reconciler._events.take(key.namespace)
        reconciler.queue.add(key)
        reconciler.queue.retry(key)
        reconciler.observations.query_gone(query)
        reconciler.observations.object_gone(pod)
    while reconciler.queue._waiting or reconciler.queue._due:
        taken = reconciler.queue.get()
        assert taken is not None
        reconciler.reconcile(taken)
        reconciler.queue.forget(taken)
        reconciler.queue.done(taken)
    holders = [reconciler.observations, reconciler.queue, reconciler]
    kept = {
        f"{type(holder).__name__}.{name}": len(value)
        for holder in holders
        for name, value in vars(holder).items()
        if isinstance(value, dict | set)
    }
    assert kept
    assert not any(kept.values()), kept
    assert not reconciler.queue._ready._lanes


def test_a_name_that_is_made_again_and_again_has_one_place_in_every_queue() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=lambda: 0.0)
    for number in range(10_000):
        queue.add("q")
        queue.add_later("q", 1000.0 + number)
    assert (len(queue), len(queue._later)) == (1, 1)


def test_events_of_a_namespace_are_bounded_whatever_the_number_of_its_queries() -> None:
    events = TokenBuckets(EVENTS_OF_NAMESPACE, SECONDS_EACH_OF_NAMESPACE, clock=lambda: 0.0)
    assert sum(events.take("mallory") for _ in range(10_000)) == 500
