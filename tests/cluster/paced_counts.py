"""Counts whose aggregator waits for each record: work that executors divide, and that leaves a machine's cores idle."""

from __future__ import annotations

from typing import Any

from lab.parts.millrace_images import SCORING_IMAGE

FIRST, MOST = 2, 6
"""Executors at the start and at least, and at most."""

RECORD = 8_000
"""Microseconds that the aggregator waits for a record: 100 of them a second take most of the time of a core."""


def paced_counts(interval: int) -> dict[str, Any]:
    """Return the parts of a query with batches of so many seconds that is scaled."""
    options = {"column": "name", "microseconds": RECORD}
    return {
        "image": SCORING_IMAGE,
        "query": {"python": {"aggregator": "paced:PacedCount", "groupBy": ["name"], "options": options}},
        "batchInterval": f"{interval}s",
        "partitioner": {"algorithm": "shuffle", "replicas": {"initial": 2, "max": 4}},
        "parallelism": {"initial": 4, "max": 12},
        "executors": {"initial": FIRST, "min": FIRST, "max": MOST},
        "scaling": {"mode": "Active", "window": 3, "grace": 3},
    }
