"""A query whose state is kept in Kafka's windows while records come late."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millrace_jobs.session import COUNTS_ROWS
from spark.disorder import DELAY


def document(servers: str, source: str, sink: dict[str, Any], folder: Path, emit: str, **query: Any) -> dict[str, Any]:
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "state"},
        "spec": {
            "sources": {
                "events": {
                    "kafka": {"bootstrapServers": servers, "topic": source},
                    "schema": "moment TIMESTAMP, key STRING, value BIGINT",
                    "watermark": {"column": "moment", "delay": f"{DELAY.seconds}s"},
                }
            },
            "query": query,
            "sink": sink,
            "emit": emit,
            "batchInterval": "100ms",
            "parallelism": {"max": 16},
            "partitioner": {"replicas": {"max": 4}},
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
            "sparkConf": {COUNTS_ROWS: "true"},
        },
    }


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
