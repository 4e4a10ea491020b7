"""What keeps an aggregator of a query's own from being called by its SQL is said before the query runs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec
from millrace_api.sql.parsed_query import parsed_sql
from millrace_jobs.queries.compile import choose_execution
from millrace_jobs.queries.dry_compile import DeclaredTypes, dry_compile
from millrace_jobs.queries.own_aggregates import aggregators_of
from millrace_jobs.queries.routed.aggregation import Aggregation
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
            "the query calls the aggregator spread, and joins, reads or keeps a table, or aggregates groups again; write one",
        ),
        (
            spec_of("SELECT max(s) FROM (SELECT spread(v, v) AS s FROM t GROUP BY k)"),
            "the query calls the aggregator spread, and joins, reads or keeps a table, or aggregates groups again; write one",
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
        ({"python": f"{__name__}:WithoutResult"}, "python", "has no fields"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_its_field(aggregate, field, said):
    with pytest.raises(MillraceError) as refused:
        aggregators_of(spec_of("SELECT 1 FROM t", aggregate=aggregate).query)
    (problem,) = refused.value.problems
    assert problem.field == f"spec.query.aggregates.spread.{field}"
    assert said in str(problem)
