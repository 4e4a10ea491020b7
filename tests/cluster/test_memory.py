"""A query that needs more memory than its executors have: they get more, without a person."""

from __future__ import annotations

import pytest

from lab.counting_query import Counting

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=12), pytest.mark.timeout(1800)]

MEBIBYTES = 400
"""Of a value that the query makes for each key of a batch, in the heap, in one piece."""

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
