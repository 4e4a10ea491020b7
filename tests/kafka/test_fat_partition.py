"""Nine records of ten in one of eight Kafka partitions: replicas read as much as each other all the same."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql.streaming.listener import StreamingQueryListener

from lab import topics
from millrace_jobs.pipeline.blocks import OBSERVED
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.run.query_file import query_of
from spark.streams import plan, results_in

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RECORDS = 60_000
PARTITIONS = 8
FAT = 3
PER_BATCH = 25_000
KEYS = 40


class ReplicaNotes(StreamingQueryListener):
    """Keeps what the replicas of each batch say to have read, by batch and replica."""

    def __init__(self) -> None:
        self.read: dict[int, dict[int, int]] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        for name, observed in progress["observedMetrics"].items():
            if name.startswith(OBSERVED):
                notes = [json.loads(text) for text in observed["notes"]]
                replicas = [replica for note in notes for replica in note["replicas"]]
                self.read[progress["batchId"]] = {note["replica"]: note["read"] for note in replicas}

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


def document(servers: str, topic: str, folder: Path) -> dict[str, Any]:
    """A count by key, in batches of at most ``PER_BATCH`` records, to which an interval like that lets them grow."""
    kafka = {"bootstrapServers": servers, "topic": topic, "maxRecordsPerBatch": PER_BATCH}
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "fat"},
        "spec": {
            "sources": {"events": {"kafka": kafka, "format": "json", "schema": "key STRING, n BIGINT"}},
            "query": {"sql": "SELECT key, count(*) AS records, sum(n) AS total FROM events GROUP BY key"},
            "sink": {"files": {"path": str(folder / "results")}},
            "emit": "OnUpdate",
            "batchInterval": "10m",
            "partitioner": {"replicas": {"max": 8}},
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
        },
    }


@pytest.mark.in_turn
@pytest.mark.parametrize("replicas", [4, 7])
def test_slices_are_even_where_partitions_are_not(spark, broker, make_topic, tmp_path, replicas):
    topic = make_topic(PARTITIONS)
    numbers = range(RECORDS)
    texts = [f'{{"key":"k{number % KEYS}","n":{number}}}' for number in numbers]
    fat = RECORDS * 9 // 10
    topics.fill(broker, topic, texts[:fat], FAT)
    thin = [partition for partition in range(PARTITIONS) if partition != FAT]
    for place, partition in enumerate(thin):
        topics.fill(broker, topic, texts[fat + place :: len(thin)], partition)
    query, plan_file = tmp_path / "query.yaml", tmp_path / "plan.yaml"
    query.write_text(yaml.safe_dump(document(broker.bootstrap, topic, tmp_path)), encoding="utf-8")
    plan_file.write_text(plan(1, ("hash", 2, replicas)).to_json(), encoding="utf-8")

    notes = ReplicaNotes()
    spark.streams.addListener(notes)
    with Job(query_of(query), OneProcess(plan_file), once=True) as job:
        job.run()

    read = [batch for batch in notes.read.values() if sum(batch.values())]
    assert sum(sum(batch.values()) for batch in read) == RECORDS
    assert len(read) >= 3
    assert max(sum(batch.values()) for batch in read) <= PER_BATCH
    for batch in read:
        slices = list(batch.values())
        assert len(slices) == replicas
        assert max(slices) <= 1.1 * statistics.mean(slices), slices
    print(f"m={replicas}: {[sorted(batch.values()) for batch in read]}")
    assert answer(tmp_path) == {
        f"k{key}": (len(range(key, RECORDS, KEYS)), sum(range(key, RECORDS, KEYS))) for key in range(KEYS)
    }


def answer(folder: Path) -> dict[str, tuple[int, int]]:
    """The last update of every key."""
    rows = sorted(results_in(folder).to_pylist(), key=lambda row: row["_batch_id"])
    assert max(Counter((row["key"], row["_batch_id"]) for row in rows).values()) == 1
    return {row["key"]: (row["records"], row["total"]) for row in rows}
