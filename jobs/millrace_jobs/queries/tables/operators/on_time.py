"""The records of a source without the late ones, for an operator whose other rows cannot be late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millrace_jobs.changes import FROM, NO_TIME, changes_of
from millrace_jobs.queries.tables.operators.interface import BucketStore, OperatorResult


@dataclass(frozen=True)
class OnTimeRecords:
    """A filter by the watermark; an operator on changes, which keeps no state."""

    values: pa.Schema

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """Schema of the records."""
        return (changes_of(self.values),)

    @property
    def output(self) -> pa.Schema:
        """Schema of the records that are not late."""
        return changes_of(self.values)

    @property
    def lag(self) -> int | None:
        """Records begin at the watermark at the earliest."""
        return 0

    def process(self, store: BucketStore, changes: Sequence[pa.Table], watermark: int) -> OperatorResult:
        """Remove late records and count them; see ``TableOperator``."""
        (records,) = changes
        starts = records.column(FROM)
        kept = records.filter(pc.or_(pc.greater_equal(starts, watermark), pc.equal(starts, NO_TIME)))
        return OperatorResult(
            [kept.select(self.output.names)] if kept.num_rows else [], records.num_rows - kept.num_rows
        )
