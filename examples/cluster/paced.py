"""A count that waits a while for its records, as an aggregator does that asks another server about them."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa


class PacedCount:
    """How many records there are.

    Args:
        column: any one of the source; without a column an aggregator sees no records.
        microseconds: that each record takes, in which no processor is needed.
        call: microseconds that each call takes besides, which is one for a key in each part of a batch.
    """

    state_schema = pa.schema([("records", pa.int64())])
    result_schema = state_schema

    def __init__(self, column: str, microseconds: int, call: int = 0) -> None:
        self.columns = (column,)
        self._record, self._call = microseconds / 1e6, call / 1e6

    def init(self) -> dict[str, Any]:
        """No record yet."""
        return {"records": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Count a batch, in its time."""
        time.sleep(self._call + self._record * batch.num_rows)
        return {"records": state["records"] + batch.num_rows}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Two counts together."""
        return {"records": a["records"] + b["records"]}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """The count."""
        return state
