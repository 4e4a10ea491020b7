"""The figures of the benchmark: latencies from a checkpoint's logs, and medians with ratios to plain Spark's."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class CommitLatency:
    """Percentiles of the milliseconds from record to committed result."""

    p50: float
    p95: float
    p99: float


def latency(times: Sequence[NDArray[np.int64]], checkpoint: Path, topic: str, skip: float) -> CommitLatency:
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
    return CommitLatency(float(p50), float(p95), float(p99))


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


PLAIN = "spark"
"""Plain Structured Streaming on Spark's own connector, the base of all ratios."""


@dataclass(frozen=True)
class Throughput:
    """One round: rows per second of its counted batches, and microseconds of processor time per row."""

    query: str
    skew: str
    contender: str
    rows_per_second: float
    processor_us: float


@dataclass(frozen=True)
class SteadyLatency:
    """One round at a steady rate: milliseconds from record to committed result."""

    query: str
    skew: str
    contender: str
    p50: float
    p95: float
    p99: float


Figure = TypeVar("Figure", Throughput, SteadyLatency)


def show_throughput(figures: Sequence[Throughput], console: Console) -> None:
    """Print medians, with ratios to plain Spark on the same query and stream."""
    table = Table(title="sustained throughput, and processor time per row")
    _columns(table, "rows/s", "x spark", "us/row", "x spark")
    for (query, skew, contender), rows in _grouped(figures):
        plain = [one for one in figures if (one.query, one.skew, one.contender) == (query, skew, PLAIN)]
        speed, cost = _median(rows, lambda one: one.rows_per_second), _median(rows, lambda one: one.processor_us)
        times_speed = _ratio(speed, _median(plain, lambda one: one.rows_per_second))
        times_cost = _ratio(cost, _median(plain, lambda one: one.processor_us))
        table.add_row(query, skew, contender, f"{speed:,.0f}", times_speed, f"{cost:.2f}", times_cost)
    console.print(table)


def show_latencies(figures: Sequence[SteadyLatency], console: Console) -> None:
    """Print medians of the percentiles, with ratios to plain Spark's."""
    table = Table(title="milliseconds from record to committed result, at a steady rate")
    _columns(table, "p50", "p95", "p99", "p50 x spark", "p99 x spark")
    for (query, skew, contender), rows in _grouped(figures):
        plain = [one for one in figures if (one.query, one.skew, one.contender) == (query, skew, PLAIN)]
        p50, p95, p99 = (_median(rows, attrgetter(name)) for name in ("p50", "p95", "p99"))
        ratios = (_ratio(p50, _median(plain, lambda one: one.p50)), _ratio(p99, _median(plain, lambda one: one.p99)))
        table.add_row(query, skew, contender, f"{p50:,.0f}", f"{p95:,.0f}", f"{p99:,.0f}", *ratios)
    console.print(table)


def _columns(table: Table, *figures: str) -> None:
    for name in ("query", "stream", "by"):
        table.add_column(name)
    for name in figures:
        table.add_column(name, justify="right")


def _grouped(figures: Sequence[Figure]) -> Iterable[tuple[tuple[str, str, str], list[Figure]]]:
    groups: dict[tuple[str, str, str], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.query, figure.skew, figure.contender), []).append(figure)
    return groups.items()


def _median(figures: Sequence[Figure], value: Callable[[Figure], float]) -> float:
    return statistics.median(map(value, figures)) if figures else float("nan")


def _ratio(value: float, plain: float) -> str:
    return f"{value / plain:.2f}" if plain == plain else "-"
