"""Own code in pods: an aggregator in a wheel from S3 or in a ConfigMap, which executors have from the driver alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from code_packages import digest, entry, wheel
from lab import topics
from lab.counting_query import Counting
from lab.installation import Installation
from lab.s3_server import BUCKET, SECRET
from lab.waiting import wait_until
from millrace_jobs.stores.objects import ObjectPath

from .in_s3 import InS3

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=2), pytest.mark.timeout(1200)]

COUNTED = '''
import socket

import pyarrow as pa

VERSION = "{version}"


class Counted:
    """The number of records, the pods that have counted them, and the newest code that has."""

    columns = ("name",)
    state_schema = pa.schema([("records", pa.int64()), ("pods", pa.string()), ("version", pa.string())])
    result_schema = state_schema

    def init(self):
        return {{"records": 0, "pods": "", "version": ""}}

    def update(self, state, batch):
        now = {{"records": batch.num_rows, "pods": socket.gethostname(), "version": VERSION}}
        return self.merge(state, now)

    def merge(self, a, b):
        pods = {{*a["pods"].split(), *b["pods"].split()}}
        return {{
            "records": a["records"] + b["records"],
            "pods": " ".join(sorted(pods)),
            "version": max(a["version"], b["version"]),
        }}

    def finish(self, state):
        return state
'''


@pytest.fixture
def counting(installation: Installation, namespace: str, s3: InS3) -> Iterator[Counting]:
    """Records that are to be counted."""
    made = Counting(installation, namespace)
    yield made
    made.stop()


def put(s3: InS3, version: str) -> dict[str, Any]:
    """Put a version of the wheel where a build would; return its entry of ``spec.code``."""
    uri = f"s3a://{BUCKET}/{s3.namespace}/code/own_counts-{version}-py3-none-any.whl"
    content = wheel({"own_counts/__init__.py": COUNTED.format(version=version)}, "own_counts", version)
    ObjectPath.of_file(uri).write_bytes(content)
    return entry(uri, content)


def rows(counting: Counting) -> list[dict[str, Any]]:
    """The committed results."""
    query = counting.query
    return list(topics.rows(query.on.broker, f"{query.namespace}-{query.name}"))


def test_executors_run_the_code_that_the_query_names(
    counting: Counting, s3: InS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.server.environment.items():
        monkeypatch.setenv(name, value)
    counting.start(
        query={"python": {"aggregator": "own_counts:Counted", "groupBy": ["name"]}},
        executors={"initial": 1, "max": 1},
        code=[put(s3, "1.0")],
        **s3.spec(),
    )
    query = counting.query
    (executor,) = query.executors
    found = rows(counting)
    assert {each["pods"] for each in found} == {executor["metadata"]["name"]}
    assert {each["version"] for each in found} == {"1.0"}

    driver = query.driver["metadata"]["uid"]
    query.patch(code=[put(s3, "1.1")])
    query.wait(lambda _: query.driver_uid not in ("", driver), "there is another driver")
    query.wait_until_settled()
    counting.wait_for_progress()
    wait_until(lambda: {each["version"] for each in rows(counting)} == {"1.1"}, "the next version counts every key")
    counting.check()
    for each in rows(counting):
        assert {executor["metadata"]["name"]} < {*each["pods"].split()}, "the state is that of both versions"
    for text in (query.log, query.kubectl("get", "sq,cm,sts,pods,events", "-o", "json")):
        assert SECRET not in text


def test_executors_run_a_module_of_a_config_map_as_soon_as_it_exists(counting: Counting) -> None:
    query, module = counting.query, COUNTED.format(version="1.0")
    code = {"configMap": {"name": "own-counts-1", "key": "own_counts.py"}, "sha256": digest(module.encode())}
    query.apply(
        counting.document(
            query={"python": {"aggregator": "own_counts:Counted", "groupBy": ["name"]}},
            executors={"initial": 1, "max": 1},
            code=[code],
        )
    )
    query.wait(lambda status: status.get("attempts"), "the missing ConfigMap is reported")
    last = query.status["attempts"][-1]
    assert last["reason"] == "CodeUnavailable"
    assert "the namespace has no ConfigMap own-counts-1 with the key own_counts.py; make it" in last["message"]

    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own-counts-1"}, "immutable": True}
    query.kubectl("create", "-f", "-", document=config_map | {"data": {"own_counts.py": module}})
    query.wait_until_settled()
    counting.wait_for_progress()
    (executor,) = query.executors
    assert {each["pods"] for each in rows(counting)} == {executor["metadata"]["name"]}
    assert {each["version"] for each in rows(counting)} == {"1.0"}
    counting.check()
