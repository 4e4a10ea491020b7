"""Queries that change over one state: aggregates move, leave and return, and DuckDB says what the results are."""

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from sqlglot import transpile

from millrace_api.errors import MillraceError
from millrace_api.sql.dialect import StreamingSql
from millrace_api.sql.outline import aggregate_text, outline
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.queries.routed.aggregation import aggregation_of
from millrace_jobs.queries.state_layout import same_entry

SCHEMA = pa.schema([("k", pa.string()), ("N", pa.int64()), ("v", pa.int64())])
ODD = pa.schema([*SCHEMA, *((name, pa.int64()) for name in ("a b", "a-b", "v-n", "current_date"))])
CALLS = ("count(*)", "count(v)", "sum(n)", "sum(v)", "avg(n)", "min(v)", "max(n)", "sum(n) FILTER (WHERE v > 1)")
SHOWN = ("{}", "abs(abs({})) + 1", "coalesce({}, 7)")


def type_of(sql):
    return "double" if "AVG" in sql or "DOUBLE" in sql else "bigint"


def routed(sql, held=(), types=type_of):
    return aggregation_of(parsed_query(sql), {"t": ODD}, types, held=held)


@st.composite
def versions(draw):
    """The first query with some aggregates, and changed ones over some of these in any order."""
    first = draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=5, unique=True))
    queries = [draw(query(first, whole=True))]
    for _ in range(draw(st.integers(1, 4))):
        kept = draw(st.lists(st.sampled_from(first), min_size=1, unique=True))
        queries.append(draw(query(kept, whole=False)))
    return queries


@st.composite
def query(draw, calls, *, whole):
    items = [draw(st.sampled_from(SHOWN)).format(call) for call in calls]
    having = ""
    if not whole and draw(st.booleans()):
        having = f" HAVING {draw(st.sampled_from(calls))} > {draw(st.integers(-3, 3))}"
    return f"SELECT t.k, {', '.join(items)} FROM t GROUP BY k{having}"


def batches():
    number = st.none() | st.integers(-5, 5)
    record = st.tuples(st.sampled_from("abc") | st.none(), number, number)
    return st.lists(st.lists(record, max_size=8), min_size=5, max_size=5)


DUCKDB = duckdb.connect()
DUCKDB.execute("CREATE MACRO try_divide(a, b) AS CASE WHEN b <> 0 THEN a / b END")
DUCKDB.execute("CREATE MACRO timestamp_micros(a) AS make_timestamp(a)")


class State:
    """The merged parts of groups in DuckDB, in the columns that the first query has given them."""

    def __init__(self):
        self._rows = None

    def add(self, records, aggregation):
        """Merge the records of a batch."""
        parts = aggregation.parts
        initial = ", ".join(f"{part.initial} AS {part.name}" for part in parts)
        merged = ", ".join(f"{part.merge} AS {part.name}" for part in parts)
        rows = self.ask(f"SELECT k AS k0, {initial} FROM t", t=records)
        if self._rows is not None:
            rows = pa.concat_tables([self._rows, rows.cast(self._rows.schema)])
        self._rows = self.ask(f"SELECT k0, {merged} FROM held GROUP BY k0", held=rows).cast(rows.schema)

    def results(self, aggregation):
        """Return the rows of a query over the state."""
        having = f"WHERE {aggregation.having}" if aggregation.having else ""
        return rows_of(self.ask(f"SELECT {', '.join(aggregation.select)} FROM held {having}", held=self._rows))

    def ask(self, sql, **tables):
        """Return the result of SQL of Spark over tables."""
        for name, rows in tables.items():
            DUCKDB.register(name, rows)
        (text,) = transpile(sql, read=StreamingSql, write="duckdb")
        return DUCKDB.sql(text).to_arrow_table()


def rows_of(table):
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


