"""Latency of every record, from its creation to the commit of its batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Latency:
    """Percentiles of the milliseconds from record to committed result."""

    p50: float
    p95: float
    p99: float


def latency(times: Sequence[NDArray[np.int64]], checkpoint: Path, topic: str, skip: float) -> Latency:
    """Return the latency of a topic's records through the query that wrote a checkpoint.

    Args:
        times: for each partition, when its records were made, in milliseconds since 1970, by offset.
        checkpoint: Spark's own part of the checkpoint. Its logs have all batches of the run.
        topic: the topic of the records.
        skip: seconds after the first record that do not count, because Spark compiles during them.
    """
    first = min(int(made.min()) for made in times) + skip * 1000
    waited = []
    begins = [0] * len(times)
    for ends, committed in _batches(checkpoint, topic):
        for partition, made in enumerate(times):
            end = ends.get(str(partition), 0)
            counted = made[begins[partition] : end]
            waited.append(committed - counted[counted >= first])
            begins[partition] = end
    p50, p95, p99 = np.percentile(np.concatenate(waited), [50, 95, 99])
    return Latency(float(p50), float(p95), float(p99))


def _batches(checkpoint: Path, topic: str) -> Iterator[tuple[Mapping[str, int], float]]:
    """Yield each batch's end offsets by partition, and its commit time in milliseconds since 1970."""
    commits = sorted((int(file.name), file) for file in (checkpoint / "commits").glob("[0-9]*"))
    for batch, file in commits:
        offset = json.loads((checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2])
        yield _position(offset).get(topic, {}), file.stat().st_mtime_ns / 1e6


def _position(offset: Mapping[str, Any]) -> Mapping[str, Mapping[str, int]]:
    """Return offsets by topic and partition: one field of a Millrace offset, and the whole of the connector's."""
    position: Mapping[str, Mapping[str, int]] = offset.get("position", offset)
    return position
