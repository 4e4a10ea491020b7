"""A Python aggregator that counts records and spends processor time on each."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class CostlyCount:
    """The number of records and the sum of a BIGINT column, with ``rounds`` digests computed for each record."""

    state_schema = pa.schema([("records", pa.int64()), ("total", pa.int64())])
    result_schema = state_schema

    def __init__(self, column: str, rounds: int) -> None:
        self.columns = (column,)
        self._rounds = rounds

    def init(self) -> dict[str, Any]:
        return {"records": 0, "total": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        for number in batch.column(0).to_pylist():
            word = number.to_bytes(8, "little")
            for _ in range(self._rounds):
                word = hashlib.blake2b(word, digest_size=8).digest()
        return self.merge(state, {"records": batch.num_rows, "total": pc.sum(batch.column(0)).as_py()})

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {name: a[name] + b[name] for name in a}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return state
