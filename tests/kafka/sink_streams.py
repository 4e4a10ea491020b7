"""Windows of a stream, the queries that count them, and what a sink in Kafka is to have."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sinks.kafka.sink import KafkaSink
from spark.answers import duckdb_rows
from spark.tables import parquet, table_of

SCHEMA = pa.schema([("moment", pa.timestamp("us")), ("key", pa.string()), ("value", pa.int64())])
COLUMNS = "moment TIMESTAMP, key STRING, value BIGINT"
PLACINGS = [("pkg", 3, 2), ("native", 1, 1), ("hash", 2, 3), ("shuffle", 4, 1), ("native", 2, 2), ("pkg", 2, 1)]
START = datetime(2024, 3, 1)
UPDATES = "SELECT key, count(*) AS records, sum(value) AS total FROM events GROUP BY key"
POSITIVE = UPDATES + " HAVING sum(value) > 0"
WINDOWS = "SELECT {window}, key, count(*) AS records, sum(value) AS total FROM events GROUP BY {window}, key"
SPARK_WINDOW = "window(moment, '1 minute')"


def made(seed, batches=5, rows=200):
    """Batches of records whose event times go forth, within the watermark's delay; values of both signs."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    return [
        [
            (
                START + timedelta(seconds=45 * batch + chance.uniform(0, 60)),
                f"key {min(int(chance.paretovariate(0.8)), 40)}",
                chance.randrange(-60, 50),
            )
            for _ in range(rows)
        ]
        for batch in range(batches)
    ]


def given(batches, first=0):
    return [(PLACINGS[(first + i) % len(PLACINGS)], parquet(SCHEMA, batch)) for i, batch in enumerate(batches)]


def answer(batches, sql):
    return duckdb_rows(table_of(SCHEMA, [row for batch in batches for row in batch]), sql)


def into(kind, broker, topic, **more):
    return {kind: {"bootstrapServers": broker.bootstrap, "topic": topic} | more}


def crash(monkeypatch, stream, file, batch, *, after_writing):
    """Run a batch whose writing to Kafka fails, before or after it has been done."""
    write = KafkaSink.write

    def crashing(sink, results, of):
        if of.number == batch and not after_writing:
            raise RuntimeError("before writing, as the test wants it")
        written = write(sink, results, of)
        if of.number == batch:
            raise RuntimeError("after writing, as the test wants it")
        return written

    with monkeypatch.context() as patch:
        patch.setattr(KafkaSink, "write", crashing)
        with pytest.raises(MillraceError, match="as the test wants it"):
            stream.feed([file])
