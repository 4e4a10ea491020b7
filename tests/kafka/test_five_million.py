"""Five million results in one batch, in the default memory: written by the driver, by tasks, and into a table.

``MILLRACE_RESULTS`` is their number. A reader of committed messages counts them: each key once, with its sum, which
follows from the key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from lab.kafka import Broker
from lab.topics import PATIENCE, partitions
from spark.cli import fields

from .faults.job import Job
from .memory import MemoryOf

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(3600)]

RESULTS = int(os.environ.get("MILLRACE_RESULTS", "5000000"))
LONGEST = 3_000.0
"""Seconds until a run has to be over on a busy machine."""

GROUPS = "SELECT k, count(*) AS records, sum(v) AS total FROM events GROUP BY k"
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "driver": ("kafka", GROUPS, {"transaction": "Batch"}),
    "tasks": ("kafka", GROUPS, {"transaction": "Partition"}),
    "table": ("table", GROUPS, {}),
    "table whose rows can go": ("table", f"{GROUPS} HAVING count(*) < 2", {}),
}
"""The sink, the query and further fields of the sink."""


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a record for each key."""
    folder = tmp_path_factory.mktemp("inbox")
    keys = np.arange(RESULTS)
    pq.write_table(pa.table({"k": keys, "v": value_of(keys)}), folder / "events.parquet", row_group_size=250_000)
    return folder


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.slow(minutes=6)) for case in CASES])
def test_five_million_results_fit_into_one_batch(
    broker: Broker, make_topic: Callable[..., str], inbox: Path, tmp_path: Path, case: str, capsys: Any
) -> None:
    kind, sql, more = CASES[case]
    topic = make_topic(4, cleanup_policy="compact" if kind == "table" else "delete")
    job = Job(query_file(tmp_path, sql, {kind: {"bootstrapServers": broker.bootstrap, "topic": topic} | more}, inbox),
              {"JAVA_TOOL_OPTIONS": ""})  # fmt: skip
    job.start("--once")
    with MemoryOf(job.process) as memory:
        status = job.process.wait(LONGEST)
    assert status == 0, job.report()
    lines = [fields(line) for line in job.said.splitlines() if line.startswith("batch=")]
    assert [int(line["rows"]) for line in lines if int(line["rows"])] == [RESULTS], "all are in one batch"
    assert_each_once(committed_chunks(broker, topic))
    jvm, python = (max(sizes) for sizes in zip(*memory.samples, strict=True))
    with capsys.disabled():
        print(f"\n{case}: at most {jvm:,.0f} MiB in the JVM, and {python:,.0f} MiB in all Python processes")


def query_file(folder: Path, sql: str, sink: dict[str, Any], inbox: Path) -> Path:
    """A query with nothing but what it has to have."""
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "many"},
        "spec": {
            "sources": {"events": {"files": {"path": str(inbox), "format": "parquet"}, "schema": "k BIGINT, v BIGINT"}},
            "query": {"sql": sql},
            "sink": sink,
            "emit": "OnUpdate",
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
        },
    }
    file = folder / "query.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def value_of(keys: Any) -> Any:
    return keys * 7 % 1_000


def assert_each_once(chunks: Iterator[list[Message]]) -> None:
    """Each key is there once, with its sum, and all results are of one batch."""
    found, batches = np.zeros(RESULTS, np.int64), set()
    for messages in chunks:
        batches |= {dict(message.headers() or ())["millrace-batch"] for message in messages}
        keys = rows_of(message.key() for message in messages)
        rows = rows_of(message.value() for message in messages)
        numbers = np.array([row["k"] for row in rows])
        assert [key["k"] for key in keys] == numbers.tolist()
        assert {row["records"] for row in rows} == {1}
        assert np.array_equal([row["total"] for row in rows], value_of(numbers))
        np.add.at(found, numbers, 1)
    assert np.all(found == 1), (int(np.sum(found == 0)), int(np.sum(found > 1)))
    assert len(batches) == 1


def rows_of(texts: Iterator[Any]) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = json.loads(b"[" + b",".join(texts) + b"]")
    return rows


def committed_chunks(broker: Broker, topic: str) -> Iterator[list[Message]]:
    """The committed messages of a topic up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "counting",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    unread = set(partitions(broker, topic))
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
    try:
        while unread:
            messages = consumer.consume(10_000, PATIENCE)
            assert messages, f"{topic} has no end in {PATIENCE} s"
            rows = []
            for message in messages:
                error = message.error()
                if error is None:
                    rows.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread.discard(message.partition() or 0)
            if rows:
                yield rows
    finally:
        consumer.close()
