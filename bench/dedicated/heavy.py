"""A Python aggregator that is expensive per record, and knows its newest record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.digests import Digests


class NewestDigests:
    """``bench.digests.Digests`` of ``value``, with the number of records and the latest time in ``at``."""

    columns = ("value", "at")
    state_schema = pa.schema([("digest", pa.int64()), ("n", pa.int64()), ("latest", pa.timestamp("us", "UTC"))])
    result_schema = state_schema

    def __init__(self, rounds: int = 10) -> None:
        self._digests = Digests("value", rounds)

    def init(self) -> dict[str, Any]:
        """Return the state before the first record."""
        return {"digest": 0, "n": 0, "latest": None}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Add the records of a batch, one by one."""
        digest = self._digests.update({"digest": 0}, batch)["digest"]
        return self.merge(state, {"digest": digest, "n": len(batch), "latest": pc.max(batch.column(1)).as_py()})

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Merge two states, in any order."""
        latest = max((state["latest"] for state in (a, b) if state["latest"] is not None), default=None)
        return {"digest": a["digest"] ^ b["digest"], "n": a["n"] + b["n"], "latest": latest}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state unchanged."""
        return state
