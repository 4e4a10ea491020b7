"""A query's login, and the secret of its driver and executors, are in Secrets and in files of its pods, nowhere else."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

from lab import topics
from lab.deployed import Deployed, document
from lab.installation import NAMESPACE, Installation, make_namespace
from lab.kafka import Broker, running_broker
from lab.waiting import wait_until

pytestmark = [pytest.mark.in_turn, pytest.mark.cluster, pytest.mark.timeout(1800)]

USER, PASSWORD = "planted-user-5f1c", "planted-password-9d27"
RECORDS = Counter({f"key-{number}": 10 * number for number in range(1, 6)})

ROLES, REPLICA = ["driver", "executor", "partitioner"], "counts-partitioner-0"

LOGIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
}

SPARK_PAGES = ("environment/", "api/v1/applications/{application}/environment")

READ_PROCESSES = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'"
LOGIN_FILES, AUTH_FILE = "/etc/millrace/secrets/*/*", "/etc/millrace/auth/secret"
OTHERS = "/tmp /var/lib/millrace /etc/millrace/query /etc/millrace/plan"


@pytest.fixture(scope="module")
def guarded(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with a listener that wants a login."""
    folder, listeners = tmp_path_factory.mktemp("guarded"), {"LOGIN": "SASL_PLAINTEXT"}
    with running_broker(folder, LOGIN, listeners, host=installation.cluster.node_address) as broker:
        yield broker


@pytest.fixture(scope="module")
def query(installation: Installation, guarded: Broker) -> Iterator[Deployed]:
    """A query with a driver, an executor and a replica, that has computed something by a login from a Secret."""
    make_namespace(installation.cluster, "guarded")
    secret = {"metadata": {"name": "kafka-login"}, "stringData": {"user": USER, "password": PASSWORD}}
    records = topics.make(guarded, "records", 2)
    table = topics.make(guarded, "counts", 1, cleanup_policy="compact")
    topics.fill(guarded, records, [{"name": name} for name in RECORDS.elements()])
    query = Deployed(installation, "guarded", "counts")
    query.apply({"apiVersion": "v1", "kind": "Secret"} | secret)
    query.apply(connection(guarded))
    query.apply(counts(records, table))
    query.wait_until_running()
    wait_until(lambda: counted(guarded, table) == RECORDS, "the records are counted")
    yield query
    installation.kubectl("delete", "namespace", "guarded", "--wait=false")


def test_secrets_are_found_nowhere_but_in_the_files_that_hold_them(query: Deployed) -> None:
    installation, pods = query.on, listed(query, "pods")
    (auth,) = [each for each in listed(query, "secrets") if each["metadata"]["name"].startswith("counts-auth-")]
    (shared,) = [base64.b64decode(value).decode() for value in auth["data"].values()]
    assert len(shared) == 64
    values = [USER, PASSWORD, shared]
    names = [pod["metadata"]["name"] for pod in pods]
    assert len(names) == len(ROLES), f"a pod of each of {ROLES} was expected, not {names}"
    operators = installation.get("-n", NAMESPACE, "pods")["items"]
    for name in (query.pod, REPLICA):
        scraped(installation, name)

    places = {"Prometheus' series": json.dumps(series(installation))}
    for pod in (*pods, *operators):
        place, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        places[f"the log of {name}"] = installation.logs(name, place)
        places[f"processes of {name}"] = installation.kubectl(
            "-n", place, "exec", name, "--", "sh", "-c", READ_PROCESSES
        )
        if "prometheus.io/port" in pod["metadata"].get("annotations", {}):
            places[f"metrics of {name}"] = metrics(installation, pod)
    everything = objects(installation)
    for holder, held in (("kafka-login", {USER, PASSWORD}), (auth["metadata"]["name"], {shared})):
        assert planted(everything.pop(f"Secret {query.namespace}/{holder}"), values) == held
    places |= everything | {f"Spark's {page}": page_of_spark(query, page) for page in SPARK_PAGES}

    assert {place: found for place, said in places.items() if (found := planted(said, values))} == {}
    for what in ("metrics", "processes"):
        for name in (query.pod, REPLICA):
            assert "millrace" in places[f"{what} of {name}"], f"{what} of {name} cannot be read"
    assert "millrace" in places[f"the log of {query.pod}"]
    assert "partitioner=counts" in places[f"the log of {REPLICA}"]
    assert "counts" in places["Prometheus' series"]
    assert any(place.startswith("Event ") for place in places)
    for page in SPARK_PAGES:
        assert "spark.authenticate.secret.file" in places[f"Spark's {page}"], f"{page} does not show settings"
    for pod in names:
        assert len(holding(query, pod, values, LOGIN_FILES)) == 2, f"{pod} does not hold the login"
        assert holding(query, pod, values, AUTH_FILE) == ([] if pod == REPLICA else [AUTH_FILE])
        assert holding(query, pod, values, OTHERS) == []


