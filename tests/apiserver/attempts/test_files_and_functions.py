"""Queries that reach past their SQL and their volumes, where a policy confines them: each is refused by its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ..crd_documents import connection
from ..observed import wait_until
from .tenants import Document, Tenant, query

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
KAFKA = {"bootstrapServers": "kafka:9092", "topic": "trips"}
READ = "spec.sources.trips.files.path"


def reading(path: str, *mounts: tuple[str, Document]) -> Document:
    source = {"files": {"path": path, "format": "csv", "header": False}, "schema": "cell STRING, fare DOUBLE"}
    return {"sources": {"trips": source}} | mounting(*mounts)


def mounting(*mounts: tuple[str, Document]) -> Document:
    """Driver and executors that mount volumes at these paths."""
    volumes = [{"name": f"volume-{number}", **source} for number, (_, source) in enumerate(mounts)]
    placed = [{"name": f"volume-{number}", "mountPath": path} for number, (path, _) in enumerate(mounts)]
    return {
        pods: {"podTemplate": {"spec": {"volumes": volumes, "containers": [{"name": name, "volumeMounts": placed}]}}}
        for pods, name in (("driver", "driver"), ("executors", "executor"))
    }


def computing(expression: str) -> Document:
    return {"query": {"sql": f"SELECT cell, {expression} AS n FROM trips"}}


def loading(uri: str) -> Document:
    return {"code": [{"uri": uri, "sha256": "0" * 64}]}


CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
LOGIN = {"mechanism": "PLAIN", "username": {"env": "HOME"}, "password": {"file": TOKEN}}
BOUND = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
ATTEMPTS: dict[str, tuple[Document, str]] = {
    "token": (reading(TOKEN), READ),
    "token-by-a-wildcard": (reading("/var/r*/secrets/kubernetes.io/serviceaccount/token"), READ),
    "token-below-a-claim": (reading(TOKEN, ("/var", CLAIM)), READ),
    "token-by-a-volume": (reading("/data/token", ("/data", BOUND)), READ),
    "token-to-a-broker": (
        {
            "sources": {
                "trips": {"kafka": {"connection": "login", "topic": "trips"}, "schema": "cell STRING, fare DOUBLE"}
            }
        },
        "spec.sources.trips.kafka.sasl.password.file",
    ),
    "wires": (reading("/etc/millrace/auth/secret"), READ),
    "environment": (reading("/pro[c]/1/environ"), READ),
    "up-again": (reading("/data/../proc/1/environ", ("/data", CLAIM)), READ),
    "checkpoints": (reading("/var/lib/millrace/checkpoint/*/millrace.json"), READ),
    "results-elsewhere": (
        {"sink": {"files": {"path": "/data/../../etc"}}} | mounting(("/data", CLAIM)),
        "spec.sink.files.path",
    ),
    "reflection": (computing("reflect('java.lang.System', 'getenv', 'HOME')"), "spec.query.sql"),
    "reflection-in-quotes": (computing("system.builtin.`Java_Method`('java.lang.System', 'exit')"), "spec.query.sql"),
    "a-program": ({"query": {"sql": "SELECT TRANSFORM(cell) USING 'sh' AS (y) FROM trips"}}, "spec.query.sql"),
    "an-xml-schema": (
        computing("from_xml(cell, 'b INT', map('rowValidationXSDPath', '/etc/passwd'))"),
        "spec.query.sql",
    ),
    "java-options": ({"sparkConf": {"spark.driver.extraJavaOptions": "-javaagent:/data/evil.jar"}}, "spec.sparkConf"),
    "a-class-path": ({"sparkConf": {"spark.executor.extraClassPath": "/data/evil.jar"}}, "spec.sparkConf"),
    "a-file-system": ({"sparkConf": {"spark.hadoop.fs.file.impl": "evil.FileSystem"}}, "spec.sparkConf"),
    "a-python": ({"sparkConf": {"spark.pyspark.python": "sh"}}, "spec.sparkConf"),
    "own-code": (loading("https://code.example.org/evil.whl"), "spec.code[0].uri"),
    "own-code-of-a-config-map": (
        {"code": [{"configMap": {"name": "evil", "key": "evil.py"}, "sha256": "0" * 64}]},
        "spec.code[0].configMap.name",
    ),
    "own-code-of-a-volume": (loading("file:///data/evil.jar") | mounting(("/data", CLAIM)), "spec.code[0].uri"),
    "an-extension": ({"sparkConf": {"spark.sql.extensions": "evil.Extensions"}}, "spec.sparkConf"),
}


def test_a_policy_keeps_queries_to_their_sql_and_their_volumes(confined: Tenant) -> None:
    specs: list[Any] = [query(name, **spec) for name, (spec, _) in ATTEMPTS.items()]
    sound = query("sound", **reading("/data/*.csv", ("/data", CLAIM)), sparkConf={"spark.sql.shuffle.partitions": "4"})
    confined.apply(connection("login", {"bootstrapServers": "kafka:9092", "sasl": LOGIN}), *specs, sound)
    for name, (_, field) in ATTEMPTS.items():
        wait_until(lambda name=name: confined.ready(name)["reason"] == "NotAllowed")  # type: ignore[misc]
        assert confined.ready(name)["message"].startswith(field), name
        assert confined.attempt("get", "sts", f"{name}-driver").returncode != 0
    wait_until(lambda: confined.status("sound").get("driver", {}).get("pod") == "sound-driver-0")
    found = json.loads(confined.run("get", "cm", "-l", "millrace.io/query=sound", "-o", "json"))["items"]
    (enforced,) = [each["data"]["confinement.json"] for each in found if "confinement.json" in each.get("data", {})]
    assert '"functions":[]' in enforced
    assert '"/data"' in enforced


def test_no_query_writes_into_its_own_checkpoint(mallory: Tenant) -> None:
    path = "/var/lib/millrace/checkpoint/own/spark"
    mallory.apply(query("own", sink={"files": {"path": path}}))
    assert "is within the query's own checkpoint" in mallory.wait_for_refusal("own")


def test_a_table_with_the_name_of_a_cte_with_a_dot_is_no_file(mallory: Tenant) -> None:
    sql = "WITH `text./etc/passwd` AS (SELECT 1) SELECT cell FROM trips, text.`/etc/passwd`"
    mallory.apply(query("dotted", query={"sql": sql}))
    assert 'there is no source "text./etc/passwd"' in mallory.wait_for_refusal("dotted")
