"""Routing: a replica places the records of its slice, block by block, on the workers of the pinned plan.

Spark's shuffle carries the blocks to ``combine``.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.partitioners.base import BatchPartitioner, Hashes, Partitioner, Workers
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.partitioners.registry import make
from millrace_jobs.partitioners.shuffle import Shuffle
from millrace_jobs.pipeline import blocks
from millrace_jobs.pipeline.combine import Combiner
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.policies import state_of, state_text
from millrace_jobs.windows import AT, TimeSpan, Window, pane_starts

CONTROL = "control"
"""Column of a source's rows: JSON from the replica on rows that carry no record, NULL on all others."""

Project = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True)
class Router:
    """Projection and routing of the batches of one slice.

    ``keys`` is how many of the block columns, from the first, are keys. ``time_column`` is the event-time column of the
    batches before projection; it is empty if the query has no window. ``since_epoch`` is whether Spark's
    own merge closes the windows, whose watermark begins at 1970.
    """

    project: Project
    keys: int
    window: Window | None
    time_column: str = ""
    since_epoch: bool = False

    def __call__(
        self, batches: Iterable[pa.RecordBatch], pin: Pin, replica: int, watermark: int, state: bytes | None = None
    ) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Yield the block stream of one replica, and return the content of the replica's note.

        ``watermark`` is in microseconds. A record is late when all its windows have ended by then. Late records are
        only counted here; the merge drops their partial results. ``state`` is the initial state of the partitioner.
        """
        partitioner = _partitioner(pin, replica, state)
        watch, reading = _Stopwatch(), _Stopwatch()
        read = size = routed = late = sent = 0
        times = TimeSpan()

        def projected() -> Iterator[tuple[pa.RecordBatch, Hashes]]:
            nonlocal read, size, routed, late
            for source_batch in reading.timed(batches):
                with watch:
                    batch = self.project(source_batch)
                    read += source_batch.num_rows
                    size += source_batch.nbytes
                    if self.time_column:  # also of records that the filter drops
                        times.add(source_batch.column(self.time_column))
                    routed += batch.num_rows
                    if not batch.num_rows:
                        continue
                    late += self.late(batch, watermark)
                    hashes = hash_columns(batch.columns[: self.keys], batch.num_rows)
                yield batch, hashes

        for batch, ids in _placed(partitioner, projected(), watch):
            with watch:
                cut = blocks.split(batch, ids, pin.workers)
                sent += cut.column("block").nbytes
            yield cut
        with watch:
            partitioner.advance()
            final_state = state_text(partitioner.save())
        note: dict[str, Any] = {
            "read": read,
            "bytes": size,
            "routed": routed,
            "sent": sent,
            "late": late,
            "seconds": round(watch.seconds, 6),
            "reading": round(reading.seconds, 6),
            "epoch": pin.epoch,
            "state": final_state,
        }
        return note | times.note() | ({"incomplete": times.missing} if times.missing else {})

    def late(self, batch: pa.RecordBatch, watermark: int) -> int:
        """Return how many projected records are late: all their windows have ended by the watermark."""
        if self.window is None or not (watermark or self.since_epoch):
            return 0
        ends = self.window.last_end(pane_starts(batch.column(AT), self.window))
        return int(np.count_nonzero(ends <= watermark))


def _partitioner(pin: Pin, replica: int, state: bytes | None) -> Partitioner:
    partitioner = make(
        pin.algorithm,
        workers=pin.workers,
        replica=replica,
        replicas=pin.replicas,
        seed=pin.seed,
        parameters=pin.parameters,
    )
    if state is not None:
        partitioner.restore(state)
    return partitioner


def _placed(
    partitioner: Partitioner, keyed: Iterable[tuple[pa.RecordBatch, Hashes]], watch: _Stopwatch
) -> Iterator[tuple[pa.RecordBatch, Workers]]:
    """Yield each batch with the workers of its records; a batch partitioner places the slice once it is complete."""
    if not isinstance(partitioner, BatchPartitioner):
        for batch, hashes in keyed:
            with watch:
                ids = partitioner.route(hashes)
            yield batch, ids
        return
    held = []
    for batch, hashes in keyed:
        with watch:
            partitioner.accumulate(hashes)
        held.append(batch)
    with watch:
        ids = partitioner.cut()
    ends = np.cumsum([batch.num_rows for batch in held])
    yield from zip(held, np.split(ids, ends[:-1]), strict=True) if held else ()


class _Stopwatch:
    """Stopwatch for the time spent inside its ``with`` blocks; a generator's waits outside them do not count."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began

    def timed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and count the time that they take to come."""
        iterator = iter(batches)
        while True:
            with self:
                batch = next(iterator, None)
            if batch is None:
                return
            yield batch


@dataclass(frozen=True)
class SparkRouteTask:
    """Task that routes rows projected by Spark; the first row of a slice carries the plan, the last one the counts."""

    router: Router

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the block stream of one replica."""
        controls: list[dict[str, Any]] = []
        stream = _collecting_controls(rows, controls)
        first = next(stream, None)
        if first is None:
            return
        control = controls[0]
        state = control.get("begins")
        summary = yield from self.router(
            itertools.chain([first], stream),
            Pin.from_json(control["pin"]),
            control["replica"],
            control["watermark"],
            None if state is None else state_of(state),
        )
        yield blocks.note(summary | controls[-1])


@dataclass(frozen=True)
class SparkCombineTask:
    """Task that combines the rows of a slice that Spark has projected, where nothing is routed."""

    router: Router
    combiner: Combiner

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the partial results of one replica, and its report."""
        controls: list[dict[str, Any]] = []
        stream = _collecting_controls(rows, controls)
        first = next(stream, None)
        if first is not None:
            yield from self.combiner(
                self._blocks(itertools.chain([first], stream), controls), worker=controls[0]["replica"]
            )

    def _blocks(self, rows: Iterable[pa.RecordBatch], controls: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        control = controls[0]
        pin = alone(Pin.from_json(control["pin"]))
        summary = yield from self.router(rows, pin, control["replica"], control["watermark"])
        yield blocks.note(summary | controls[-1])


def alone(pin: Pin) -> Pin:
    """Return the plan under which a replica is the only worker for its slice."""
    return replace(pin, algorithm=Shuffle.NAME, workers=1, parameters={})


def _collecting_controls(rows: Iterable[pa.RecordBatch], controls: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Yield the batches unchanged, and append the content of their control rows to ``controls``."""
    for batch in rows:
        texts = batch.column(CONTROL)
        if texts.null_count < len(texts):
            controls.extend(json.loads(text) for text in pc.drop_null(texts).to_pylist())
        yield batch
