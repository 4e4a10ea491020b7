"""Combining: a worker reduces the records it was sent to partial results, one per key and window or pane.

Next, ``queries.routed.merge`` merges them in the state store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millrace_jobs.aggregates.reducing import Reducer, ReducerFactory
from millrace_jobs.pipeline import blocks
from millrace_jobs.sketches import key_profile
from millrace_jobs.windows import AT

REPORT = "report"
"""Column for the report of a task, which is on one row of its own without a partial result."""

MAX_ROWS = 1 << 17
"""Maximum number of rows in one batch to Spark."""


@dataclass(frozen=True)
class Combiner:
    """The combine task: it turns the block stream into partial results and one row with a report.

    ``block`` is the schema of the records.
    """

    block: pa.Schema
    reducer: ReducerFactory

    @property
    def schema(self) -> pa.Schema:
        """Schema of the partial results and the report."""
        return self.reducer.schema.append(pa.field(REPORT, pa.string()))

    def __call__(self, stream: Iterable[pa.RecordBatch], worker: int | None = None) -> Iterator[pa.RecordBatch]:
        """Combine the records sent to one task, normally those of one worker.

        For one batch after ``n`` has changed, several workers can share a task. ``worker`` is the id to report under
        instead of the stream's.
        """
        began = time.perf_counter()
        reducers: dict[int, Reducer] = {}
        notes: list[dict[str, Any]] = []
        for rows in stream:
            for receiver, item in blocks.decode(rows, self.block):
                if isinstance(item, dict):
                    notes.append(item)
                else:
                    worker_id = receiver if worker is None else worker
                    if worker_id not in reducers:
                        reducers[worker_id] = self.reducer()
                    reducers[worker_id].add(item)
        reports = []
        for worker_id, reducer in reducers.items():
            sent = 0
            for partials in (each.select(self.reducer.schema.names) for each in reducer.partials()):
                sent += partials.nbytes
                yield from self._rows(partials)
            seconds = (time.perf_counter() - began) / len(reducers)
            reports.append(_report(worker_id, reducer, seconds) | {"sent": sent})
        if reports or notes:
            times = [note[field] for note in notes for field in ("latest", "close") if field in note]
            yield self._report_row({"workers": reports, "replicas": notes}, max(times, default=None))

    def _rows(self, partials: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in partials.to_batches(max_chunksize=MAX_ROWS):
            no_report = pa.nulls(batch.num_rows, pa.string())
            yield pa.RecordBatch.from_arrays([*batch.columns, no_report], schema=self.schema)

    def _report_row(self, report: dict[str, Any], latest: int | None) -> pa.RecordBatch:
        """Return the report row, with NULL parts; ``at`` is the latest event time, or what closes a bounded input."""
        values = {REPORT: json.dumps(report), AT: latest}
        arrays = [pa.array([values.get(field.name)], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _report(worker: int, reducer: Reducer, seconds: float) -> dict[str, Any]:
    """Return a worker's report to the driver; ``seconds`` is its working time before this report."""
    keys = reducer.key_counts()
    return {
        "worker": worker,
        "rows": reducer.records(),
        "keys": len(keys),
        "groups": reducer.groups(),
        "profile": key_profile.encode(key_profile.profile(keys)),
        "seconds": round(seconds, 6),
    }
