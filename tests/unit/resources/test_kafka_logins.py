"""What logins and options of Kafka clients change of a query's pods: Secrets, accounts, zones, and who may reach what."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from millrace_api.model.externals import ExternalKind, given
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import read_query
from millrace_operator.resources.driver_config import mounted_query
from millrace_operator.resources.manifests import objects
from millrace_operator.resources.names import Manifest, Owner
from millrace_operator.resources.partitioner import Partitioners
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.resources.tenancy_policy import IdentityEndpoint

from .cases import AUTH, CASES, IMAGE

OIDC = {"tokenEndpoint": "https://login/token", "clientId": "trips"}
SECRET = {"secretKeyRef": {"name": "kafka-login", "key": "secret"}}
BY_TOKENS = {"mechanism": "OAUTHBEARER", "oidc": OIDC | {"clientSecret": SECRET}}
IN_AWS = {"mechanism": "OAUTHBEARER", "awsMskIam": {"region": "eu-west-1"}}


def reference(name: str) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": "secret"}}


def query(**kafka: Any) -> StreamQuery:
    """A query whose records partitioner replicas place, with these parts of its connection."""
    document = yaml.safe_load(CASES["dedicated"])
    (source,) = document["spec"]["sources"].values()
    source["kafka"] = {"bootstrapServers": "kafka:9092", "topic": "trips"} | kafka
    document["spec"]["serviceAccountName"] = "streams"
    return read_query(document)


def made(asked: StreamQuery) -> dict[tuple[str, str], Manifest]:
    """Return the objects of a query, by kind and name."""
    found = objects(
        asked,
        Owner("cabs", asked.name, "1"),
        Plan.initial(asked.spec),
        PodDefaults(IMAGE),
        running=True,
        auth=AUTH,
        partitioners=Partitioners(1, IMAGE),
        identities=[IdentityEndpoint.EKS],
    )
    return {(each["kind"], each["metadata"]["name"].rpartition("-")[2]): each for each in found}


def pods(asked: StreamQuery) -> dict[str, Manifest]:
    """Return the pods of a query by role."""
    found = made(asked)
    (config,) = [
        each["data"] for (kind, _), each in found.items() if kind == "ConfigMap" and "query.yaml" in each["data"]
    ]
    sets = {role: found["StatefulSet", role]["spec"]["template"]["spec"] for role in ("driver", "partitioner")}
    return sets | {"executor": yaml.safe_load(config["executor-pod.yaml"])["spec"]}


def test_the_secret_of_a_client_is_mounted_in_every_pod_that_logs_in():
    document, secrets = mounted_query(query(sasl=BY_TOKENS))
    assert secrets["kafka-login"] == {"secret"}
    (source,) = document["spec"]["sources"].values()
    assert source["kafka"]["sasl"]["oidc"]["clientSecret"] == {"file": "/etc/millrace/secrets/kafka-login/secret"}
    for role, pod in pods(query(sasl=BY_TOKENS)).items():
        mounted = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
        assert "kafka-login" in mounted, role


def secrets_of(pod: Manifest) -> set[str]:
    """Return the names of the Secrets that a pod mounts, but for that of the query's own wires."""
    names = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    return {name for name in names if "-auth-" not in name}


def test_a_pod_has_no_secret_that_it_does_not_use():
    """Replicas speak to Kafka and the registries of what they read there, and nothing but the driver sends lineage."""
    asked = query(sasl=BY_TOKENS).to_document()
    (name,) = asked["spec"]["sources"]
    registry = {"registry": "https://schemas", "login": {"token": reference("registry")}}
    asked["spec"]["sources"][name] |= {"format": "avro", "avro": registry}
    static = {"schema": "id BIGINT, tier STRING", "table": {"static": True, "keys": ["id"]}}
    database = {"host": "db", "database": "sales", "user": "millrace", "password": reference("database")}
    catalog = {"rest": {"uri": "https://catalog", "token": reference("catalog")}}
    asked["spec"]["sources"] |= {
        "people": {"postgres": database | {"table": "people"}, **static},
        "shops": {"mysql": database | {"table": "shops", "password": reference("shops")}, **static},
        "places": {"iceberg": {"catalog": catalog, "table": "a.b"}, **static},
    }
    receiver = {"url": "https://marquez/api/v1/lineage", "apiKey": reference("marquez")}
    asked["spec"] |= {"lineage": {"http": receiver}, "partitioner": {"placement": "Auto"}}
    found = {role: secrets_of(pod) for role, pod in pods(read_query(asked)).items()}
    both = {"kafka-login", "registry", "database", "shops", "catalog", "elsewhere"}
    assert found == {"driver": both | {"marquez"}, "executor": both, "partitioner": {"kafka-login", "registry"}}


def test_files_of_a_login_by_tokens_are_among_those_that_a_policy_looks_at():
    oidc = OIDC | {"clientSecret": {"file": "/a"}, "ca": {"file": "/b"}}
    asked = query(sasl={"mechanism": "OAUTHBEARER", "oidc": oidc})
    found = given(asked.spec, "spec", ExternalKind.LOGINS)
    assert [(each.field.rpartition("kafka.")[2], each.value) for each in found] == [
        ("sasl.oidc.clientSecret.file", "/a"),
        ("sasl.oidc.ca.file", "/b"),
    ]


@pytest.mark.parametrize(("sasl", "account", "reaches"), [(IN_AWS, "streams", True), (BY_TOKENS, None, False)])
def test_replicas_have_the_identity_of_the_query_only_where_they_log_in_by_it(sasl, account, reaches):
    found = pods(query(sasl=sasl))
    replica = found["partitioner"]
    assert replica["serviceAccountName"] == (account or "trips-by-cell-partitioner")
    assert replica["automountServiceAccountToken"] is False
    assert found["driver"]["serviceAccountName"] == found["executor"]["serviceAccountName"] == "streams"
    policy = made(query(sasl=sasl))["NetworkPolicy", "partitioner"]
    assert ("169.254.170.23/32" in str(policy)) is reaches


@pytest.mark.parametrize(("rack", "named"), [("{zone}", True), ("eu-west-1a", False)])
def test_pods_know_the_zone_of_their_node_where_a_rack_names_it(rack, named):
    for role, pod in pods(query(options={"client.rack": rack})).items():
        found = [each for each in pod["containers"][0]["env"] if each["name"] == "MILLRACE_ZONE"]
        label = {"fieldRef": {"fieldPath": "metadata.labels['topology.kubernetes.io/zone']"}}
        assert found == ([{"name": "MILLRACE_ZONE", "valueFrom": label}] if named else []), role


def test_a_setting_or_an_extension_named_as_a_reference_is_none():
    oidc = OIDC | {"clientSecret": SECRET, "extensions": {"secretKeyRef": "a"}}
    document = yaml.safe_load(CASES["smallest"])
    document["spec"]["sparkConf"] = {"secretKeyRef": "a"}
    (source,) = document["spec"]["sources"].values()
    source["kafka"] |= {"sasl": {"mechanism": "OAUTHBEARER", "oidc": oidc}}
    mounted, secrets = mounted_query(read_query(document))
    assert secrets == {"kafka-login": {"secret"}}
    assert mounted["spec"]["sparkConf"] == {"secretKeyRef": "a"}
