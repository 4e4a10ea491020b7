"""A checkpoint with one finished batch, and its query, without Spark."""

from __future__ import annotations

from pathlib import Path

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.places import Place, write_durably
from spark.streams import stream_document

ENTRY = b'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"source":"events","position":{"files":1}}'


def counting_query(folder: Path) -> StreamQuery:
    """Return a query whose inputs and results are in a folder."""
    document = stream_document(folder, schema="key STRING", sql="SELECT key, count(*) AS n FROM events GROUP BY key")
    return StreamQuery.model_validate(document)


def made(place: Place, query: StreamQuery) -> Checkpoint:
    """A checkpoint with one finished batch."""
    checkpoint = Checkpoint(place)
    checkpoint.open(query, 2)
    checkpoint.adopt(query)
    checkpoint.close()
    for name, content in {
        "metadata": b"{}",
        "offsets/0": ENTRY,
        "commits/0": b"v1\n{}",
        "state/0/0/1.delta": b"12",
    }.items():
        target = place / "spark"
        for part in name.split("/"):
            target = target / part
        write_durably(target, content)
    return checkpoint
