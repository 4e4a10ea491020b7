"""Builders of test objects: every field has a sensible default, and a test changes the ones it is about."""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin

PIN = Pin(epoch=1, algorithm="pkg", replicas=2, workers=4)

_REPORT = BatchReport(
    batch=12,
    began=datetime(2013, 1, 1, 12, 0, 1, tzinfo=UTC),
    ended=datetime(2013, 1, 1, 12, 0, 2, tzinfo=UTC),
    seconds=0.84,
    steps={"latestOffset": 0.01, "walCommit": 0.02, "queryPlanning": 0.05, "addBatch": 0.7, "commitOffsets": 0.02},
    interval=2.0,
    rows=5000,
    bytes=200_000,
    rejected=0,
    late=0,
    taken=0,
    waiting=0,
    pin=PIN,
    watermark=datetime(2013, 1, 1, 11, 59, 30, tzinfo=UTC),
    worker_rows=(1290, 1230, 1240, 1240),
    worker_keys=(30, 28, 31, 27),
    distinct_keys=60,
    route=(0.1, 0.2),
    combine=(0.2, 0.1, 0.1, 0.1),
    merge_seconds=0.4,
    search_seconds=0.1,
    state_rows=600,
    state_bytes=65_536,
    latest_event=1_357_041_600_000_000,
    state_partitions=4,
    routed=4900,
    routed_bytes=98_000,
    partial_bytes=2_320,
)


def a_batch(**changes):
    """Return the report of a routed batch without problems."""
    return replace(_REPORT, **changes)


def a_native_batch(**changes):
    """Return the report of a batch that Spark ran by its own plan, without routing."""
    native = {
        "pin": replace(PIN, algorithm="native"),
        "worker_rows": (),
        "worker_keys": (),
        "distinct_keys": None,
        "route": (),
        "combine": (),
    }
    return replace(_REPORT, **native | changes)


_QUERY = {
    "apiVersion": "millrace.io/v1alpha1",
    "kind": "StreamQuery",
    "metadata": {"name": "fares"},
    "spec": {
        "sources": {
            "trips": {
                "files": {"path": "data/*.csv", "format": "csv", "maxFilesPerBatch": 2},
                "schema": "at TIMESTAMP, fare DOUBLE",
                "watermark": {"column": "at", "delay": "10m"},
            }
        },
        "query": {"sql": "SELECT count(*) FROM trips"},
        "sink": {"files": {"path": "out", "format": "csv"}},
        "parallelism": {"max": 4},
    },
}


def a_query(*path, value=None):
    """Return a small query over files, with the field at ``path`` set to ``value``."""
    document = deepcopy(_QUERY)
    if path:
        inner = document
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return StreamQuery.model_validate(document)
