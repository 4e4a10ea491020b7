"""A count that waits for its records, like an aggregator that queries another server about them."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa


class PacedCount:
    """The number of records, counted at a limited pace.

    Args:
        column: any column of the source. Without a column, an aggregator sees no records.
        microseconds: time for each record, during which no processor is needed.
        call: further microseconds for each call. There is one call for a key in each part of a batch.
    """

    state_schema = pa.schema([("records", pa.int64())])
    result_schema = state_schema

    def __init__(self, column: str, microseconds: int, call: int = 0) -> None:
        self.columns = (column,)
        self._record, self._call = microseconds / 1e6, call / 1e6

    def init(self) -> dict[str, Any]:
        """Return the state before the first record."""
        return {"records": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Count the records of a batch, after waiting for them."""
        time.sleep(self._call + self._record * batch.num_rows)
        return {"records": state["records"] + batch.num_rows}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Add two counts."""
        return {"records": a["records"] + b["records"]}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the count."""
        return state
