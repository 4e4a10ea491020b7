"""Queries that need more memory: executors that ran out get more, and a driver before it does."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from code_packages import digest
from lab.counting_query import Counting
from lab.deployed import Deployed
from lab.waiting import wait_until
from millrace_operator.resources.driver_config import CHECKPOINT
from millrace_operator.resources.names import METRICS_PORT

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=12), pytest.mark.timeout(1800)]

MEBIBYTES = 400
"""Of a value that the query makes for each key of a batch, in the heap, in one piece."""

FILES = "_data/counts"
"""Folder of the claim with the results of a sink."""

SQL = f"""
SELECT name, count(*) AS records,
       octet_length(repeat(concat(substr(name, 1, 1), '1234567'), {MEBIBYTES << 17})) AS bytes
FROM records GROUP BY name
"""


def test_executors_that_run_out_of_memory_get_more_and_every_record_counts_once(counting: Counting) -> None:
    query = counting.query
    small = {"memory": "512m", "maxMemory": "2g"}
    query.apply(
        counting.document(query={"sql": SQL}, partitioner={"algorithm": "native"}, executors=small, batchInterval="10s")
    )
    status = query.wait(lambda status: status.get("memory"), "memory is raised")
    assert status["memory"]["executors"]["from"] == "512m"
    assert status["memory"]["executors"]["reason"] == "HeapFull"
    assert "driver" not in status["memory"]
    query.wait_until_healthy()
    counting.wait_for_progress()
    memory = query.status["memory"]["executors"]
    assert memory["memory"] == memory["heap"] != "512m"
    (executor,) = query.executors
    limit = executor["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert int(limit.removesuffix("Mi")) > int(memory["heap"].removesuffix("m")) > 512
    assert "MemoryRaised" in query.events
    counting.check()
    assert query.condition("Degraded")["status"] == "False"
    assert query.status["driver"]["restarts"] == 0, "the last driver never failed"


def written_counts(folder: Path) -> Counter[str]:
    """The newest count of each key that the sink has written."""
    found: Counter[str] = Counter()
    for file in sorted(folder.glob("*.json")):
        found |= Counter({row["name"]: row["records"] for row in json.loads(file.read_text(encoding="utf-8") or "[]")})
    return found


def test_a_driver_whose_memory_fills_gets_more_before_it_fails_and_every_record_counts_once(counting: Counting) -> None:
    query, module = counting.query, Path(__file__).with_name("filling_memory.py").read_text(encoding="utf-8")
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "filling"}, "immutable": True}
    query.kubectl("create", "-f", "-", document=config_map | {"data": {"filling_memory.py": module}})
    document = counting.document(
        driver={"memory": "1g", "maxMemory": "4g"},
        code=[{"configMap": {"name": "filling", "key": "filling_memory.py"}, "sha256": digest(module.encode())}],
    )
    sink = {"write": "filling_memory:keep", "options": {"folder": f"{CHECKPOINT}/{FILES}"}}
    query.apply(document | {"spec": document["spec"] | {"sink": {"python": sink}}})
    query.wait_until_healthy()
    before = query.driver_uid
    status = query.wait(lambda status: status.get("memory"), "memory is raised")
    raised = status["memory"]["driver"]
    assert (raised["predicted"], raised["reason"]) == (True, "LimitExceeded")
    assert (raised["from"], raised["memory"], raised["heap"]) == ("1g", "1536m", "1g")
    assert raised["message"].startswith("what the driver's container uses beside the heap is ")
    query.wait(lambda _: query.has_pod and query.driver_uid != before, "another driver runs")
    query.wait_until_healthy()
    assert "OutOfMemory" not in [each["reason"] for each in query.status.get("attempts", ())]
    assert (query.status["driver"]["restarts"], query.status["memory"]["driver"]["raises"]) == (0, 1)
    counting.stop()
    folder = query.on.cluster.volume_folder(query.namespace) / FILES
    wait_until(lambda: written_counts(folder) >= counting.written, "all records are counted")
    assert written_counts(folder) == counting.written


def memory_shares(query: Deployed) -> dict[tuple[str, str], float]:
    """The memory in use that the driver exports, as shares of limits, by role and part."""
    with urllib.request.urlopen(
        f"http://{query.driver['status']['podIP']}:{METRICS_PORT}/metrics", timeout=30
    ) as answer:
        samples = [each for family in text_string_to_metric_families(answer.read().decode()) for each in family.samples]
    used, limits = (
        {(each.labels["role"], each.labels["part"]): each.value for each in samples if each.name == name}
        for name in ("millrace_memory_used_bytes", "millrace_memory_limit_bytes")
    )
    return {key: used[key] / limits[key] for key in used}


@pytest.mark.slow(minutes=1)
def test_a_driver_exports_the_memory_of_an_executor_which_is_far_from_full(counting: Counting) -> None:
    query = counting.query
    counting.start()
    wait_until(lambda: ("executors", "beside-heap") in memory_shares(query), "an executor has reported its memory")
    shares = memory_shares(query)
    print(shares)
    assert all(0.1 < shares["executors", part] < 0.75 for part in ("beside-heap", "container")), "nothing is reported"
    counting.check()
