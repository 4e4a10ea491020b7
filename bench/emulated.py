"""Batch times as if each task had a core of its own, from Spark's event log of a run with fewer cores.

A stage then takes as long as its longest task, without waves of tasks. The time between stages stays. A task runs on
one core in the real run too, so it takes as long as it would with a core for each task.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BATCH = "streaming.sql.batchId"
_RUN = "sql.streaming.queryId"


@dataclass
class _Stage:
    """The times of one stage, in milliseconds."""

    first: int = 1 << 62
    last: int = 0
    longest: int = 0

    @property
    def waited(self) -> int:
        """Milliseconds by which the stage would have ended sooner."""
        return max(self.last - self.first - self.longest, 0)


def log_settings(folder: Path) -> Mapping[str, str]:
    """Return the settings with which Spark writes its event log into ``folder``."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def seconds_waited(folder: Path) -> dict[tuple[str, int], float]:
    """Return the seconds by which each batch would have been shorter, by query id and batch number."""
    batch_of: dict[int, tuple[str, int]] = {}
    stages: defaultdict[int, _Stage] = defaultdict(_Stage)
    for event in _events(folder):
        if event["Event"] == "SparkListenerJobStart" and _BATCH in event["Properties"]:
            key = event["Properties"][_RUN], int(event["Properties"][_BATCH])
            batch_of.update(dict.fromkeys(event["Stage IDs"], key))
        elif event["Event"] == "SparkListenerTaskEnd":
            stage, task = stages[event["Stage ID"]], event["Task Info"]
            stage.first = min(stage.first, task["Launch Time"])
            stage.last = max(stage.last, task["Finish Time"])
            stage.longest = max(stage.longest, task["Finish Time"] - task["Launch Time"])
    waited: defaultdict[tuple[str, int], float] = defaultdict(float)
    for number, stage in stages.items():
        if number in batch_of:
            waited[batch_of[number]] += stage.waited / 1000
    return waited


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for file in folder.iterdir():
        with file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
