"""Combine: a worker reduces the records it was sent to one partial result per key and pane."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millrace_jobs.pipeline import blocks
from millrace_jobs.pipeline.windows import AT
from millrace_jobs.sketches import bottom_k

REPORT = "report"
"""Column of the partial results that is set on one row per worker, which carries no partial result."""

RECORDS = "records"
"""Column of a reducer's result: how many records are in a partial result."""


class Reducer(Protocol):
    """What one worker does with the records of its keys in one batch."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in records."""
        ...

    def partials(self) -> pa.Table:
        """The partial results: the columns of ``ReducerFactory.schema`` and ``records``."""
        ...

    def key_hashes(self) -> NDArray[np.uint64]:
        """Shape ``(keys,)``: hashes of the different keys among the records."""
        ...


class ReducerFactory(Protocol):
    """Makes the reducer of one task; picklable."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the partial results: keys, ``at`` where there is a window, and the mergeable parts."""
        ...

    def __call__(self) -> Reducer:
        """A reducer with nothing in it."""
        ...


@dataclass(frozen=True)
class Combiner:
    """The combine task: block stream in; partial results and one row with the worker's report out.

    ``block`` is the schema of the records.
    """

    block: pa.Schema
    reducer: ReducerFactory

    @property
    def schema(self) -> pa.Schema:
        """Schema of the partial results with their report."""
        return self.reducer.schema.append(pa.field(REPORT, pa.string()))

    def __call__(self, stream: Iterable[pa.RecordBatch], worker: int | None = None) -> Iterator[pa.RecordBatch]:
        """Combine one worker's part of the block stream; ``worker`` is read from the stream if not given."""
        began = time.perf_counter()
        reducer = self.reducer()
        notes: list[dict[str, Any]] = []
        for row_batch in stream:
            if worker is None:
                worker = row_batch.column("worker")[0].as_py()
            for item in blocks.decode(row_batch, self.block):
                if isinstance(item, dict):
                    notes.append(item)
                else:
                    reducer.add(item)
        if worker is None:
            return
        partials = reducer.partials()
        for batch in partials.select(self.reducer.schema.names).to_batches(max_chunksize=blocks.MAX_BLOCK_ROWS):
            no_report = pa.nulls(batch.num_rows, pa.string())
            yield pa.RecordBatch.from_arrays([*batch.columns, no_report], schema=self.schema)
        keys = reducer.key_hashes()
        report = {
            "worker": worker,
            "rows": pc.sum(partials.column(RECORDS)).as_py() or 0,
            "keys": len(keys),
            "sketch": bottom_k.encode(bottom_k.bottom_k(keys)),
            "seconds": round(time.perf_counter() - began, 6),
            "notes": notes,
        }
        yield self._report_row(report, max((note["close"] for note in notes if "close" in note), default=None))

    def _report_row(self, report: dict[str, Any], closing_time: int | None) -> pa.RecordBatch:
        """Every part NULL; at the end of a bounded input ``at`` is the event time that closes all windows."""
        values = {REPORT: json.dumps(report), AT: closing_time}
        arrays = [pa.array([values.get(field.name)], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
