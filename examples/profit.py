"""The median profit of rides. SQL has no partial aggregates that could be merged into a median."""

from __future__ import annotations

from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class MedianProfit:
    """The median of fare plus tip, and the number of rides. The state is the list of every ride's sum."""

    columns = ("fare", "tip")
    state_schema = pa.schema([("profits", pa.list_(pa.float64()))])
    result_schema = pa.schema([("profit", pa.float64()), ("rides", pa.int64())])

    def init(self) -> dict[str, Any]:
        """Return the state before the first ride."""
        return {"profits": []}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Add the rides of a batch."""
        return {"profits": state["profits"] + pc.add(batch.column(0), batch.column(1)).drop_null().to_pylist()}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Merge the rides of both states, sorted so that the order of the states does not matter."""
        return {"profits": sorted(a["profits"] + b["profits"])}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the median, or None without rides, and the number of rides."""
        profits = state["profits"]
        return {"profit": median(profits) if profits else None, "rides": len(profits)}
