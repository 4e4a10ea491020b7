"""Probes of what is computed: the SQL with its own functions, or a Python aggregator with its groups and its window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from millrace_api.model.streamquery import StreamQuery
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.aggregates.python_reducing import input_column
from millrace_jobs.pipeline.expressions.compiler import compile_expression
from millrace_jobs.pipeline.expressions.programs import evaluate
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.own_aggregates import aggregators_of
from millrace_jobs.queries.own_functions import functions_of
from millrace_jobs.queries.routed.aggregation import aggregation_of
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.sources.connector import schema_of

from .documents import FILES, SQL, query
from .probe import ABSENT, Probe, probes


class Largest:
    """An aggregator: the sum of each key's largest values, multiplied by a factor."""

    columns = ("n",)
    state_schema = pa.schema([("largest", pa.int64())])
    result_schema = pa.schema([("largest", pa.int64())])

    def __init__(self, factor: int = 1) -> None:
        self.factor = factor

    def init(self) -> Mapping[str, Any]:
        return {"largest": None}

    def update(self, state: Mapping[str, Any], batch: pa.RecordBatch) -> Mapping[str, Any]:
        return self.merge(state, {"largest": max(batch.column("n").to_pylist()) * self.factor})

    def merge(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> Mapping[str, Any]:
        known = [state["largest"] for state in (a, b) if state["largest"] is not None]
        return {"largest": max(known, default=None)}

    def finish(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return state


class Smallest(Largest):
    """The same for the smallest values."""

    def update(self, state: Mapping[str, Any], batch: pa.RecordBatch) -> Mapping[str, Any]:
        return self.merge(state, {"largest": min(batch.column("n").to_pylist()) * self.factor})


def compiled_python(asked: StreamQuery) -> CompiledQuery:
    """Compile an aggregator, for which Spark is not asked anything."""
    schemas = {name: schema_of(source) for name, source in asked.spec.sources.items()}
    view = SimpleNamespace(createOrReplaceTempView=lambda _: None)
    return compile_query(SimpleNamespace(createDataFrame=lambda *_: view), asked.spec, schemas)


def aggregated(asked: StreamQuery) -> object:
    """Return what is read of which source, and the partial results of a few records."""
    compiled = compiled_python(asked)
    routed = compiled.execution
    assert isinstance(routed, Routed)
    rows = [{"k": "Oslo", "n": 3}, {"k": "Oslo", "n": 5}, {"k": "Rome", "n": 4}, {"k": "Oslo", "n": 3}]
    schema = routed.projection.schema
    block = pa.RecordBatch.from_pylist(
        [
            {field.name: row["n"] if field.name == input_column("n") else _some(field.type, row) for field in schema}
            for row in rows
        ],
        schema,
    )
    reducer = routed.reduction()
    reducer.add(block)
    partials = [table.to_pylist() for table in reducer.partials()]
    return routed.source, routed.window, routed.projection.columns, partials, compiled.result.simpleString()


def _some(kind: pa.DataType, row: Mapping[str, Any]) -> object:
    return row["k"] if pa.types.is_string(kind) else 180_000_000


def translated(asked: StreamQuery) -> object:
    """Return the aggregation that the SQL stands for."""
    schemas = {name: schema_of(source) for name, source in asked.spec.sources.items()}
    assert asked.spec.query.sql is not None
    return aggregation_of(parsed_query(asked.spec.query.sql), schemas, lambda _: "string")


def raised(number: pa.Array) -> pa.Array:
    """Return numbers, each plus one."""
    return pa.array([None if each is None else each + 1 for each in number.to_pylist()], number.type)


def lowered(number: pa.Array) -> pa.Array:
    """Return numbers, each minus one."""
    return pa.array([None if each is None else each - 1 for each in number.to_pylist()], number.type)


def called(asked: StreamQuery) -> object:
    """Return what a call of the function f comes to; None if there is no such function."""
    numbers = pa.RecordBatch.from_pydict({"n": pa.array([1, None, 3], pa.int32())})
    compiled = compile_expression("f(n)", numbers.schema, functions_of(asked.spec.query))
    return None if compiled is None else evaluate(compiled.program, numbers).to_pylist()


def finished(asked: StreamQuery) -> object:
    """Return what a call of the aggregator f comes to; None if there is no such aggregator."""
    aggregator = aggregators_of(asked.spec.query).get("f")
    if aggregator is None:
        return None
    arguments = [pa.array([1, 4, 3], pa.int64()), pa.array([9, 8, 7], pa.timestamp("us", tz="UTC"))]
    taken = len(aggregator.arguments)
    numbers = pa.table(arguments[:taken], names=["n", "at"][:taken])
    return aggregator.finished(aggregator.reduced(numbers, pa.array([[0, 1], [2]]))).to_pylist()


TWO = {"trips": FILES, "others": FILES | {"files": {"path": "others.csv", "format": "csv"}}}
HERE = __name__
PYTHON = {
    "aggregator": f"{HERE}:Largest",
    "source": "trips",
    "groupBy": ["city"],
    "window": {"column": "at", "size": "2m"},
}


def of_query() -> Iterator[Probe]:
    """Yield the probes of the query."""
    sql = query(FILES)
    yield Probe("spec.query.sql", sql, (SQL, SQL.replace("city", "n"), ABSENT), translated)
    raised = {"f": {"python": f"{HERE}:raised", "returns": "INT"}}
    lowered = {"f": {"python": f"{HERE}:lowered", "returns": "INT"}}
    own = query(FILES, query={"sql": SQL, "functions": raised})
    yield Probe("spec.query.functions", own, (ABSENT, raised, lowered), called)
    yield Probe("spec.query.functions.*.python", own, (f"{HERE}:raised", f"{HERE}:lowered", f"{HERE}:none"), called)
    yield Probe("spec.query.functions.*.returns", own, ("INT", "BIGINT"), called, one_fits=True)
    most, least = {"f": {"python": f"{HERE}:Largest"}}, {"f": {"python": f"{HERE}:Smallest"}}
    own = query(FILES, query={"sql": SQL, "aggregates": most})
    yield Probe("spec.query.aggregates", own, (ABSENT, most, least), finished)
    yield Probe("spec.query.aggregates.*.python", own, (f"{HERE}:Largest", f"{HERE}:Smallest"), finished)
    yield Probe("spec.query.aggregates.*.options", own, (ABSENT, {"factor": 2}, {"factors": 2}), finished)
    options = {"TopK": {"type": "BIGINT"}, "Quantiles": {"probabilities": [0.5]}, "Histogram": {"edges": [2]},
               "Latest": {"type": "BIGINT"}}  # fmt: skip
    for name, own_options in options.items():
        made = query(FILES, query={"sql": SQL, "aggregates": {"f": {"builtin": name, "options": own_options}}})
        others = [other for other in options if other != name]
        yield Probe("spec.query.aggregates.*.builtin", made, (name, *others), finished, one_fits=True)
    base = query({}, query={"python": PYTHON})
    base["spec"]["sources"] = TWO
    yield Probe("spec.query.python", base | {"spec": base["spec"] | {"query": {}}}, (ABSENT, PYTHON), aggregated)
    yield from probes(
        base,
        aggregated,
        "spec.query.python",
        aggregator=(f"{HERE}:Largest", f"{HERE}:Smallest", f"{HERE}:Missing"),
        source=("trips", "others", ABSENT),
        groupBy=(["city"], ["city", "n"], ABSENT),
        window=(ABSENT, PYTHON["window"]),
        window__column=("at", "seen"),
        window__size=("2m", "4m"),
        window__slide=(ABSENT, "1m"),
        options=(ABSENT, {"factor": 2}, {"factors": 2}),
    )
