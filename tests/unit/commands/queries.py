"""Queries as the API server stores them, with a complete status, and a scaling decision."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from millrace_operator.scaling.decision.changes import Change, ChangeOutcome, Line
from millrace_operator.scaling.decision.decision import Decision, Inputs, Reason
from millrace_operator.scaling.decision.search import Forecast
from millrace_operator.scaling.decision.settings import Guard
from millrace_operator.scaling.shape import Shape
from millrace_operator.scaling.zones import LoadDriver, Zone

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)

GOLDENS = Path(__file__).parent / "goldens"


def condition(type: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-31T11:00:00Z",
    }


BUSY: dict[str, Any] = {
    "observedGeneration": 3,
    "phase": "Running",
    "conditions": [
        condition("Ready", "True", "Running", "the driver is ready"),
        condition("Progressing", "False", "Settled"),
        condition("MetricsAvailable", "True", "Fresh"),
        condition("ScalingLimited", "True", "AtQuota", "the quota allows 3 executors"),
        condition("Degraded", "Unknown", "Unseen", "no batch has ended yet"),
    ],
    "plan": {
        "epoch": 4,
        "algorithm": "pkg",
        "replicas": 2,
        "parallelism": 12,
        "executors": 3,
        "appliedEpoch": 3,
    },
    "load": {
        "utilization": 0.834,
        "inputRate": 51234.5,
        "lag": 1200,
        "observedTime": "2026-01-31T11:59:48Z",
    },
    "lastScaling": {
        "time": "2026-01-31T11:55:00Z",
        "from": {"executors": 2, "parallelism": 8, "replicas": 2},
        "to": {"executors": 3, "parallelism": 12, "replicas": 2},
        "reason": "ScaleOut",
        "message": "W was 1.02 (batches took 2.04 s, the interval is 2 s), and 51,234 records/s arrive",
        "predicted": 0.71,
        "observed": 0.75,
    },
    "driver": {"pod": "trips-by-cell-driver-0", "startTime": "2026-01-31T09:00:00Z", "restarts": 1},
    "attempts": [
        {
            "time": "2026-01-31T08:59:00Z",
            "reason": "UserCodeFailed",
            "message": "ZeroDivisionError: division by zero\n  in \x1b[31mroutes.py\x1b[0m",
        }
    ],
}


def query(
    status: Mapping[str, Any] | None = None,
    *,
    name: str = "trips-by-cell",
    generation: int = 3,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "streams",
        "uid": "0a1b",
        "generation": generation,
        "resourceVersion": "17",
        "annotations": dict(annotations or {}),
    }
    return {"metadata": metadata, "spec": spec} | ({} if status is None else {"status": dict(status)})


def decision() -> Decision:
    """Return a decision for more executors, though fewer than wanted, after a change that helped."""
    small, large = Shape(2, 8, 2), Shape(3, 12, 2)
    change = Change(NOW.timestamp() - 3600, Shape(1, 4, 2), small, 20_000.0, (Line(0.2, 1e-5), Line(0.2, 5e-6)))
    return Decision(
        time=NOW.timestamp() - 300,
        before=small,
        plan=large,
        reason=Reason.SCALE_OUT,
        guard=Guard.QUOTA,
        detail="the quota allows 3 executors",
        zone=Zone.OVERLOADED,
        drivers=frozenset({LoadDriver.RATE, LoadDriver.KEYS}),
        inputs=Inputs(2.0, 1.02, 0.98, 0.97, 51234.5, 0.2, 12000.0, 61000.0, 1000.0),
        present=Forecast(small, 1.1, 1.0, 1.21, "combine"),
        chosen=Forecast(large, 0.86, 0.8, 0.93, "fixed"),
        ruled_out=((Shape(4, 16, 2), "the quota allows 3 executors"), (small, "W 1.15 is above 0.90")),
        outcome=ChangeOutcome(change, without=2.1, predicted=1.5, observed=1.6),
        sentence="W was 1.02 (batches took 2.04 s, the interval is 2 s): 2/8/2 -> 3/12/2 is the cheapest plan that is "
        "allowed.",
    )


def as_written(decision: Decision) -> str:
    """Return the decision as the operator stores it: enums as their values, sets as sorted lists."""
    return json.dumps(dataclasses.asdict(decision), default=sorted)


def drawn(picture: RenderableType, width: int = 80) -> str:
    """Return the output on a terminal without colors, and check that no line is wider than it."""
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, emoji=False).print(picture)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return "\n".join(lines) + "\n"


def assert_golden(name: str, text: str) -> None:
    """Compare the text with a golden file. With MILLRACE_UPDATE_GOLDEN=1, write the file first."""
    file = GOLDENS / f"{name}.txt"
    if os.environ.get("MILLRACE_UPDATE_GOLDEN"):
        GOLDENS.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
