"""Records that come late, and a model of what windows then have."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from millrace_jobs.pipeline.progress import BatchReport

from .answers import micros
from .disorder import DELAY, SCHEMA, Record, window_starts
from .questions import Hop


class Model:
    """Which (record, window) pairs count, from the contents of the batches alone."""

    def __init__(self, hop: Hop, reports: Sequence[BatchReport], batches: Sequence[list[Record]]) -> None:
        self.kept: list[tuple[int, Record]] = []
        self.late: list[int] = []
        self.watermarks: list[datetime | None] = []
        before: datetime | None = None
        watermark: datetime | None = None
        waiting = iter(batches)
        for report in reports:
            self.watermarks.append(watermark)
            if report.rows:
                records = next(waiting)
                self._take(hop, records, before)
                newest = max(at for at, _, _ in records) - DELAY
                before, watermark = watermark, max(watermark or newest, newest)
            else:
                before = watermark

    def _take(self, hop: Hop, records: list[Record], watermark: datetime | None) -> None:
        mark = 0 if watermark is None else micros(watermark) // 1000 * 1000
        late = 0
        for record in records:
            ends = [start + hop.size * 1_000_000 for start in window_starts(hop, micros(record[0]))]
            self.kept += [(end - hop.size * 1_000_000, record) for end in ends if end > mark]
            late += all(end <= mark for end in ends)
        self.late.append(late)

    def table(self) -> pa.Table:
        """The pairs, the window's start in microseconds."""
        columns = list(zip(*((start, *record) for start, record in self.kept), strict=True))
        arrays = [pa.array(columns[0], pa.int64())]
        arrays += [pa.array(values, field.type) for values, field in zip(columns[1:], SCHEMA, strict=True)]
        return pa.table(arrays, names=["window_start", *SCHEMA.names])
