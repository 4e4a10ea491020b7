"""Connections: a query follows what it refers to, goes on without it, and goes back to what it last was healthy with."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import yaml

from millrace_api import errors
from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec
from millrace_api.validation.loading import read_query
from millrace_operator.lifecycle.chains.chain_updates import ChainUpdates
from millrace_operator.lifecycle.chains.chains import Chains
from millrace_operator.lifecycle.checked_queries import CheckedQueries
from millrace_operator.lifecycle.connections.referred_connections import MOST_BYTES_OF_CONNECTIONS
from millrace_operator.lifecycle.objects.kept_object import KeptObject
from millrace_operator.lifecycle.observation_cache import ObservationCache
from millrace_operator.lifecycle.refusals import LastRefusal, ObjectRefusedError
from millrace_operator.resources.permissions import Permissions
from millrace_operator.resources.spec_changes import REVISION, revision
from millrace_operator.resources.tenancy_policy import TenancyPolicy

from .cluster import KEY, SET, copied
from .connected import LOGIN, VERSIONS, connection, query, runs, shown


def mounted(cluster):
    """The document that the driver reads."""
    return yaml.safe_load(cluster.configuration()["data"]["query.yaml"])


def ready(cluster):
    found = cluster.condition("Ready")
    return found.status, found.reason, found.message


@pytest.fixture
def healthy(cluster):
    """A query with a Connection, whose driver has been ready for long enough."""
    shown(cluster, connection(sasl=LOGIN))
    cluster.put(query())
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    assert ("ConfigMap", "trips-by-cell-healthy") in cluster.objects
    return cluster


def test_a_query_waits_for_its_connection_and_starts_when_there_is_one(cluster):
    cluster.put(query())
    cluster.settle()
    message = (
        'spec.sources.trips.kafka.connection: there is no Connection "trips"; create it, as in docs/connections.md, or '
        "write bootstrapServers for brokers without a login"
    )
    assert ready(cluster)[:2] == ("False", "ConnectionNotFound")
    assert ready(cluster)[2].startswith(message)
    assert cluster.condition("Progressing").reason == "ConnectionNotFound"
    assert SET not in cluster.objects
    status = shown(cluster, connection(generation=3))
    assert cluster.pod is not None
    (seen,) = status.connections
    assert (seen.name, seen.generation, seen.brokers) == ("trips", 3, "kafka:9093")


def test_the_nearest_name_is_in_the_condition(cluster):
    cluster.reconciler.observations.connection_seen(connection(name="tripz"))
    cluster.put(query())
    cluster.settle()
    assert 'there is no Connection "trips"; did you mean "tripz"?' in ready(cluster)[2]


def test_the_driver_has_what_the_connection_leads_to_and_no_name(healthy):
    document = mounted(healthy)
    kafka = document["spec"]["sources"]["trips"]["kafka"]
    assert (kafka["bootstrapServers"], kafka["topic"], "connection" in kafka) == ("kafka:9093", "trips", False)
    assert kafka["sasl"]["username"] == {"file": "/etc/millrace/secrets/kafka-login/user"}
    volumes = healthy.objects[SET]["spec"]["template"]["spec"]["volumes"]
    assert "kafka-login" in [each["secret"]["secretName"] for each in volumes if "secret" in each]


def test_a_changed_connection_replaces_the_driver(healthy):
    before = runs(healthy)
    healthy.control, control = (lambda: None), healthy.control  # the driver takes its time
    shown(healthy, connection("kafka:9094", generation=2, sasl=LOGIN))
    assert healthy.condition("Progressing").reason == "Replacing"
    assert healthy.condition("Progressing").message.startswith("Connection trips changed: the driver ends")
    healthy.control = control
    healthy.settle()
    assert runs(healthy) != before
    assert mounted(healthy)["spec"]["sink"]["kafka"]["bootstrapServers"] == "kafka:9094"
    assert [each.generation for each in healthy.status.connections] == [2]


def test_what_is_no_change_of_the_spec_of_a_connection_queues_nothing_and_resets_no_pause(healthy):
    observations = healthy.reconciler.observations
    before, chains = observations.of(KEY), []
    observations.connections.on_brokers = chains.append
    body = connection(sasl=LOGIN)
    body["metadata"]["annotations"] = {"touched": "again"}
    assert observations.connection_seen(body) == []
    assert observations.of(KEY).version == before.version
    refusal = LastRefusal()
    refusal.add(before, ObjectRefusedError("no"), healthy.time)
    assert refusal.of(observations.of(KEY)) is not None
    assert observations.connection_gone(connection(uid="an earlier one")) == []
    assert chains == []
    assert observations.connection_seen(connection(generation=2)) == [KEY]
    assert chains == []
    assert observations.connection_seen(connection("kafka:9094", generation=3)) == [KEY]
    assert observations.connection_gone(connection()) == [KEY]
    assert chains == [KEY.namespace] * 2
    assert observations.of(KEY).version != before.version


def test_labels_of_a_connection_and_another_name_for_the_same_replace_nothing(healthy):
    pod = healthy.pod["metadata"]["uid"]
    body = connection(sasl=LOGIN)
    body["metadata"]["labels"] = {"team": "a"}
    shown(healthy, body)
    healthy.reconciler.observations.connection_seen(connection(name="same", sasl=LOGIN))
    healthy.put(query("same"))
    healthy.settle()
    assert healthy.pod["metadata"]["uid"] == pod
    assert [each.name for each in healthy.status.connections] == ["same"]


def test_a_connection_with_which_a_driver_is_not_healthy_is_rolled_back_to_what_it_was(healthy):
    before = runs(healthy)
    shown(healthy, connection("wrong:9093", generation=2, sasl=LOGIN))
    healthy.driver_starts(serves=False)
    healthy.pass_time(minutes=10)
    assert healthy.status.rejected is not None
    assert runs(healthy) == before
    assert mounted(healthy)["spec"]["sink"]["kafka"]["bootstrapServers"] == "kafka:9093"
    healthy.pod_is_ready()
    shown(healthy, connection("kafka:9095", generation=3, sasl=LOGIN))
    assert mounted(healthy)["spec"]["sink"]["kafka"]["bootstrapServers"] == "kafka:9095"


HEALTHY = ("ConfigMap", "trips-by-cell-healthy")


def test_the_healthy_spec_is_as_earlier_operators_read_it_with_the_names_beside_it(healthy):
    saved = healthy.objects[HEALTHY]
    assert '"connection"' not in saved["data"]["spec.json"]
    fields = {"spec.sources.trips.kafka.connection": "trips", "spec.sink.kafka.connection": "trips"}
    assert json.loads(saved["metadata"]["annotations"]["millrace.io/connections"]) == fields
    observed = healthy.reconciler.observations.of(KEY)
    assert observed.healthy[1] == healthy.reconciler.query_of(KEY, observed).spec
    for text in ("[]", "{", '{"spec.sink.kafka.connection": 7}', "{" + '"a":1,' * 6000 + '"b":1}'):
        saved["metadata"]["annotations"]["millrace.io/connections"] = text
        assert replace(observed, objects={HEALTHY: saved}).healthy is None, text


def test_only_secrets_that_a_connection_has_are_exempt_from_a_policy_by_its_name(healthy):
    """The names in a ConfigMap that others may write were enough for any Secret."""
    rule = {"namespaces": ["default"], "connections": ["trips"], "secrets": ["own-*"]}
    healthy.permissions = Permissions(TenancyPolicy.model_validate({"policy": [rule]}, by_name=False))
    healthy.start_operator()
    observations = healthy.reconciler.observations
    observations.connection_seen(connection(sasl=LOGIN))
    healthy.settle()
    assert ready(healthy)[0] == "True"
    observed = observations.of(KEY)
    saved = copied(healthy.objects[HEALTHY])
    not_running = {key: each for key, each in observed.objects.items() if key != SET}
    assert replace(observed, objects=not_running | {HEALTHY: saved}).healthy is not None
    text = saved["data"]["spec.json"] = saved["data"]["spec.json"].replace("kafka-login", "another")
    saved["metadata"]["annotations"][REVISION] = revision(Spec.model_validate_json(text, by_name=False))
    assert replace(observed, objects=not_running | {HEALTHY: saved}).healthy is None
    observations.connection_gone(connection(sasl=LOGIN))
    healthy.settle()
    assert observations.of(KEY).healthy is not None, "what runs goes on"
    assert replace(observations.of(KEY), objects=not_running).healthy is None


def test_a_deleted_connection_ends_nothing(healthy):
    pod = healthy.pod["metadata"]["uid"]
    gone = connection(sasl=LOGIN)
    assert healthy.reconciler.observations.connection_gone(gone) == [KEY]
    healthy.settle()
    assert ready(healthy)[:2] == ("False", "ConnectionNotFound")
    assert healthy.pod["metadata"]["uid"] == pod
    shown(healthy, connection(sasl=LOGIN, uid="another"))
    assert ready(healthy)[0] == "True"
    assert healthy.pod["metadata"]["uid"] == pod


@pytest.mark.parametrize(("failure", "part"), [("SourceFailed", "sources"), ("SinkFailed", "sinks")])
def test_an_outage_is_no_fault_of_a_spec_with_another_name_for_the_same_connection(healthy, failure, part):
    healthy.reconciler.observations.connection_seen(connection(name="same", sasl=LOGIN))
    healthy.put(query("same", restartNonce=2))
    healthy.settle()
    for _ in range(8):
        healthy.pod_fails(f'{{"failure": "{failure}", "message": "no"}}')
        healthy.pass_time(minutes=6)
    assert healthy.status.rejected is None
    assert f"the last healthy spec has the same {part}" in healthy.condition("Progressing").message


def test_a_query_whose_connection_is_gone_is_suspended_and_resumed_only_with_it(healthy):
    healthy.reconciler.observations.connection_gone(connection(sasl=LOGIN))
    healthy.put(query(suspend=True))
    assert healthy.settle().phase == "Suspended"
    assert healthy.pod is None
    assert ready(healthy)[:2] == ("False", "ConnectionNotFound")
    healthy.put(query())
    assert healthy.settle().phase == "Suspended"
    assert healthy.pod is None
    assert shown(healthy, connection(sasl=LOGIN, uid="another")).phase == "Deploying"
    assert healthy.pod is not None


def test_a_connection_that_is_not_valid_is_reported_with_its_field(healthy):
    pod = healthy.pod["metadata"]["uid"]
    shown(healthy, connection(generation=2, sasl=LOGIN, options={"acks": "1"}))
    status, reason, message = ready(healthy)
    assert (status, reason) == ("False", "ConnectionNotFound")
    assert 'Connection "trips" is not valid: spec.kafka.options: "acks" may not be set' in message
    assert healthy.pod["metadata"]["uid"] == pod


def many_sources(number, **spec):
    kafka = {"connection": "trips", "topic": "trips"}
    sources = {f"s{each}": {"kafka": kafka, "schema": "cell STRING"} for each in range(number)}
    return query(sources={"trips": {"kafka": kafka, "schema": "cell STRING"}} | sources, **spec)


@pytest.mark.parametrize(
    ("brokers", "secret", "sources"), [("b" * 4096, "ca", 45), ("b", "n" * 12_000, 14)], ids=["brokers", "secret"]
)
def test_a_query_that_is_too_large_with_its_connections_is_refused(healthy, brokers, secret, sources):
    """Each source has a copy, and the spec that was saved as healthy could not be read again."""
    ca = {"secretKeyRef": {"name": secret, "key": "ca"}}
    shown(healthy, connection(brokers, generation=2, sasl=LOGIN, tls={"ca": ca}))
    before = runs(healthy)
    healthy.put(many_sources(sources))
    healthy.settle()
    status, reason, message = ready(healthy)
    assert (status, reason) == ("False", "InvalidQuery")
    said = r"the query takes (19|20)\d KiB with its Connections, of 128 KiB that one may take; shorten the Connections"
    assert re.match(said, message)
    assert runs(healthy) == before
    healthy.put(many_sources(sources, suspend=True))
    assert (healthy.settle().phase, healthy.pod, ready(healthy)[1]) == ("Suspended", None, "InvalidQuery")
    healthy.put(query())
    assert (healthy.settle().phase, healthy.pod is None) == ("Deploying", False)


def test_values_that_connections_lead_to_count_as_those_of_the_query(cluster):
    cluster.reconciler.observations.connection_seen(connection(sasl=LOGIN, options={f"o{n}": "1" for n in range(400)}))
    cluster.put(many_sources(15))
    cluster.settle()
    assert re.match(r"the query has 7\d+ values with its Connections, of 5000 that one may have", ready(cluster)[2])


def test_a_checked_query_counts_what_its_connections_lead_to(healthy):
    observed = healthy.reconciler.observations.of(KEY)
    checked = CheckedQueries()
    checked.put(KEY, observed, healthy.reconciler.query_of(KEY, observed))
    size = checked._sizes[KEY.namespace]
    assert size - max(observed.size, 2 << 10) >= observed.added_size.bytes > 2 * len(str(LOGIN))
    checked.put(KEY, observed, MillraceError("a query that is not resolved takes no more than it was"))
    assert checked._sizes[KEY.namespace] == max(observed.size, 2 << 10)


def test_an_operator_that_starts_again_does_nothing(healthy):
    healthy.actions.clear()
    seen = connection(sasl=LOGIN)
    healthy.start_operator()
    healthy.reconciler.observations.connection_seen(seen)
    healthy.settle()
    assert [action for action in healthy.actions if action[0] != "status"] == []


def test_older_versions_and_deletions_of_earlier_objects_do_not_count():
    observations = ObservationCache()
    old, new = connection("old:1"), connection("new:1")
    observations.connection_seen(new)
    observations.connection_seen(old)
    assert observations.connections.brokers_of(KEY.namespace, "trips") == "new:1"
    observations.connection_gone(connection(uid="an earlier one"))
    assert observations.connections.brokers_of(KEY.namespace, "trips") == "new:1"
    observations.connection_gone(new)
    assert observations.connections.brokers_of(KEY.namespace, "trips") is None
    assert observations.kept_bytes() == {}


def test_what_is_kept_of_a_namespace_is_bounded():
    observations = ObservationCache()
    size = MOST_BYTES_OF_CONNECTIONS // 4
    for number in range(5):
        observations.connection_seen(connection("a" * size, name=f"c{number}"))
    observations.connection_seen(connection(namespace="other"))
    kept = observations.kept_bytes()
    assert 0 < kept[KEY.namespace] <= MOST_BYTES_OF_CONNECTIONS
    found = observations.connections.of(KEY.namespace, ["c0", "c4"]).read()
    assert isinstance(found["c4"], MillraceError)
    assert "more Connections than" in str(found["c4"])
    assert not isinstance(observations.connections.of("other", ["trips"]).read()["trips"], MillraceError)


def test_a_connection_that_had_no_room_is_read_again_once_there_is(cluster):
    observations = cluster.reconciler.observations
    large = connection("a" * (MOST_BYTES_OF_CONNECTIONS - 300), name="large")
    old = connection("older:9093", sasl=LOGIN)
    trips, reads = connection(generation=2, sasl=LOGIN), []
    cluster.read_connection = lambda namespace, name: reads.append((namespace, name)) or copied(trips)
    observations.connection_seen(large)
    cluster.put(query())
    cluster.settle()
    shown(cluster, trips)
    assert "more Connections than" in ready(cluster)[2]
    cluster.pass_time(minutes=10)
    assert reads == []
    observations.connection_gone(large)
    cluster.pass_time(seconds=61)
    assert reads == [(KEY.namespace, "trips")]
    assert mounted(cluster)["spec"]["sink"]["kafka"]["bootstrapServers"] == "kafka:9093"
    observations.connection_seen(old)
    assert observations.connections.brokers_of(KEY.namespace, "trips") == "kafka:9093"


def test_an_older_version_does_not_count_for_a_connection_without_room():
    observations = ObservationCache()
    old = connection("older:9093")
    observations.connection_seen(connection("a" * MOST_BYTES_OF_CONNECTIONS))
    observations.connection_seen(old)
    assert observations.connections.of(KEY.namespace, ["trips"]).not_kept == ["trips"]
    observations.connection_gone(old)
    assert observations.connections.of(KEY.namespace, ["trips"]).found == {}


def test_many_connections_are_neither_summed_up_for_each_event_nor_all_compared_with_a_missing_name(monkeypatch):
    measured, compared = [], []
    length, nearest = KeptObject.__len__, errors.nearest
    monkeypatch.setattr(KeptObject, "__len__", lambda each: measured.append(1) or length(each))
    monkeypatch.setattr(errors, "nearest", lambda name, known: compared.append(len(known)) or nearest(name, known))
    observations = ObservationCache()
    for number in range(300):
        observations.connection_seen(connection(name=f"c{number}"))
    assert len(measured) < 5 * 300
    observations.connection_gone(connection(name="c7"))
    found = observations.connections.of(KEY.namespace, ["missing", "c299"]).read()
    with pytest.raises(MillraceError, match='there is no Connection "missing"; write one of c0'):
        read_query(yaml.safe_load(query("missing")), found)
    assert compared == [100, 100]
    assert not isinstance(found["c299"], MillraceError)
    for number in range(300):
        observations.connection_gone(connection(name=f"c{number}"))
    assert observations.kept_bytes() == {}


def test_only_queries_that_refer_to_a_connection_are_queued():
    observations = ObservationCache()
    for name, refers in (("one", "trips"), ("two", "orders")):
        body = yaml.safe_load(query(refers))
        body["metadata"] |= {"name": name, "namespace": "a", "uid": name, "resourceVersion": str(next(VERSIONS))}
        observations.query_seen(body)
    assert observations.connection_seen(connection(namespace="a")) == [("a", "one")]
    assert observations.connection_seen(connection(namespace="b")) == []
    body |= {"spec": yaml.safe_load(query())["spec"]}
    body["metadata"]["resourceVersion"] = str(next(VERSIONS))
    observations.query_seen(body)
    assert sorted(observations.connection_seen(connection(namespace="a", generation=2))) == [("a", "one"), ("a", "two")]
    observations.query_gone(body)
    assert observations.connection_seen(connection(namespace="a", generation=3)) == [("a", "one")]


def test_queries_are_chained_by_the_brokers_of_their_connections():
    brokers = {}
    changed = []
    chains = Chains()
    updates = ChainUpdates(chains, changed.append, lambda namespace, name: brokers.get((namespace, name)))
    updates.start()

    def note(name, reads, writes, generation=1):
        spec = {
            "sources": {"source": {"kafka": {**reads, "topic": "orders"}, "schema": "n INT"}},
            "sink": {"kafka": {**writes, "topic": name}},
        }
        metadata = {"namespace": "shop", "name": name, "uid": name, "generation": generation}
        updates.note({"metadata": metadata, "spec": spec, "status": {}})

    def upstream():
        assert updates.wait(10)
        return [link.writer for link in chains.upstream_of("shop", "totals").links]

    note("orders", {"bootstrapServers": "elsewhere:9092"}, {"connection": "a"})
    note("totals", {"connection": "b"}, {"connection": "b"})
    brokers["shop", "a"] = brokers["shop", "b"] = "kafka:9093"
    updates.connection_changed("shop")
    assert upstream() == ["orders"]
    brokers["shop", "b"] = "other:9093"
    updates.connection_changed("shop")
    assert upstream() == []
    note("totals", {"bootstrapServers": "kafka:9093"}, {"connection": "b"}, generation=2)
    assert upstream() == ["orders"]
    updates.stop()
