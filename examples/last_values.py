"""The mean of the values that came last, by group: an aggregation that SQL cannot express over a stream."""

from __future__ import annotations

import heapq
from typing import Any

import pyarrow as pa

Values = list[tuple[int, int, float]]
"""Time, id and value of some records; of records at the same time, the id decides which came last."""


class MeanOfLast:
    """The mean of the column ``value`` over the ``k`` records with the latest ``time``; the state is these records."""

    state_schema = pa.schema(
        [(name, pa.list_(pa.int64())) for name in ("times", "ids")] + [("values", pa.list_(pa.float64()))]
    )
    result_schema = pa.schema([("mean", pa.float64()), ("records", pa.int64())])

    def __init__(self, time: str, value: str, id: str, k: int = 10) -> None:
        self.columns = (time, id, value)
        self._k = k

    def init(self) -> dict[str, Any]:
        """Return the state before the first record."""
        return self._state([])

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Add the records of a batch."""
        times, ids, values = (batch.column(index).cast(kind).to_pylist() for index, kind in enumerate(_TYPES))
        return self.merge(state, {"times": times, "ids": ids, "values": values})

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Keep the last records of both states."""
        return self._state(heapq.nlargest(self._k, [*_values(a), *_values(b)]))

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the mean."""
        values = state["values"]
        return {"mean": sum(values) / len(values) if values else None, "records": len(values)}

    def _state(self, records: Values) -> dict[str, Any]:
        return {name: [record[at] for record in records] for at, name in enumerate(("times", "ids", "values"))}


_TYPES = (pa.int64(), pa.int64(), pa.float64())


def _values(state: dict[str, Any]) -> Values:
    return list(zip(state["times"], state["ids"], state["values"], strict=True))