@given(versions(), batches())
def test_results_of_each_changed_query_are_those_over_all_records(queries, given_batches):
    first = routed(queries[0])
    held = [aggregate.call for aggregate in first.aggregates]
    state, records = State(), SCHEMA.empty_table()
    for sql, batch in zip(queries, given_batches, strict=False):
        aggregation = routed(sql, held)
        assert aggregation.parts == first.parts
        assert [aggregate.call for aggregate in aggregation.aggregates] == held
        new = pa.Table.from_pylist([dict(zip(SCHEMA.names, record, strict=True)) for record in batch], SCHEMA)
        records = pa.concat_tables([records, new])
        state.add(new, aggregation)
        assert state.results(aggregation) == rows_of(state.ask(sql, t=records))


def test_new_aggregates_come_after_those_of_the_state():
    found = routed("SELECT max(n), sum(v) FROM t", ["COUNT(*)", "SUM(v)"])
    assert [aggregate.call for aggregate in found.aggregates] == ["COUNT(*)", "SUM(v)", "MAX(N)"]
    assert [part.name for part in found.parts] == ["a0", "a1", "a2"]


PARTS = ("a0", "a1", "a2", "a3")


@given(st.lists(st.none() | st.integers(-5, 5), min_size=4, max_size=4))
def test_an_aggregate_is_null_in_windows_up_to_the_last_one_of_which_the_state_lacks_records(after):
    items = "sum(n), coalesce(count(v), 7), max(v), count(*)"
    sql = f"SELECT window.start, {items} FROM t GROUP BY window(at, '1 minute')"
    schema, held = pa.schema([*SCHEMA, ("at", pa.timestamp("us", "UTC"))]), ["COUNT(*)", "SUM(n)", "COUNT(v)", "MAX(v)"]
    found = aggregation_of(parsed_query(sql), {"t": schema}, type_of, held=held, after=after)
    assert [aggregate.after for aggregate in found.aggregates] == after
    starts = range(-6, 7)
    windows = pa.array([{"start": start} for start in starts], pa.struct([("start", pa.timestamp("us"))]))
    parts = {
        name: pa.array([value] * len(starts), pa.int64()) for name, value in zip(PARTS, (3, 8, None, 5), strict=True)
    }
    merged = pa.table({"window": windows, **parts})
    results = State().ask(f"SELECT {', '.join(found.select[1:])} FROM held", held=merged).to_pylist()
    values, nulls = (8, 0, 5, 3), (None, 7, None, None)
    lacking = [after[place] for place in (1, 2, 3, 0)]
    for start, row in zip(starts, results, strict=True):
        whole = [each is None or start > each for each in lacking]
        expected = [value if is_whole else null for is_whole, value, null in zip(whole, values, nulls, strict=True)]
        assert list(row.values()) == expected


def test_calls_of_the_state_are_spelled_as_the_source_is_now():
    found = routed("SELECT count(*) FROM t", ["SUM(n)", "COUNT(*)"])
    assert [(part.name, part.input) for part in found.parts] == [("a0", "N"), ("a1", "")]


def calls(found):
    return [aggregate.call for aggregate in found.aggregates]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT k, sum(v), sum(`v`), count(*) FROM t GROUP BY k", ["SUM(v)", "COUNT(*)"]),
        ("SELECT k, sum(v) AS a, SUM(V) AS b, sum(t.`V`) AS c FROM t GROUP BY k", ["SUM(v)"]),
        ("SELECT sum(`a b`), sum(`a-b`), sum(v) FROM t", ["SUM(`a b`)", "SUM(`a-b`)", "SUM(v)"]),
        ("SELECT sum(`v-n`), sum(v-n) FROM t HAVING sum(`V-N`) > sum(V - N)", ["SUM(`v-n`)", "SUM(v - N)"]),
        ("SELECT sum(`current_date`), max(current_date) FROM t", ["SUM(`current_date`)", "MAX(CURRENT_DATE)"]),
        (
            "SELECT sum(v) FILTER (WHERE `N` > 1), sum(v) FILTER (WHERE n > 1), sum(v) FROM t",
            ["SUM(v) FILTER(WHERE `N` > 1)", "SUM(v)"],
        ),
        (
            "SELECT sum(aggregate(array(v), 0, (A, x) -> A + x)), sum(aggregate(array(v), 0, (a, X) -> a + X)) FROM t",
            ["SUM(AGGREGATE(ARRAY(v), 0, (A, x) -> A + x))"],
        ),
    ],
)
def test_a_call_has_columns_once_however_it_is_written_and_the_same_ones_at_the_next_start(sql, expected):
    first = routed(sql)
    assert calls(first) == expected
    for held in (calls(first), [*map(aggregate_text, expected)]):
        again = routed(sql, held)
        assert (calls(again), again.parts, again.select) == (expected, first.parts, first.select)


