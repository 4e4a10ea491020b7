"""The most frequent values of a column, by group: an aggregation that SQL cannot express over a stream."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any

import pyarrow as pa


class TopValues:
    """The ``k`` most frequent values of ``column`` with their counts, most frequent first.

    The state is every value's count, so the result is exact and the state grows with the column's domain. Ties are
    broken by the value.
    """

    state_schema = pa.schema([("values", pa.list_(pa.string())), ("counts", pa.list_(pa.int64()))])
    result_schema = pa.schema([("top", pa.list_(pa.string())), ("top_counts", pa.list_(pa.int64()))])

    def __init__(self, column: str, k: int = 5) -> None:
        self.columns = (column,)
        self._k = k

    def init(self) -> dict[str, Any]:
        """Return the state before the first value."""
        return {"values": [], "counts": []}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Count the values of a batch, at Arrow's speed."""
        counted = batch.column(0).drop_null().value_counts()
        more = {"values": counted.field("values").to_pylist(), "counts": counted.field("counts").to_pylist()}
        return self.merge(state, more)

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Add up the counts."""
        counts = Counter(dict(zip(a["values"], a["counts"], strict=True)))
        counts.update(dict(zip(b["values"], b["counts"], strict=True)))
        return {"values": list(counts), "counts": list(counts.values())}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the ``k`` most frequent values."""
        pairs = zip(state["values"], state["counts"], strict=True)
        best = heapq.nsmallest(self._k, pairs, key=lambda pair: (-pair[1], pair[0]))
        return {"top": [value for value, _ in best], "top_counts": [count for _, count in best]}