def test_pods_of_a_query_keep_to_the_restricted_level_and_can_be_reached_by_nobody_else(query: Deployed) -> None:
    installation = query.on
    labels = installation.get("namespace", query.namespace)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pods = listed(query, "pods")
    assert sorted(pod["metadata"]["labels"]["millrace.io/role"] for pod in pods) == ROLES
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    policies = listed(query, "networkpolicies")
    assert all(any(selects(policy, pod) for policy in policies) for pod in pods)
    (policy,) = installation.get("-n", NAMESPACE, "networkpolicies")["items"]
    assert all(selects(policy, pod) for pod in installation.get("-n", NAMESPACE, "pods")["items"])
    assert "FailedCreate" not in {each["reason"] for each in listed(query, "events")}


def connection(broker: Broker) -> dict[str, Any]:
    """The broker, and the login to it from a Secret."""
    secret = {key: {"secretKeyRef": {"name": "kafka-login", "key": key}} for key in ("user", "password")}
    sasl = {"mechanism": "PLAIN", "username": secret["user"], "password": secret["password"]}
    kafka = {"bootstrapServers": broker.address("LOGIN"), "sasl": sasl}
    metadata = {"name": "guarded"}
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "Connection",
        "metadata": metadata,
        "spec": {"kafka": kafka},
    }


def counts(records: str, table: str) -> dict[str, Any]:
    """A query that reads, places and writes by the login."""
    source = {"connection": "guarded", "topic": records, "startingOffsets": "Earliest"}
    return document(
        "counts",
        sources={"records": {"kafka": source, "schema": "name STRING"}},
        query={"sql": "SELECT name, count(*) AS records FROM records GROUP BY name"},
        sink={"table": {"connection": "guarded", "topic": table}},
        partitioner={"algorithm": "hash", "placement": "Dedicated", "replicas": {"initial": 1}},
        sparkConf={"spark.ui.enabled": "true"},
    )


def counted(broker: Broker, table: str) -> Counter[str]:
    """What the query has counted."""
    rows = [json.loads(value) for value in topics.table_of(topics.committed(broker, table)).values()]
    return Counter({row["name"]: row["records"] for row in rows})


def listed(query: Deployed, kind: str) -> list[dict[str, Any]]:
    """What there is of a kind in its namespace."""
    found: list[dict[str, Any]] = query.on.get("-n", query.namespace, kind)["items"]
    return found


def holding(query: Deployed, pod: str, values: Collection[str], files: str) -> list[str]:
    """Those files, or files in those folders, that have one of the values in them."""
    patterns = " ".join(f"-e {value}" for value in values)
    return query.kubectl("exec", pod, "--", "sh", "-c", f"grep -rl {patterns} {files} 2>/dev/null; true").split()


def planted(text: str, values: Collection[str]) -> set[str]:
    """Which of the values are in a text, plain or as Secrets and YAML's binary values have them."""
    return {value for value in values if value in text or base64.b64encode(value.encode()).decode() in text}


def objects(installation: Installation) -> dict[str, str]:
    """Each object of the cluster, by its kind and name."""
    kinds = installation.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    found = {}
    for kind in sorted(set(kinds)):
        for each in installation.get(kind, "--all-namespaces")["items"]:
            metadata = each["metadata"]
            name = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
            found[f"{each['kind']} {name}"] = json.dumps(each)
    return found


def page_of_spark(query: Deployed, page: str) -> str:
    """What Spark's user interface, which the query has turned on, shows of its settings."""
    driver = f"/api/v1/namespaces/{query.namespace}/pods/{query.pod}:4040/proxy"
    (application,) = json.loads(query.kubectl("get", "--raw", f"{driver}/api/v1/applications"))
    return query.kubectl("get", "--raw", f"{driver}/{page.format(application=application['id'])}")


def metrics(installation: Installation, pod: Mapping[str, Any]) -> str:
    """What a pod tells Prometheus."""
    place, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    port = pod["metadata"]["annotations"]["prometheus.io/port"]
    return installation.kubectl("get", "--raw", f"/api/v1/namespaces/{place}/pods/{name}:{port}/proxy/metrics")


def series(installation: Installation) -> list[Mapping[str, str]]:
    """Names and labels of all that Prometheus has."""
    url = f"{installation.prometheus.url}/api/v1/series?match[]=%7B__name__%3D~%22.%2B%22%7D"
    with urllib.request.urlopen(url, timeout=60) as answer:
        found: list[Mapping[str, str]] = json.load(answer)["data"]
    return found


def scraped(installation: Installation, pod: str) -> None:
    """Wait until Prometheus knows a pod."""
    wait_until(lambda: any(each.get("pod") == pod for each in series(installation)), f"Prometheus has scraped {pod}")


def selects(policy: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a NetworkPolicy is about a pod, and lets nobody in by default."""
    wanted = policy["spec"]["podSelector"]["matchLabels"].items()
    return wanted <= pod["metadata"]["labels"].items() and "Ingress" in policy["spec"]["policyTypes"]
