"""An aggregator of a user's: it counts, and waits a while for every record, as one does that asks another server."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa


class PacedCount:
    """How many records there are; each takes so many microseconds, in which no processor is needed."""

    state_schema = pa.schema([("records", pa.int64())])
    result_schema = state_schema

    def __init__(self, column: str, microseconds: int) -> None:
        self.columns = (column,)
        self._seconds = microseconds / 1e6

    def init(self) -> dict[str, Any]:
        return {"records": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        time.sleep(self._seconds * batch.num_rows)
        return {"records": state["records"] + batch.num_rows}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {"records": a["records"] + b["records"]}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return state
