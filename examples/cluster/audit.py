"""A count of records with a digest that reveals missing and duplicate records."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa

_SALT = b"scores-by-user"


class AuditedCount:
    """The number of records and the sum of their digests, whatever the order of the records.

    The digests are slow on purpose (PBKDF2 with SHA-256, about 0.25 µs of processor time a round): they stand for an
    aggregator that computes. The sum detects mistakes, not forgery.

    Args:
        column: column whose values are digested.
        rounds: rounds of PBKDF2 for each record.
    """

    state_schema = pa.schema([("records", pa.int64()), ("digest", pa.int64())])
    result_schema = state_schema

    def __init__(self, column: str, rounds: int) -> None:
        self.columns = (column,)
        self._rounds = rounds

    def init(self) -> dict[str, Any]:
        """Return the state before the first record."""
        return {"records": 0, "digest": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Add the records of a batch."""
        digests = sum(map(self._digest, batch.column(0).to_pylist()))
        return self.merge(state, {"records": batch.num_rows, "digest": digests})

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Add two counts and their digests."""
        return {"records": a["records"] + b["records"], "digest": (a["digest"] + b["digest"]) % 2**63}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the count and the digest."""
        return state

    def _digest(self, value: str) -> int:
        digest = hashlib.pbkdf2_hmac("sha256", value.encode(), _SALT, self._rounds, dklen=8)
        return int.from_bytes(digest, "big")