@pytest.mark.parametrize("sql", ["SELECT k, sum(v), sum(`v`), count(*) FROM t GROUP BY k", "SELECT sum(`V`) FROM t"])
def test_a_state_with_columns_for_two_spellings_of_a_call_keeps_both(sql):
    held = ["SUM(v)", "SUM(`v`)", "COUNT(*)"]
    found = routed(sql, held)
    assert [part.name for part in found.parts] == ["a0", "a1", "a2"]
    assert same_entry("aggregates", held, calls(found))


@pytest.mark.parametrize(
    "call",
    [
        "sum(v) FILTER (WHERE `K` = 'it''s')",
        r"sum(v) FILTER (WHERE k = 'it\'s \\ x')",
        'max(k) FILTER (WHERE k <> "Q")',
        r"max(r'\d')",
        "sum(v) FILTER (WHERE NOT k <=> 'x')",
        "sum(CAST(k AS DECIMAL(10, 2)))",
        "sum(`V`::int)",
        "sum(double(v))",
        "sum(try_cast(k AS int))",
        "sum(- -v)",
        "sum(((v) + 1) * 2)",
        "sum(v DIV 2 + v % 2)",
        "sum(1.5BD * v)",
        "max(`K` || /* or B */ 'a')",
        "count(k RLIKE 'a.*')",
        "max(k LIKE 'a\\_%' ESCAPE '/')",
        "max(substr(k FROM 1 FOR 2))",
        "max(extract(YEAR FROM to_date(k)))",
        "sum(CASE WHEN t.`V` BETWEEN 1 AND 2 THEN n END)",
        "max(INTERVAL 1 DAY)",
    ],
)
def test_a_call_is_found_by_the_text_that_the_checkpoint_has_of_it(call):
    shown = f"SELECT k, abs(abs({call})) AS x, count(*) AS c FROM t GROUP BY k HAVING {call} IS NOT NULL OR x > 1"
    first = routed(shown)
    again, left = routed(shown, calls(first)), routed("SELECT count(*) FROM t GROUP BY k", calls(first))
    assert (again.aggregates, again.select, again.having) == (first.aggregates, first.select, first.having)
    assert left.aggregates == first.aggregates
    seen = outline(parsed_query(shown), frozenset()).aggregates
    assert sorted(map(aggregate_text, calls(first))) == sorted(seen)


@pytest.mark.parametrize(
    ("call", "other"),
    [
        ("sum(v)", "sum(v) FILTER (WHERE n > 1)"),
        ("sum(v) FILTER (WHERE n > 1)", "sum(v) FILTER (WHERE n >= 1)"),
        ("sum(v)", "sum(CAST(v AS DOUBLE))"),
        ("count(*)", "count(v)"),
        ("max(k) FILTER (WHERE k = 'A')", "max(k) FILTER (WHERE k = 'a')"),
    ],
)
def test_another_filter_or_type_is_another_aggregate(call, other):
    held = calls(routed(f"SELECT {call} FROM t"))
    found = calls(routed(f"SELECT {other} FROM t", held))
    assert len(found) == 2
    assert found[:1] == held


@pytest.mark.parametrize("call", ["SUM(gone)", "MY_OWN(v)"])
def test_what_only_the_state_has_and_no_record_gives_any_more_is_refused(call):
    def types(sql):
        if "gone" in sql:
            raise AnalysisException("[UNRESOLVED_COLUMN] There is no column gone. SQLSTATE: 42703")
        return "bigint"

    with pytest.raises(MillraceError, match="a column or a function that it needs is gone") as refused:
        routed("SELECT count(*) FROM t", ["COUNT(*)", call], types)
    assert refused.value.problems[0].field == "spec.query.sql"
