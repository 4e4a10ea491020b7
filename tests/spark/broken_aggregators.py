"""Aggregators with typical mistakes of their authors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class Rows:
    """A count of records, without any mistake."""

    columns = ("n",)
    state_schema = pa.schema([("rows", pa.int64())])
    result_schema = state_schema

    def init(self) -> dict[str, Any]:
        return {"rows": 0}

    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        return {"rows": state["rows"] + len(batch)}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return {"rows": a["rows"] + b["rows"]}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return state


class WithoutMerge:
    columns = ("n",)


class ReadsFare(Rows):
    columns = ("fare",)


class FareError(Exception):
    """An exception whose name and message are the author's."""


class FailsInUpdate(Rows):
    def update(self, state: dict[str, Any], batch: pa.RecordBatch) -> dict[str, Any]:
        raise FareError("a fare of -3 cannot be")  # the line that the message has to name


class FailsWhenMade(Rows):
    def __init__(self) -> None:
        raise RuntimeError("the model file is not there")
