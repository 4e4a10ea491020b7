"""What keeps an aggregator of a query's own from being called by its SQL is said before the query runs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sqlglot import exp

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import parse_expression
from millrace_api.sql.parsed_query import parsed_sql
from millrace_jobs.aggregates.builtin import compile_aggregate
from millrace_jobs.aggregates.reducing import ColumnarReduction, PartColumn
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.queries.compile import choose_execution
from millrace_jobs.queries.dry_compile import DeclaredTypes, dry_compile
from millrace_jobs.queries.own_aggregates import aggregators_of
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.queries.routed.compile import ahead_of
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.sources.connector import schema_of

SCHEMA = "at TIMESTAMP, k STRING, v DOUBLE"
SPREAD = {"python": f"{__name__}:Spread", "options": {}}
FILES = {"files": {"path": "in", "format": "csv"}, "schema": SCHEMA}
WATERMARK = {"watermark": {"column": "at", "delay": "1m"}}


class Spread:
    """The largest value of a column less the smallest of another."""

    columns = ("high", "low")
    state_schema = pa.schema([("high", pa.float64()), ("low", pa.float64())])
    result_schema = pa.schema([("spread", pa.float64())])

    def __init__(self, times: int = 1) -> None:
        self._times = times

    def init(self):
        return {"high": None, "low": None}

    def update(self, state, batch):
        return state

    def merge(self, a, b):
        return a

    def finish(self, state):
        return {"spread": None}


class Unsigned(Spread):
    state_schema = pa.schema([("hash", pa.uint64())])


class Nanoseconds(Spread):
    state_schema = pa.schema([("last", pa.timestamp("ns", "UTC"))])


class Wide(Spread):
    result_schema = pa.schema([("total", pa.decimal256(40, 2))])


class LargeText(Spread):
    result_schema = pa.schema([("word", pa.large_string())])


class AsTuple(Spread):
    state_schema = (("high", "double"),)


class AsFloats(Spread):
    result_schema = pa.schema([("spread", pa.float32())])


class WithoutResult(Spread):
    result_schema = pa.schema([])


def spec_of(sql, *, aggregate=SPREAD, sources=None, **more):
    query = {"sql": sql, "aggregates": {"spread": aggregate}}
    return Spec.model_validate({"sources": sources or {"t": FILES}, "query": query, "sink": {"console": {}}} | more)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, spread(v, v * 2) AS s, count(*) FROM t GROUP BY k HAVING Spread(v, v * 2) > 1",
        "SELECT spread(abs(v), v) + max(v) AS s FROM t",
        "SELECT window, avg(spread_of.v) AS mean, spread(v, v) FROM t AS spread_of GROUP BY window(at, '1 minute')",
    ],
)
def test_a_query_that_calls_one_is_routed(sql):
    spec = spec_of(sql)
    schemas = {"t": schema_of(spec.sources["t"])}
    aggregators = aggregators_of(spec.query)
    types = DeclaredTypes(schemas, [*aggregators.values()])
    chosen = choose_execution(spec, parsed_sql(spec), schemas, types, 1, aggregators)
    assert isinstance(chosen, Aggregation)
    assert chosen.has_states
    assert dry_compile(spec) == []


JOINED = "SELECT spread(a.v, b.v) AS s FROM t AS a JOIN u AS b ON a.k = b.k GROUP BY a.k"
TWO = {"t": FILES | WATERMARK, "u": FILES | WATERMARK}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            spec_of("SELECT spread(v) AS s FROM t GROUP BY k"),
            "is called with 1 argument (line 1, column 8 of the SQL); write spread(high, low), in the order of its columns",
        ),
        (
            spec_of(JOINED, sources=TWO),
            "the query calls the aggregator spread, and joins, reads or keeps a table, counts distinct values, or aggregates groups again; write one",
        ),
        (
            spec_of("SELECT max(s) FROM (SELECT spread(v, v) AS s FROM t GROUP BY k)"),
            "the query calls the aggregator spread, and joins, reads or keeps a table, counts distinct values, or aggregates groups again; write one",
        ),
        (
            spec_of("SELECT k, spread(v, v) AS s FROM t GROUP BY ROLLUP (k)"),
            "the query calls the aggregator spread, and it has GROUPING SETS, CUBE, ROLLUP or GROUP BY ALL; leave that out",
        ),
        (
            spec_of("SELECT k, spread(v, v) AS s, first(v) FROM t GROUP BY k"),
            "and FIRST(v) is not one of the aggregates with a mergeable partial result; leave that out",
        ),
        (
            spec_of("SELECT k, spread(v, v) AS s, stddev(v) FROM t GROUP BY k"),
            "the query calls an aggregator, and STDDEV(v) is not made of sums, minima and maxima; leave that out",
        ),
        (
            spec_of("SELECT k, spread(v, v) AS s FROM t GROUP BY k", emit="OnWindowClose"),
            "the query calls an aggregator, and its groups have no window on the column of the watermark; write emit: OnUp",
        ),
    ],
)
def test_what_cannot_call_one_is_refused_with_the_reason(spec, said):
    (problem,) = dry_compile(spec)
    assert problem.field == "spec.query.sql"
    assert said in f"{problem.message}; {problem.hint}"


@pytest.mark.parametrize(
    ("aggregate", "field", "said"),
    [
        ({"python": f"{__name__}:Missing"}, "python", f"module {__name__!r} has no class 'Missing'"),
        (SPREAD | {"options": {"size": 1}}, "python", "correct its options, or the class; Spread takes (times: "),
        ({"builtin": "TopK", "options": {"k": 0}}, "options", "1 <= k <= capacity <= 100000 must hold"),
        ({"python": f"{__name__}:Unsigned"}, "python", "has the type uint64, which Spark lacks"),
        ({"python": f"{__name__}:Nanoseconds"}, "python", 'timestamp[ns, tz=UTC]; write timestamp("us", tz="UTC"), as'),
        ({"python": f"{__name__}:Wide"}, "python", "has the type decimal256(40, 2)"),
        ({"python": f"{__name__}:LargeText"}, "python", "has the type large_string; write string, as which Spark"),
        ({"python": f"{__name__}:AsTuple"}, "python", f"the state_schema of '{__name__}:AsTuple' is a tuple"),
        ({"python": f"{__name__}:WithoutResult"}, "python", "has no fields"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_its_field(aggregate, field, said):
    with pytest.raises(MillraceError) as refused:
        aggregators_of(spec_of("SELECT 1 FROM t", aggregate=aggregate).query)
    (problem,) = refused.value.problems
    assert problem.field == f"spec.query.aggregates.spread.{field}"
    assert said in str(problem)


def routed(spec):
    """The compiled query, as far as its layout and its results depend on it."""
    schemas = {"t": schema_of(spec.sources["t"])}
    aggregators = aggregators_of(spec.query)
    chosen = choose_execution(
        spec, parsed_sql(spec), schemas, DeclaredTypes(schemas, [*aggregators.values()]), 1, aggregators
    )
    parts = tuple(
        PartColumn(part.name, part.reduce, "", part.aggregator.state_type, part.aggregator, ()) for part in chosen.parts
    )
    projection = Projection("", (), pa.schema([]), 0)
    reduction = ColumnarReduction((), chosen.window, parts)
    return Routed("t", chosen.window, projection, reduction, chosen, ahead_of(chosen, spec), 4)


BY_WINDOW = "SELECT window, spread(v, v) AS s FROM t GROUP BY window(at, '1 minute')"
EARLY = {"additionalOutputs": {"early": {"emit": "OnUpdate", "sink": {"console": {}}}}, "emit": "OnWindowClose"}


@pytest.mark.parametrize(
    ("more", "held"),
    [({}, False), ({"emit": "OnWindowClose"}, False), ({"emit": "OnWindowEnd"}, True), (EARLY, True)],
)
def test_the_type_of_results_is_part_of_the_state_where_emitted_rows_are(more, held):
    other = {"python": f"{__name__}:AsFloats"}
    spread, floats = (
        routed(spec_of(BY_WINDOW, aggregate=each, sources={"t": FILES | WATERMARK}, **more)).layout()
        for each in (SPREAD, other)
    )
    assert spread.get("results") == (["double"] if held else None)
    assert (spread == floats) is not held


def test_one_group_over_all_records_leaves_in_the_partitions_of_the_state():
    assert routed(spec_of("SELECT spread(v, v) AS s FROM t")).result_partitions(4) == 4


def test_validate_refuses_a_table_by_partition_as_a_run_does():
    table = {"table": {"bootstrapServers": "h:1", "topic": "t", "key": ["k"], "transaction": "Partition"}}
    spec = spec_of("SELECT k, spread(v, v) AS s FROM t GROUP BY k", sink=table)
    (problem,) = dry_compile(spec)
    assert problem.field == "spec.sink.table.transaction"


def test_a_filter_is_not_dropped():
    own = aggregators_of(spec_of("SELECT 1 FROM t").query)
    where = exp.Where(this=parse_expression("v > 1"))
    call = exp.AnonymousAggFunc(this="spread", expressions=[exp.column("v"), exp.column("v")])
    assert not isinstance(compile_aggregate(call, 0, lambda _: "double", own=own), str)
    found = compile_aggregate(exp.Filter(this=call, expression=where), 0, lambda _: "double", own=own)
    assert found == "SPREAD(v, v) FILTER(WHERE v > 1) has a FILTER, which aggregators of the query's own do not take"
