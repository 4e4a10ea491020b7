"""Specs that reach out of their pods, or are made to stop the operator; it refuses them, and serves the victim on."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from lab.control_plane import ControlPlane
from lab.processes import Process

from ..crd_documents import connection
from ..observed import wait_until
from ..operators import ask
from ..raw_requests import queries_in, send
from .tenants import Document, Tenant, config_map, query

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

KAFKA = {"bootstrapServers": "kafka:9092"}


LOGINS = {
    "entry-by-a-path": {"name": "kafka-login", "key": "../../token"},
    "secret-by-a-path": {"name": "../kafka-login", "key": "password"},
    "login": {"name": "login", "key": "password"},
}
"""Entries of Secrets that Connections log in by."""


@pytest.fixture(scope="module", autouse=True)
def logins(mallory: Tenant) -> None:
    """Connections that have these logins."""
    for name, of in LOGINS.items():
        entry = {"secretKeyRef": of}
        login = {"mechanism": "PLAIN", "username": entry, "password": entry}
        mallory.apply(connection(name, KAFKA | {"sasl": login}))


def secured(name: str) -> Document:
    """The sources of a query that logs in by a Connection."""
    return {"trips": {"kafka": {"connection": name, "topic": "trips"}, "schema": "cell STRING, fare DOUBLE"}}


def container(**settings: Any) -> Document:
    return {"podTemplate": {"spec": {"containers": [{"name": "driver", **settings}]}}}


OUTSIDE: dict[str, Document] = {
    "an entry of a Secret by a path": {"sources": secured("entry-by-a-path")},
    "another tenant's account": {"serviceAccountName": "bank:trips-driver"},
    "an account by its full name": {"serviceAccountName": "system:serviceaccount:bank:trips-driver"},
    "the node's address by a probe": {"driver": container(livenessProbe={"httpGet": {"host": "10.0.0.1", "port": 1}})},
    "the node's address by a hook": {
        "driver": container(lifecycle={"preStop": {"httpGet": {"host": "169.254.169.254", "port": 80}}})
    },
    "a node": {"driver": {"podTemplate": {"spec": {"nodeName": "control-plane"}}}},
    "a device of the node": {
        "driver": {"podTemplate": {"spec": {"volumes": [{"name": "disk", "hostPath": {"path": "/dev"}}]}}}
    },
    "fields that Kubernetes does not know": {"driver": {"podTemplate": {"spec": {"$patch": "replace", "evil": True}}}},
    "root as a text, which Spark's client reads as a number": {
        "executors": {"podTemplate": {"spec": {"securityContext": {"runAsUser": "0"}}}}
    },
    "root as a flag that is a text": {"driver": container(securityContext={"runAsNonRoot": "false"})},
    "a field by its name in Python": {"driver": container(security_context={"privileged": True})},
    "a security profile by an annotation": {
        "driver": {
            "podTemplate": {
                "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/driver": "unconfined"}}
            }
        }
    },
    "pods that stay": {"executors": {"podTemplate": {"metadata": {"finalizers": ["mallory.example/stay"]}}}},
    "pods of another owner": {"executors": {"podTemplate": {"metadata": {"ownerReferences": []}}}},
    "a priority": {"driver": {"podTemplate": {"spec": {"priority": 2_000_000_000}}}},
    "a setting in a setting's name": {"sparkConf": {"spark.a x\nspark.master": "local"}},
    "a plugin of Spark": {"sparkConf": {"spark.plugins": "evil.Plugin"}},
    "another namespace by a setting": {"sparkConf": {"spark.kubernetes.namespace": "bank"}},
    "another account by a setting": {
        "sparkConf": {"spark.kubernetes.authenticate.driver.serviceAccountName": "trips-driver"}
    },
    "a Secret by a setting": {"sparkConf": {"spark.kubernetes.driver.secrets.kafka-login": "/etc/secrets"}},
}

TIRING: dict[str, Document] = {
    "brackets in SQL": {"query": {"sql": "SELECT " + "(" * 20_000}},
    "signs in SQL": {"query": {"sql": "SELECT " + "- " * 10_000 + "1 AS a FROM trips"}},
    "a deep schema": {
        "sources": {"trips": {"kafka": KAFKA | {"topic": "t"}, "schema": "c " + "ARRAY<" * 5000 + "INT" + ">" * 5000}}
    },
    "a pattern too large": {
        "sources": {"trips": {"kafka": KAFKA | {"topicPattern": "a{99999999999999999999}"}, "schema": "cell STRING"}}
    },
    "a deep pattern": {
        "sources": {"trips": {"kafka": KAFKA | {"topicPattern": "(" * 9000 + ")" * 9000}, "schema": "cell STRING"}}
    },
}


def named(kind: str, specs: dict[str, Document]) -> list[Any]:
    return [pytest.param(f"{kind}-{number}", spec, id=name) for number, (name, spec) in enumerate(specs.items())]


@pytest.mark.parametrize(("name", "spec"), named("outside", OUTSIDE))
def test_a_query_that_reaches_outside_its_pods_is_refused(mallory: Tenant, name: str, spec: Document) -> None:
    mallory.apply(query(name, **spec))
    mallory.wait_for_refusal(name)
    assert mallory.attempt("get", "pod", f"{name}-driver-0").returncode != 0
    binding = mallory.attempt("get", "rolebinding", f"{name}-driver", "-o", "json")
    subjects = json.loads(binding.stdout)["subjects"] if binding.returncode == 0 else []
    assert {each["namespace"] for each in subjects} <= {"mallory"}


@pytest.mark.parametrize(("name", "spec"), named("tiring", TIRING))
def test_the_operator_refuses_and_survives(mallory: Tenant, bank: Tenant, name: str, spec: Document) -> None:
    mallory.apply(query(name, **spec))
    mallory.wait_for_refusal(name)
    bank.scale("trips", 2)
    bank.scale("trips", 1)


def test_an_object_too_deep_for_python_does_not_end_the_watches(
    plane: ControlPlane, mallory: Tenant, bank: Tenant, operator: Process
) -> None:
    """kubectl itself refuses it, and the API server does not."""
    document = query("deep", driver={"podTemplate": {"spec": "HERE"}})
    text = json.dumps(document).replace('"HERE"', '{"a":' * 9000 + "1" + "}" * 9000)
    token = mallory.run("create", "token", "default").strip()
    mallory.run("create", "rolebinding", "sender", "--clusterrole=admin", "--serviceaccount=mallory:default")
    assert send(plane, token, "POST", queries_in("mallory"), text).status == 201
    reason = "jsonpath={.status.conditions[?(@.type=='Ready')].message}"
    wait_until(lambda: "levels deep" in mallory.run("get", "sq", "deep", "-o", reason))
    bank.scale("trips", 2)
    assert operator.status is None
    mallory.run("delete", "sq", "deep")


def test_a_pattern_that_backtracks_for_ever_holds_nobody_up(mallory: Tenant, bank: Tenant) -> None:
    source = {"trips": {"kafka": KAFKA | {"topicPattern": "(a+)+b"}, "schema": "cell STRING, fare DOUBLE"}}
    mallory.apply(query("pattern", sources=source), query("victim-of-it", sink={"kafka": KAFKA | {"topic": "a" * 200}}))
    bank.scale("trips", 3)
    wait_until(lambda: mallory.ready("pattern")["reason"] == "Deploying")


def test_a_query_that_changes_all_the_time_does_not_starve_others(mallory: Tenant, bank: Tenant) -> None:
    mallory.deploy(query("hot"))
    ended = threading.Event()

    def change() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            mallory.patch(
                "sq", "hot", {"metadata": {"annotations": {"number": str(number)}}, "spec": {"restartNonce": number}}
            )

    changing = threading.Thread(target=change)
    changing.start()
    try:
        bank.scale("trips", 1)
        bank.scale("trips", 2)
    finally:
        ended.set()
        changing.join()


def test_many_queries_at_once_do_not_starve_others(mallory: Tenant, bank: Tenant) -> None:
    names = [f"crowd-{number}" for number in range(25)]
    mallory.apply(*(query(name, suspend=True) for name in names))
    bank.scale("trips", 1)
    mallory.run("delete", "sq", *names, "--wait=false")


def test_a_large_object_with_a_querys_label_does_not_harm_the_operator(
    mallory: Tenant, bank: Tenant, operator: Process
) -> None:
    for number in range(3):
        large = config_map(f"bait-{number}", {"x": "y" * 900_000}, labels={"millrace.io/query": f"bait-{number}"})
        mallory.run("create", "-f", "-", document=large)
    bank.scale("trips", 2)
    mallory.run("delete", "cm", "bait-0", "bait-1", "bait-2")
    assert ask(operator, "/healthz")[0] == 200


@pytest.mark.parametrize(
    ("name", "kind", "spec"),
    [
        ("by-path-1", "Secret", {"sources": secured("secret-by-a-path")}),
        ("by-path-2", "PersistentVolumeClaim", {"checkpoint": {"claimName": "../bank/checkpoints"}}),
    ],
)
def test_a_path_in_place_of_a_name_names_nothing(mallory: Tenant, name: str, kind: str, spec: Document) -> None:
    """Kubernetes looks names up in the pod's own namespace, where none can have a path in it."""
    mallory.deploy(query(name, **spec))
    volumes = mallory.get("pod", f"{name}-driver-0")["spec"]["volumes"]
    source = kind[0].lower() + kind[1:]
    names = [each[source].get("secretName") or each[source].get("claimName") for each in volumes if source in each]
    (path,) = [each for each in names if not each.startswith(f"{name}-auth-")]
    done = mallory.attempt("create", "-f", "-", document={"apiVersion": "v1", "kind": kind, "metadata": {"name": path}})
    assert "metadata.name: Invalid value" in done.stderr


def test_a_checkpoint_beside_anothers_is_refused(mallory: Tenant) -> None:
    """Without a volume of the query's own there, it would be a folder of each pod."""
    mallory.apply(query("paths", checkpoint={"uri": "file:///var/lib/millrace/checkpoint/../../bank"}))
    assert "spec.checkpoint" in mallory.wait_for_refusal("paths")


def test_no_secret_is_in_what_the_operator_writes(bank: Tenant, mallory: Tenant, operator: Process) -> None:
    mallory.run("create", "secret", "generic", "login", "--from-literal=password=hunter-two")
    mallory.deploy(query("secured", sources=secured("login")))
    written = mallory.run("get", "sq,cm,sts,pod,events,role,sa", "-o", "json")
    assert "hunter-two" not in written
    assert "hunter-two" not in operator.said
    assert "open-sesame" not in operator.said
