"""Parts of a query that wait, so that a batch takes a known time on any machine. Pods load this file by ``spec.code``."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from millrace import SinkBatch

RECORD = 0.012
"""Seconds that ``read_slowly`` waits for each record."""


class SlowCount:
    """The number of records.

    Args:
        record: seconds to wait for each record that a worker combines.
        merge: seconds to wait whenever two states are merged.
    """

    columns = ("name",)
    state_schema = pa.schema([("records", pa.int64())])
    result_schema = state_schema

    def __init__(self, record: float = 0.0, merge: float = 0.0) -> None:
        self._record, self._merge = record, merge

    def init(self) -> dict[str, Any]:
        """Return the state before the first record."""
        return {"records": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        """Count the records of a batch, after waiting for them."""
        time.sleep(self._record * batch.num_rows)
        return {"records": state["records"] + batch.num_rows}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Add two counts, after waiting."""
        time.sleep(self._merge)
        return {"records": a["records"] + b["records"]}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the count."""
        return state


def read_slowly(name: pa.Array) -> pa.Array:
    """Return the names, after waiting for each of them."""
    time.sleep(RECORD * len(name))
    return name


def write_slowly(results: pa.Table, batch: SinkBatch, *, seconds: float) -> None:
    """Drop the results after so many seconds, like a database that is slow to commit them."""
    time.sleep(seconds)
