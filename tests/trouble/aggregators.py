"""A Python aggregator whose results SQL can check: the records of a key, and the extremes of an integer column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class Extremes:
    """The number of records, of values that are not NULL, and the smallest and the largest of an integer column."""

    state_schema = pa.schema([(name, pa.int64()) for name in ("records", "known", "low", "high")])
    result_schema = state_schema

    def __init__(self, column: str) -> None:
        self.columns = (column,)

    def init(self) -> dict[str, Any]:
        return {"records": 0, "known": 0, "low": None, "high": None}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        values = batch.column(0)
        extremes = pc.min_max(values).as_py()
        counts = {"records": len(values), "known": len(values) - values.null_count}
        return self.merge(state, {**counts, "low": extremes["min"], "high": extremes["max"]})

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        found = [state for state in (a, b) if state["low"] is not None]
        return {
            "records": a["records"] + b["records"],
            "known": a["known"] + b["known"],
            "low": min((state["low"] for state in found), default=None),
            "high": max((state["high"] for state in found), default=None),
        }

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return state
