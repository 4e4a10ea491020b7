"""The highest fares of a group, for SQL that calls it: SELECT highest_fares(fare)."""

from __future__ import annotations

import heapq
from typing import Any

import pyarrow as pa


class HighestFares:
    """The ``k`` highest values of a column, the highest first; the state has at most ``k`` of them."""

    columns = ("fare",)
    state_schema = pa.schema([("fares", pa.list_(pa.float64()))])
    result_schema = pa.schema([("highest", pa.list_(pa.float64()))])

    def __init__(self, k: int) -> None:
        self._k = k

    def init(self) -> dict[str, Any]:
        """Return the state before the first value."""
        return {"fares": []}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Take the values of a batch in."""
        return self.merge(state, {"fares": batch.column(0).drop_null().to_pylist()})

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Return the highest values of both states."""
        return {"fares": heapq.nlargest(self._k, a["fares"] + b["fares"])}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the values."""
        return {"highest": state["fares"]}
