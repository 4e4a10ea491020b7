"""A count of records with a digest of them, by which a missing or a duplicate record shows."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

_SALT = b"scores-by-user"


class AuditedCount:
    """How many records there are, and the sum of their digests, in whatever order they come.

    The digests are slow on purpose (PBKDF2 with SHA-256, about 0.25 µs of processor time a round): they stand for an
    aggregator that computes. The sum detects mistakes, not forgery.

    Args:
        column: whose values are digested.
        rounds: of the digest of each record.
    """

    state_schema = pa.schema([("records", pa.int64()), ("digest", pa.int64())])
    result_schema = state_schema

    def __init__(self, column: str, rounds: int) -> None:
        self.columns = (column,)
        self._rounds = rounds

    def init(self) -> dict[str, Any]:
        """No record yet."""
        return {"records": 0, "digest": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Take in the records of a batch."""
        digests = sum(map(self._digest, batch.column(0).to_pylist()))
        return self.merge(state, {"records": batch.num_rows, "digest": digests})

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Two counts together."""
        return {"records": a["records"] + b["records"], "digest": (a["digest"] + b["digest"]) % 2**63}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """The count, and the digest."""
        return state

    def _digest(self, value: str) -> int:
        digest = hashlib.pbkdf2_hmac("sha256", value.encode(), _SALT, self._rounds, dklen=8)
        return int.from_bytes(digest, "big")
