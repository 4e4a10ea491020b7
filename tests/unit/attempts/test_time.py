"""Values of a tenant that try to hold up a check, a step or the interpreter: each would take minutes to years."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import yaml

from millrace_api.errors import MillraceError
from millrace_api.validation.loading import read_query
from millrace_operator.lifecycle import reconcile
from millrace_operator.lifecycle.autoscaling.quota_room import room_for
from millrace_operator.lifecycle.chains.chains import Chains
from millrace_operator.lifecycle.observation_cache import ObservationCache
from millrace_operator.lifecycle.observed_query import ObservedQuery, QueryKey
from millrace_operator.lifecycle.reconcile import Reconciler
from millrace_operator.lifecycle.token_buckets import TokenBuckets
from millrace_operator.resources.footprints import pods_of, total
from millrace_operator.resources.manifests import healthy_spec
from millrace_operator.resources.patterns import (
    absolute_path,
    checkpoint_folder,
    image_repository,
    server_address,
    url_address,
)
from millrace_operator.resources.pod_defaults import PodDefaults
from unit.resources.cases import SMALLEST

Document = dict[str, Any]

KAFKA = {"bootstrapServers": "kafka:9092"}


def query(**spec: Any) -> Document:
    document: Document = yaml.safe_load(SMALLEST)
    document["metadata"] |= {"namespace": "mallory", "uid": "u", "generation": 1, "resourceVersion": "1"}
    document["spec"] |= spec
    return document


def selecting(sql: str, **spec: Any) -> Document:
    return query(query={"sql": sql}, emit="OnUpdate", **spec)


def of_columns(schema: str) -> Document:
    return query(sources={"trips": {"kafka": KAFKA | {"topic": "t"}, "schema": f"cell STRING, fare DOUBLE, {schema}"}})


def nested(levels: int, wrap: Callable[[str], str], inner: str = "fare") -> str:
    for _ in range(levels):
        inner = wrap(inner)
    return inner


def levels(number: int, item: str, read: str = "{before}") -> str:
    """A chain of CTEs, each of which reads the one before."""
    parts = [f"c{i} AS (SELECT {item} FROM {read.format(before=f'c{i - 1}')})" for i in range(1, number)]
    return f"WITH c0 AS (SELECT cell, fare FROM trips), {', '.join(parts)} SELECT * FROM c{number - 1}"


COSTLY: dict[str, Document] = {
    "a column twice on each level": selecting(levels(95, "cell, fare + fare AS fare")),
    "a column of two tables twice on each level": selecting(
        levels(48, "a.cell AS cell, a.fare + b.fare * a.fare - b.fare AS fare", "{before} a JOIN {before} b USING (cell)")
    ),
    "unions of unions": selecting(levels(45, "cell, fare", "(SELECT * FROM {before} UNION ALL SELECT * FROM {before})")),
    "conditions within conditions": selecting(
        f"SELECT {nested(90, lambda x: f'CASE WHEN cell = 1 THEN {x} ELSE 1 END')} AS x FROM trips"
    ),
    "functions of functions": selecting(f"SELECT {nested(60, lambda x: f'transform(array({x}), y -> y)')} FROM trips"),
    "subqueries that exist": selecting(
        nested(60, lambda x: f"SELECT cell FROM trips WHERE EXISTS ({x})", "SELECT cell FROM trips")
    ),
    "brackets around joins": selecting(f"SELECT cell FROM {nested(60, lambda x: f'({x} JOIN trips)', 'trips')}"),
    "brackets around SELECTs": selecting(nested(60, lambda x: f"({x})", "SELECT cell FROM trips")),
    "a cube": query(query={"sql": f"SELECT cell, count(*) AS n FROM trips GROUP BY CUBE({', '.join(['cell'] * 60)})"}),
    "a pivot": selecting("SELECT * FROM trips PIVOT (sum(fare) FOR cell IN ('1', '2', '3'))"),
    "casts": selecting(f"SELECT fare{'::INT' * 390} AS x FROM trips"),
    "comments in comments": selecting("SELECT cell " + "/*" * 40_000 + " FROM trips"),
    "lines of comments": selecting("SELECT cell " + "-- a\n" * 20_000 + " FROM trips"),
    "hints": selecting(f"SELECT /*+ {','.join(['BROADCAST(trips)'] * 1000)} */ cell FROM trips"),
    "quotes": selecting(f"SELECT '{chr(39) * 60_000}' AS x FROM trips"),
    "a long name": selecting(f"SELECT `{'x' * 120_000}` FROM trips"),
    "long names": selecting(f"SELECT {', '.join(f'`{chr(120) * 4000}{i}`' for i in range(30))} FROM trips"),
    "a number of 100,000 digits": selecting(f"SELECT {'9' * 100_000} AS x FROM trips"),
    "numbers beyond numbers": selecting("SELECT 1e400, 1E+999999999, 1e-400 AS x FROM trips"),
    "precision of 5,000 digits": of_columns(f"d DECIMAL({'9' * 5000}, 2)"),
    "types within types": of_columns(f"a {nested(60, lambda x: f'STRUCT<a: {x}, b: INT>', 'INT')}"),
    "wide types": of_columns(", ".join(f"a{i} STRUCT<b: INT, c: MAP<STRING, INT>>" for i in range(300))),
    "an interval of 5,000 digits": query(trigger={"interval": f"{'9' * 5000}s"}),
    "memory of 5,000 digits": query(driver={"memory": f"{'9' * 5000}g"}),
    "a login of colons": query(sparkConf={"spark.a": "://" + ":" * 100_000}),
    "logins of logins": query(sparkConf={"spark.a": "://a" * 25_000}),
    "names of secrets": query(sparkConf={"spark.a": "secret" * 20_000}),
    "a secret of dashes": query(sparkConf={"spark.a": "secret" + "-" * 100_000}),
    "quotes in options of Java": query(sparkConf={"spark.driver.extraJavaOptions": "\\\"'" * 30_000}),
    "a broker of colons": query(
        sources={"trips": {"kafka": {"bootstrapServers": "://" * 30_000, "topic": "t"}, "schema": "cell STRING"}}
    ),
    "a pattern that repeats repetitions": query(
        sources={"trips": {"kafka": KAFKA | {"topicPattern": nested(6, lambda x: f"({x}){{0,99}}", "a")}, "schema": "cell STRING"}}
    ),
    "an avro schema of itself twice": query(
        sources={"trips": {"kafka": KAFKA | {"topic": "t"}, "avro": {"schema": json.dumps(
            {"type": "record", "name": "r", "fields": [{"name": n, "type": ["null", "r"]} for n in "ab"]})}}}
    ),
    "an avro schema of deep lists": query(
        sources={"trips": {"kafka": KAFKA | {"topic": "t"}, "avro": {"schema": '{"type":"array","items":' * 3000 + '"int"' + "}" * 3000}}}
    ),
    "a list of many names": query(sources={f"s{i}": {"kafka": KAFKA | {"topic": f"t{i}"}, "schema": "cell STRING"} for i in range(200)}),
}  # fmt: skip


class Nothing:
    """An API that is never asked."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY)
