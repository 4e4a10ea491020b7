"""Aggregators of a mean: one that keeps the laws, and some that each break one."""

from typing import Any

import pyarrow as pa


class Mean:
    """Right: keeps sum and count."""

    columns = ("v",)
    state_schema = pa.schema([("sum", pa.int64()), ("count", pa.int64())])
    result_schema = pa.schema([("mean", pa.float64())])

    def init(self) -> dict[str, Any]:
        return {"sum": 0, "count": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        values = batch.column("v").to_pylist()
        return {"sum": state["sum"] + sum(values), "count": state["count"] + len(values)}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {name: a[name] + b[name] for name in a}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"mean": state["sum"] / state["count"] if state["count"] else None}


class MeanOfMeans(Mean):
    """Wrong: the mean of two means is not that of all."""

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        if not a["count"] or not b["count"]:
            return super().merge(a, b)
        return {"sum": a["sum"] / a["count"] + b["sum"] / b["count"], "count": 2}


class First(Mean):
    """Wrong: depends on which partial result comes first."""

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return a if a["count"] else b


class Forgetful(Mean):
    """Wrong: keeps something in its state that its schema does not have."""

    state_schema = pa.schema([("sum", pa.int64())])

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"mean": state["sum"] / state["count"] if state.get("count") else None}


class Mistyped(Mean):
    """Wrong: its state is not of the types of its schema."""

    state_schema = pa.schema([("sum", pa.int64()), ("count", pa.bool_())])
