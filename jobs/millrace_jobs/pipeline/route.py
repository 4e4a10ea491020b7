"""Route: a replica places the records of its slice, block by block, on the workers of the pinned plan."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.partitioners.hashing import hash_columns
from millrace_jobs.partitioners.registry import make
from millrace_jobs.pipeline import blocks
from millrace_jobs.plan.pin import Pin
from millrace_jobs.windows import AT, Window, pane_starts

CONTROL = "control"
"""Column of a source's rows: JSON from the replica on rows that carry no record, NULL on all others."""

Project = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True)
class Router:
    """Projects and routes the batches of one slice; ``keys`` is how many of the block columns are keys.

    ``time`` is the column of event time in what is projected, where there is a window.
    """

    project: Project
    keys: int
    window: Window | None
    time: str = ""

    def __call__(
        self, batches: Iterable[pa.RecordBatch], pin: Pin, replica: int, watermark: int
    ) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """The block stream of one replica; returns what it did, for the replica's note.

        ``watermark``, in microseconds: a record is late when all its windows have ended by then. Late records are
        only counted here; Spark drops their partial results.
        """
        partitioner = make(
            pin.algorithm,
            workers=pin.workers,
            replica=replica,
            replicas=pin.replicas,
            seed=pin.seed,
            parameters=pin.parameters,
        )
        read = routed = late = 0
        latest: int | None = None
        seconds = 0.0
        for source_batch in batches:
            began = time.perf_counter()
            batch = self.project(source_batch)
            read += source_batch.num_rows
            latest = self._latest(source_batch, latest)
            routed += batch.num_rows
            if batch.num_rows:
                late += self._late(batch, watermark)
                hashes = hash_columns(batch.columns[: self.keys], batch.num_rows)
                cut = blocks.split(batch, partitioner.route(hashes), pin.workers)
                seconds += time.perf_counter() - began
                yield cut
        note = {"read": read, "routed": routed, "late": late, "seconds": round(seconds, 6), "epoch": pin.epoch}
        return note if latest is None else note | {"latest": latest}

    def _latest(self, source_batch: pa.RecordBatch, before: int | None) -> int | None:
        """Latest event time so far, in microseconds: records that the filter leaves out move the watermark too."""
        if not self.time:
            return before
        newest: int | None = pc.max(source_batch.column(self.time).cast(pa.int64())).as_py()
        return max((time for time in (before, newest) if time is not None), default=None)

    def _late(self, batch: pa.RecordBatch, watermark: int) -> int:
        if self.window is None or not watermark:
            return 0
        ends = self.window.last_end(pane_starts(batch.column(AT), self.window))
        return int(np.count_nonzero(ends <= watermark))


@dataclass(frozen=True)
class SparkRouteTask:
    """Routes rows that Spark has projected: the first row of a slice says under which plan, the last one ends it."""

    router: Router

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The block stream of one replica."""
        controls: list[dict[str, Any]] = []
        stream = _noting_controls(rows, controls)
        first = next(stream, None)
        if first is None:
            return
        pin, replica = Pin.from_json(controls[0]["pin"]), controls[0]["replica"]
        summary = yield from self.router(itertools.chain([first], stream), pin, replica, controls[0]["watermark"])
        yield blocks.note(summary | controls[-1])


def _noting_controls(rows: Iterable[pa.RecordBatch], controls: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        said = batch.column(CONTROL)
        if said.null_count < len(said):
            controls.extend(json.loads(text) for text in pc.drop_null(said).to_pylist())
        yield batch
