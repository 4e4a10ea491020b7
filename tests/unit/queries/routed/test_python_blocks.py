"""The blocks of a Python aggregator's query, from its spec to the aggregator's columns."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from builders import a_query
from millrace_jobs.aggregates.python_reducing import BLOB
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.routed.routed import Routed

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("key", pa.string()), ("value", pa.int64())])


class Times:
    """All times of a key."""

    columns = ("at", "key", "value")
    state_schema = pa.schema([("times", pa.list_(pa.timestamp("us", "UTC")))])
    result_schema = state_schema

    def init(self) -> Mapping[str, Any]:
        return {"times": []}

    def update(self, state: Mapping[str, Any], batch: pa.RecordBatch) -> Mapping[str, Any]:
        assert batch.schema == SCHEMA
        return {"times": state["times"] + batch.column("at").to_pylist()}

    def merge(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"times": a["times"] + b["times"]}

    def finish(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return state


def test_an_aggregator_reads_the_columns_of_key_and_window_by_their_own_names() -> None:
    python = {"aggregator": f"{__name__}:Times", "groupBy": ["key"], "window": {"column": "at", "size": "10s"}}
    query = a_query("spec", "query", value={"python": python})
    name = next(iter(query.spec.sources))
    view = SimpleNamespace(createOrReplaceTempView=lambda _: None)
    compiled = compile_query(SimpleNamespace(createDataFrame=lambda *_: view), query.spec, {name: SCHEMA})
    routed = compiled.execution
    assert isinstance(routed, Routed)
    project = compile_projection(routed.projection, SCHEMA)
    assert not isinstance(project, str), project
    times = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in (1, 2, 13)]
    records = pa.record_batch([times, ["a", "a", "a"], [1, 2, 3]], schema=SCHEMA)
    reducer = routed.reduction()
    reducer.add(project(records))
    (partials,) = reducer.partials()
    states = [dict(routed.reduction.codec.decode(blob)) for blob in partials.column(BLOB).to_pylist()]
    assert states == [{("a",): {"times": times[:2]}}, {("a",): {"times": times[2:]}}]
