"""Queries over a generated recording, which several benchmarks run in Spark, and a run of one of them to its end."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.plan.plan_source import PlanSource
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.assembly import RunEnvironment, RunInputs, RunQuery
from millrace_jobs.run.listener import Watcher
from millrace_jobs.run.loop import RunLoop
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sources.replay.connector import ReplaySource

QUERIES: Mapping[str, Mapping[str, object]] = {
    "tumbling": {"sql": "SELECT window.start AS w, key, count(*) AS n FROM s GROUP BY window(at, '10 seconds'), key"},
    "hopping": {
        "sql": "SELECT window.start AS w, key, count(*) AS n FROM s GROUP BY window(at, '60 seconds', '1 second'), key"
    },
    "python": {
        "python": {
            "aggregator": "examples.top_values:TopValues",
            "options": {"column": "value", "k": 5},
            "groupBy": ["key"],
            "window": {"column": "at", "size": "10s"},
        }
    },
    "heavy": {
        "python": {
            "aggregator": "bench.digests:Digests",
            "options": {"column": "value"},
            "groupBy": ["key"],
            "window": {"column": "at", "size": "10s"},
        }
    },
}


def stream_query(query: Mapping[str, object], **more: object) -> StreamQuery:
    """Return a StreamQuery over a stream made by ``make_stream``, with ``more`` in its spec."""
    document = {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "bench"},
        "spec": {
            "sources": {
                "s": {
                    "replay": {"path": "stream.parquet", "format": "parquet", "timeColumn": "at"},
                    "schema": "at TIMESTAMP, key STRING, value STRING",
                    "watermark": {"column": "at", "delay": "5s"},
                }
            },
            "query": query,
            "sink": {"console": {}},
            **more,
        },
    }
    return StreamQuery.model_validate(document)


def make_stream(path: Path, rows: int, shares: NDArray[np.float64], batch: int) -> None:
    """Write a recording: keys with these shares, 50 values, and a minute of event time for every batch."""
    rng = np.random.default_rng(7)
    keys = rng.choice(len(shares), size=rows, p=shares)
    at = np.arange(rows, dtype=np.int64) * 60_000_000 // batch
    table = pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "key": pa.array(np.char.add("key-", keys.astype(str))),
            "value": pa.array(np.char.add("v", rng.integers(0, 50, rows).astype(str))),
        }
    )
    pq.write_table(table, path)


def recording(path: Path, cache: Path, rows: int, name: str = "s", time_column: str = "at") -> ReplaySource:
    """Return a source that replays a recording in batches of ``rows`` records."""
    schema = pq.read_schema(path)
    return ReplaySource(name, str(path), "parquet", schema, time_column, str(cache), max_rows_per_batch=rows)


class NoSink:
    """A sink that computes results and drops them."""

    place = "nowhere"

    def prepare(self, last: LastBatch) -> None:
        """Do nothing: there is no table or topic to prepare."""

    def shape(self, results: DataFrame) -> DataFrame:
        """Return the results unchanged."""
        return results

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute the results and drop them."""
        results.write.format("noop").mode("overwrite").save()
        return 0

    def withdraw(self) -> None:
        """Do nothing: ``prepare`` did nothing."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def run_to_the_end(
    spark: SparkSession,
    query: StreamQuery,
    compiled: CompiledQuery,
    source: ReplaySource,
    checkpoint: Checkpoint,
    plans: PlanSource,
    watcher: Watcher,
) -> None:
    """Run a query over a whole recording, drop its results, and close its checkpoint."""
    RunLoop(
        RunQuery(query.name, query.spec, compiled, NoSink()),
        RunInputs({source.name: source}),
        RunEnvironment(spark, checkpoint, Path(tempfile.mkdtemp(dir=str(checkpoint.root.parent)))),
        plans=plans,
        watcher=watcher,
        once=True,
    ).run()
    checkpoint.close()
