"""Python aggregators for tests: a small one, and some whose first attempt at a task fails."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext


class Spread:
    """The smallest, the largest and the number of the values of a BIGINT column, without NULLs."""

    state_schema = pa.schema([("low", pa.int64()), ("high", pa.int64()), ("seen", pa.int64())])
    result_schema = pa.schema([("spread", pa.int64()), ("seen", pa.int64())])

    def __init__(self, column: str) -> None:
        self.columns = (column,)

    def init(self) -> dict[str, Any]:
        return {"low": None, "high": None, "seen": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        extremes = pc.min_max(batch.column(0)).as_py()
        seen = len(batch) - batch.column(0).null_count
        return self.merge(state, {"low": extremes["min"], "high": extremes["max"], "seen": seen})

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        known = [state for state in (a, b) if state["low"] is not None]
        return {
            "low": min((state["low"] for state in known), default=None),
            "high": max((state["high"] for state in known), default=None),
            "seen": a["seen"] + b["seen"],
        }

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        spread = None if state["low"] is None else state["high"] - state["low"]
        return {"spread": spread, "seen": state["seen"]}


class FailingOnce(Spread):
    """``Spread`` that fails once in every task, after its first update."""

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        updated = super().update(state, batch)
        fail_first_attempt()
        return updated


class DyingOnce(Spread):
    """``Spread`` that kills its process once in every task, after its first update."""

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        updated = super().update(state, batch)
        if _is_first_attempt():
            os.kill(os.getpid(), signal.SIGKILL)
        return updated


def fail_first_attempt() -> None:
    """Raise an error in the first attempt of a task."""
    if _is_first_attempt():
        raise RuntimeError("the first attempt fails, as the test wants it")


def _is_first_attempt() -> bool:
    task = TaskContext.get()
    return task is not None and task.attemptNumber() == 0


class Gated(Spread):
    """``Spread`` of column ``n`` whose updates wait until the file exists that the environment names."""

    def __init__(self) -> None:
        super().__init__("n")

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        while not Path(os.environ["MILLRACE_GATE"]).exists():
            time.sleep(0.1)
        return super().update(state, batch)
