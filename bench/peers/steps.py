"""Batch times of a contender on Spark, in total and by step."""

from __future__ import annotations

import json
import re
import statistics
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_METRICS = re.compile(r" metrics=(\S+)")
_SUM = re.compile(r'^millrace_batch_step_seconds_total\{[^}]*step="(\w+)"[^}]*\} (\S+)$', re.MULTILINE)
_BATCHES = re.compile(r"^millrace_batch_processing_seconds_count(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Steps:
    """The number of finished batches, and the milliseconds of each step over all of them."""

    batches: int
    milliseconds: Mapping[str, float]

    def since(self, before: Steps) -> Mapping[str, float]:
        """Return the mean milliseconds of each step in the batches since ``before``."""
        batches = max(self.batches - before.batches, 1)
        return {
            step: (total - before.milliseconds.get(step, 0.0)) / batches for step, total in self.milliseconds.items()
        }


NONE = Steps(0, {})


def of_plain_spark(log: Path) -> Steps:
    """Read the steps from the lines that the plain job prints."""
    batches: list[dict[str, float]] = [entry["steps"] for entry in _plain_batches(log)]
    names = dict.fromkeys(name for batch in batches for name in batch)
    return Steps(len(batches), {name: sum(batch.get(name, 0.0) for batch in batches) for name in names})


def of_millrace(log: Path) -> Steps:
    """Read the steps from Millrace's metrics."""
    url = _METRICS.search(log.read_text(encoding="utf-8"))
    if url is None:
        return NONE
    with urllib.request.urlopen(url[1], timeout=10) as answer:
        text = answer.read().decode()
    batches = sum(float(count) for count in _BATCHES.findall(text))
    return Steps(int(batches), {step: float(total) * 1000 for step, total in _SUM.findall(text)})


def median_plain(log: Path, last: int, *, empty: bool = False) -> float:
    """Return the median milliseconds of the ``last`` batches with records, or of the ``last`` empty batches."""
    times = [float(entry["steps"]["triggerExecution"]) for entry in _plain_batches(log) if bool(entry["rows"]) != empty]
    return statistics.median(times[-last:])


def median_millrace(log: Path, last: int, interval: int, *, empty: bool = False) -> float:
    """Return the same median for Millrace, which prints W: processing time over the interval."""
    lines = re.findall(r"^batch=\d+ rows=(\d+) .*?W=(\S+)", log.read_text(encoding="utf-8"), re.MULTILINE)
    return statistics.median([float(w) * interval for rows, w in lines if bool(int(rows)) != empty][-last:])


def _plain_batches(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith('{"rows"')]
