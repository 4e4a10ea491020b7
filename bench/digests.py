"""A Python aggregator that is heavy for every record: digests of digests, as parsing or scoring a record would be."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa


class Digests:
    """The exclusive or of a digest of each record's ``column``, repeated ``rounds`` times."""

    state_schema = pa.schema([("digest", pa.int64())])
    result_schema = pa.schema([("digest", pa.int64())])

    def __init__(self, column: str, rounds: int = 10) -> None:
        self.columns = (column,)
        self._rounds = rounds

    def init(self) -> dict[str, Any]:
        """No record yet."""
        return {"digest": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Take in records one by one."""
        digest = state["digest"]
        for text in batch.column(0).to_pylist():
            word = text.encode()
            for _ in range(self._rounds):
                word = hashlib.blake2b(word, digest_size=7).digest()
            digest ^= int.from_bytes(word, "little")
        return {"digest": digest}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """In any order."""
        return {"digest": a["digest"] ^ b["digest"]}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """As it is."""
        return state
