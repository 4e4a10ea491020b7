"""The answers of look-ups judged by the topic: each is to be its key's newest row up to the batch that it names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_AT_ONCE = 10_000
_PATIENCE = 60.0
_BATCH = "millrace-batch"

_COLUMNS = "{'key': 'VARCHAR', 'batch': 'BIGINT', 'n': 'BIGINT', 'status': 'INTEGER', 'ms': 'DOUBLE'}"

_JUDGE = """
SELECT count(*), count(*) FILTER (status <> 200), count(*) FILTER (status = 200 AND a.n IS DISTINCT FROM v.n),
       count(DISTINCT a.batch), count(v.n), quantile_cont(ms, 0.5), quantile_cont(ms, 0.99), max(ms)
FROM answers a ASOF LEFT JOIN versions v ON a.key = v.key AND coalesce(a.batch, -1) >= v.batch
"""


@dataclass(frozen=True)
class LookupFigures:
    """All look-ups of a run.

    ``refused`` have an HTTP status other than 200; ``wrong`` have not the row that the topic has for the batch that
    they name. ``batches`` is how many batches they name, and ``rows`` how many have a row at all. ``p50``, ``p99`` and
    ``longest`` are milliseconds.
    """

    count: int
    refused: int
    wrong: int
    batches: int
    rows: int
    p50: float
    p99: float
    longest: float


def judge(files: Sequence[Path], servers: str, topic: str) -> LookupFigures:
    """Compare the answers in some files of ``bench.lookups.load`` with the messages of the table's topic."""
    versions = versions_in(servers, topic)
    with duckdb.connect() as connection:
        return judge_by(connection, files, versions)


def judge_by(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], versions: pa.Table) -> LookupFigures:
    """Compare the answers in some files with all versions of the rows, as ``versions_in`` returns them."""
    connection.register("versions", versions)
    names = [str(file) for file in files]
    connection.execute(
        f"CREATE TABLE answers AS SELECT * FROM read_csv($names, header = false, columns = {_COLUMNS})",
        {"names": names},
    )
    found = connection.execute(_JUDGE).fetchone()
    assert found is not None
    return LookupFigures(*found)


def versions_in(servers: str, topic: str) -> pa.Table:
    """Return all versions of the rows in a topic that is not compacted yet: ``key``, ``batch`` and ``n``."""
    settings = {"group.id": uuid.uuid4().hex, "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": servers, "enable.partition.eof": True} | settings)
    try:
        left = set(consumer.list_topics(topic, _PATIENCE).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        keys, batches, values = list[str](), list[int](), list[int]()
        while left:
            for message in consumer.consume(_AT_ONCE, 0.5):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if error is not None:
                    left.discard(message.partition() or 0)
                    continue
                row = json.loads(message.value() or b"")
                keys.append(row["key"])
                values.append(row["n"])
                batches.append(int(dict(message.headers() or ())[_BATCH] or b""))
        return pa.table({"key": keys, "batch": batches, "n": values})
    finally:
        consumer.close()