def test_a_check_ends_and_says_something(body: Document) -> None:
    reconciler = Reconciler(Nothing(), Nothing(), PodDefaults("image"))  # type: ignore[arg-type]
    checked = reconciler.query_of(QueryKey("mallory", "q"), ObservedQuery(body))
    assert not isinstance(checked, Exception) or isinstance(checked, MillraceError)


def test_what_a_library_does_not_expect_is_a_problem_of_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(_: object) -> None:
        raise ValueError("no more")

    monkeypatch.setattr(reconcile, "read_query", give_up)
    reconciler = Reconciler(Nothing(), Nothing(), PodDefaults("image"))  # type: ignore[arg-type]
    checked = reconciler.query_of(QueryKey("mallory", "q"), ObservedQuery(query()))
    assert "the query cannot be checked" in str(checked)


AMOUNTS = ("NaN", "sNaN", "Infinity", "1e999999", "1e1000000", "1e-1000000", "9" * 100_000, "1E5000", "-1")


@pytest.mark.parametrize("amount", AMOUNTS, ids=lambda text: text[:12])
@pytest.mark.parametrize("part", ["cpu", "memory"])
def test_amounts_beyond_those_of_kubernetes_are_refused_before_they_are_calculated_with(amount: str, part: str) -> None:
    container = {"name": "executor", "resources": {"limits": {part: amount}, "requests": {part: amount}}}
    document = query(executors={"max": 100, "podTemplate": {"spec": {"containers": [container]}}})
    try:
        size = total(pods_of(read_query(document)))
    except MillraceError:
        return
    assert max(size.cores, size.memory) < 1 << 80


