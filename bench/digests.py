"""A Python aggregator that is expensive per record: repeated digests stand for parsing or scoring a record."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa


class Digests:
    """The exclusive or of all records' digests. A digest is taken ``rounds`` times over the text in ``column``."""

    state_schema = pa.schema([("digest", pa.int64())])
    result_schema = pa.schema([("digest", pa.int64())])

    def __init__(self, column: str, rounds: int = 10) -> None:
        self.columns = (column,)
        self._rounds = rounds

    def init(self) -> dict[str, Any]:
        """Return the state before the first record."""
        return {"digest": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Add the records of a batch, one by one."""
        digest = state["digest"]
        for text in batch.column(0).to_pylist():
            word = text.encode()
            for _ in range(self._rounds):
                word = hashlib.blake2b(word, digest_size=7).digest()
            digest ^= int.from_bytes(word, "little")
        return {"digest": digest}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Merge two states, in any order."""
        return {"digest": a["digest"] ^ b["digest"]}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state unchanged."""
        return state
