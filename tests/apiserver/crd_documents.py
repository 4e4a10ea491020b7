"""Documents for the CRD, and what its rules say of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from millrace_api.model.base import Model
from unit.api.documents import MINIMAL, PYTHON
from unit.resources.cases import REPORTED

EXAMPLES = Path(__file__).parents[2] / "examples"
QUERIES = [*sorted(EXAMPLES.glob("*.yaml")), *sorted(EXAMPLES.glob("*/query.yaml"))]
VALID = [MINIMAL, PYTHON, REPORTED, *(path.read_text(encoding="utf-8").rpartition("\n---\n")[2] for path in QUERIES)]


def rules_without_cel() -> set[str]:
    """Messages of the rules that only Millrace itself can check."""
    found: set[str] = set()
    waiting: list[type[Model]] = [Model]
    while waiting:
        model = waiting.pop()
        waiting += model.__subclasses__()
        found |= {rule.message for rule in getattr(model, "rules", ()) if rule.cel is None}
    return found


def as_told_by_cel(sentence: str) -> str:
    """``LINE: FIELD: MESSAGE (got VALUES); HINT`` without place and values, which the API server tells in its way."""
    without_values = re.sub(r" \(got [^;]*\)(?=;)", "", sentence)
    return without_values.split(": ", 2)[2]


def as_users_write(text: str) -> list[dict[str, Any]]:
    """Return the objects for a query whose Kafka logins are resolved: its Connections, and the query that names them."""
    query: dict[str, Any] = yaml.safe_load(text)
    places = {**query["spec"]["sources"], "results": query["spec"]["sink"]}
    connections = []
    for name, place in places.items():
        kafka = place.get("kafka", {})
        if kafka.keys() & {"tls", "sasl"}:
            known = {part: kafka.pop(part) for part in ("bootstrapServers", "tls", "sasl") if part in kafka}
            connections.append(connection(name, known))
            kafka["connection"] = name
    return [*connections, query]


def connection(name: str, kafka: dict[str, Any]) -> dict[str, Any]:
    """Return a Connection."""
    api = {"apiVersion": "millrace.io/v1alpha1", "kind": "Connection"}
    return api | {"metadata": {"name": name}, "spec": {"kafka": kafka}}


STATUS = {
    "observedGeneration": 1,
    "phase": "Running",
    "plan": {
        "epoch": 3,
        "algorithm": "pkg",
        "replicas": 2,
        "parallelism": 8,
        "executors": 1,
        "appliedEpoch": 3,
    },
    "load": {"utilization": 0.83, "lag": 1200},
    "selector": "millrace.io/query=trips-by-cell",
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "BatchesRunning",
            "message": "",
            "lastTransitionTime": "2026-01-31T12:00:00Z",
        }
    ],
}
