"""What a ride brings, in the middle: a median, which no partial aggregate of SQL can be merged to."""

from __future__ import annotations

from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class MedianProfit:
    """The median of fare and tip together, and the number of rides. The state is every ride's sum."""

    columns = ("fare", "tip")
    state_schema = pa.schema([("profits", pa.list_(pa.float64()))])
    result_schema = pa.schema([("profit", pa.float64()), ("rides", pa.int64())])

    def init(self) -> dict[str, Any]:
        """No ride yet."""
        return {"profits": []}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Add rides."""
        return {"profits": state["profits"] + pc.add(batch.column(0), batch.column(1)).drop_null().to_pylist()}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """The rides of both, in an order that does not tell which came first."""
        return {"profits": sorted(a["profits"] + b["profits"])}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """The middle of them."""
        profits = state["profits"]
        return {"profit": median(profits) if profits else None, "rides": len(profits)}
