"""A small query that tests change one thing of."""

from copy import deepcopy

from millrace_api.streamquery import StreamQuery

DOCUMENT = {
    "apiVersion": "millrace.io/v1alpha1",
    "kind": "StreamQuery",
    "metadata": {"name": "fares"},
    "spec": {
        "sources": {
            "trips": {
                "files": {"path": "data/*.csv", "format": "csv", "maxFilesPerBatch": 2},
                "schema": "at TIMESTAMP, fare DOUBLE",
                "watermark": {"column": "at", "delay": "10 minutes"},
            }
        },
        "query": {"sql": "SELECT count(*) FROM trips"},
        "sink": {"files": {"path": "out", "format": "csv"}},
        "parallelism": {"max": 4},
    },
}


def a_query(*path, value=None):
    """The query with one thing changed."""
    document = deepcopy(DOCUMENT)
    if path:
        inner = document
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return StreamQuery.model_validate(document)