LONG = {
    "dashes": "a" + "-a" * 60_000 + "!",
    "underscores": "a" + "__a" * 40_000 + "!",
    "dots": "a" + ".a" * 60_000 + "!",
    "slashes": "a" + "/a" * 60_000 + "!",
    "up": "/.." * 40_000,
    "digest": "a@a" + "+a" * 60_000 + ":0",
    "host": "https://" + "a-" * 60_000,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_names_are_compared_in_time(text: str) -> None:
    for canonical in (image_repository, server_address, absolute_path, checkpoint_folder, url_address):
        canonical(text)


def limit_range(number: int) -> Document:
    item = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "1k"}}
    return {"kind": "LimitRange", "metadata": {"name": f"l{number}"}, "spec": {"limits": [item] * 4}}


def quota(number: int) -> Document:
    hard = {f"requests.example.com/{entry}": "9" for entry in range(1000)}
    return {"kind": "ResourceQuota", "metadata": {"name": f"q{number}"}, "status": {"hard": hard, "used": hard}}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("limits", [[limit_range(n) for n in range(500)], [quota(n) for n in range(4)]], ids=["ranges", "quotas"])  # fmt: skip
def test_the_room_of_a_namespace_with_many_limits_is_found_in_time(limits: list[Document]) -> None:
    """Each container was compared with all defaults for each limit: 200 LimitRanges took seconds, 500 a minute."""
    requests = {f"example.com/{entry}": "1" for entry in range(1000)}
    containers = [{"name": f"c{n}", "resources": {"limits": {"cpu": "1"}}} for n in range(100)]
    containers[0]["resources"] = {"requests": requests, "limits": {"cpu": "1"}}
    room = room_for({"spec": {"containers": containers}}, limits)
    assert room is None or room.pods == 0


@pytest.mark.timeout(60)
def test_a_forged_healthy_spec_of_many_values_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    document = query(driver={"podTemplate": {"spec": {"tolerations": [{"key": "a"}] * 3000}}})
    owner = ObservedQuery(document).owner
    for most, counts in ((5000, False), (50_000, True)):
        monkeypatch.setattr("millrace_operator.lifecycle.objects.object_sizes.MOST_VALUES_OF_QUERY", most)
        saved = healthy_spec(read_query(document), owner)
        found = ObservedQuery(document, {("ConfigMap", saved["metadata"]["name"]): saved})
        assert (found.healthy is not None) is counts


@pytest.mark.timeout(60)
def test_a_pattern_that_matches_nothing_is_compared_with_a_bounded_number_of_results() -> None:
    chains = Chains()
    for writer in range(40):
        outputs = {f"o{n}": {"sink": {"kafka": KAFKA | {"topic": f"t{writer}-{n}"}}} for n in range(255)}
        chains.seen(_named(query(additionalOutputs=outputs), f"writer-{writer}"))
    patterns = {
        f"s{n}": {"kafka": KAFKA | {"topicPattern": f".*{n}[a-z]{{9}}x"}, "schema": "a STRING"} for n in range(200)
    }
    for reader in range(20):
        chains.seen(_named(query(sources=patterns), f"reader-{reader}"))
    index = chains._namespaces["mallory"]._index
    assert (len(index._written), len(index._patterns)) == (1000, 64)


def _named(document: Document, name: str) -> Document:
    return document | {"metadata": document["metadata"] | {"name": name, "uid": name}}


def test_buckets_that_are_not_full_are_not_looked_through_at_each_token() -> None:
    buckets, looked = TokenBuckets(25, 60.0, clock=lambda: 0.0), []
    before = buckets._buckets
    for number in range(20_000):
        buckets.take(number)
        if buckets._buckets is not before:
            looked.append(number)
            before = buckets._buckets
    assert all(later >= 2 * earlier for earlier, later in pairwise(looked))


class Counting(Nothing):
    """An API for objects that counts its requests."""

    def __init__(self) -> None:
        self.asked = 0

    def objects_of(self, _: object) -> list[Document]:
        self.asked += 1
        return []

    def read(self, key: QueryKey) -> Document:
        return query(query={"sql": "x" * 200_000}) | {"metadata": query()["metadata"] | {"name": key.name}}


def test_queries_without_room_are_not_read_again_and_again_by_the_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads all lists of its objects; a namespace could have kept the operator at that all the time."""
    api = Counting()
    reconciler = Reconciler(api, api, PodDefaults("image"), namespace_bytes=100_000)  # type: ignore[arg-type]
    monkeypatch.setattr(ObservationCache, "has_room", lambda *_: True)
    began = time.monotonic()
    for number in range(500):
        body = _named(query(query={"sql": "x" * 200_000}), f"q{number}")
        key = reconciler.observations.query_seen(body)
        reconciler._observed(key, reconciler._clock())
    assert api.asked <= 20 + 1 + (time.monotonic() - began)
