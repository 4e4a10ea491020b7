"""Functions of a query's own: what may be one, how the SQL may call it, and what a call may return."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_api.model.query import Query
from millrace_api.model.streamquery import Spec
from millrace_api.sql.own_functions import name_problem, returns_problem
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.dedicated.instructions import version_of
from millrace_jobs.own_code.functions import ScalarFunction, imported
from millrace_jobs.pipeline.expressions.compiler import compile_expression
from millrace_jobs.pipeline.expressions.programs import evaluate
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.queries.compile import choose_execution
from millrace_jobs.queries.dry_compile import DeclaredTypes, dry_compile
from millrace_jobs.queries.own_functions import check_own_functions, functions_of
from millrace_jobs.sources.connector import schema_of

MODULE = """\
from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def halved(value: pa.Array) -> pa.Array:
    return pc.divide(value, 2.0)


def inverse(value: pa.Array) -> pa.Array:
    return pa.array([None if each is None else 1 / each for each in value.to_pylist()], pa.float64())


def added(value: pa.Array, more: pa.Array) -> pa.Array:
    return pc.add(value, more)


def shorter(value: pa.Array) -> pa.Array:
    return value[1:]


def shown(value: pa.Array) -> pa.Array:
    return value.cast(pa.string())


def listed(value: pa.Array) -> pa.Array:
    return value.to_pylist()


def bare(value):
    return value


def half_bare(value) -> pa.Array:
    return value


def unreadable(value: pa.Arrays) -> pa.Array:
    return value
"""
SCHEMA = pa.schema([("d", pa.float64()), ("i", pa.int32()), ("s", pa.string())])


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "functions_in_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


def function(name: str) -> ScalarFunction:
    return ScalarFunction(name, f"functions_in_tests:{name}", pa.float64())


def query(sql: str, path: str = "functions_in_tests:added") -> Query:
    return Query.model_validate({"sql": sql, "functions": {"f": {"python": path, "returns": "DOUBLE"}}})


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(MillraceError) as caught:
        call()
    return str(caught.value)


def values(sql: str, batch: pa.RecordBatch, *functions: ScalarFunction) -> list[object]:
    compiled = compile_expression(sql, batch.schema, functions)
    assert compiled is not None
    return evaluate(pickle.loads(pickle.dumps(compiled.program)), batch).to_pylist()


def batch(*numbers: float | None) -> pa.RecordBatch:
    columns = [
        pa.array(numbers, pa.float64()),
        pa.array(range(len(numbers)), pa.int32()),
        pa.array(["a"] * len(numbers)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def test_a_replica_calls_it_in_any_case_with_columns_literals_and_its_own_results():
    rows = batch(1.0, None, 3.0)
    assert values("HALVED(d)", rows, function("halved")) == [0.5, None, 1.5]
    assert values("added(halved(d), 1e0) + 1", rows, function("halved"), function("added")) == [2.5, None, 3.5]


def test_a_call_of_a_literal_has_a_value_for_each_record():
    assert values("halved(4e0)", batch(1.0, 2.0), function("halved")) == [2.0, 2.0]
    assert values("halved(4e0) + 1", batch(), function("halved")) == []


def test_it_is_not_called_without_records():
    assert values("inverse(d)", batch(), function("inverse")) == []


@given(numbers=st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)), cut=st.integers(0, 20))
def test_how_records_are_divided_changes_no_value(numbers, cut):
    rows, sql, halved = batch(*numbers), "CASE WHEN d > 0 THEN halved(d) ELSE d END", function("halved")
    parts = rows.slice(0, cut), rows.slice(min(cut, len(numbers)))
    assert values(sql, rows, halved) == [each for part in parts for each in values(sql, part, halved)]


def test_where_the_sql_skips_a_value_its_exception_is_none():
    rows = batch(0.0, 2.0, None)
    assert values("CASE WHEN d <> 0 THEN inverse(d) END", rows, function("inverse")) == [None, 0.5, None]
    assert values("d <> 0 AND inverse(d) < 1", rows, function("inverse")) == [False, True, None]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("inverse", "failed: ZeroDivisionError: float division by zero (functions_in_tests.py, line 12); correct it"),
        ("shorter", "returned an array of length 1 for 2 records; return a value for each record"),
        ("shown", "returned string values instead of double; cast it to double, or change returns"),
        ("listed", "returned list, which is not a pyarrow.Array; return an array of double"),
    ],
)
def test_a_call_that_fails_names_the_function_and_what_to_do(name, said):
    message = refusal(lambda: values(f"{name}(d)", batch(0.0, 1.0), function(name)))
    assert message.startswith(f"spec.query.functions.{name}: the function {name} (functions_in_tests:{name}) {said}")
    assert message.endswith(", then run the same command again: nothing is lost")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere:f", "'nowhere:f' cannot be imported: No module named 'nowhere'; put it beside the query's file"),
        ("functions_in_tests:f", "has no Python function 'f'; write one of its functions: added, halved"),
        ("functions_in_tests:bare", "is not annotated as a function of Arrow arrays; annotate its parameters and"),
        ("functions_in_tests:half_bare", "is not annotated as a function of Arrow arrays"),
        ("functions_in_tests:unreadable", "is not annotated as a function of Arrow arrays"),
        ("os:system", "module 'os' has no Python function 'system'"),
        ("os:popen", "is not annotated as a function of Arrow arrays"),
        ("subprocess:run", "is not annotated as a function of Arrow arrays"),
        ("subprocess:Popen", "module 'subprocess' has no Python function 'Popen'"),
        ("builtins:eval", "module 'builtins' has no Python function 'eval'"),
    ],
)
def test_only_functions_over_arrays_can_be_called(path, said):
    message = refusal(lambda: check_own_functions(query("SELECT f(d, d) FROM t", path)))
    assert message.startswith("spec.query.functions.f.python: ")
    assert said in message


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("F(d)", '"f" is called with 1 argument, and takes (value, more) (line 1, column 8 of the SQL)'),
        ("f(d, d, d)", '"f" is called with 3 arguments, and takes (value, more)'),
        ("f()", '"f" is called without arguments'),
        ("f(value => d, more => d)", '"f" is called with arguments by name'),
    ],
)
def test_a_call_has_as_many_arguments_as_the_function_takes(call, said):
    message = refusal(lambda: check_own_functions(query(f"SELECT {call} FROM t")))
    assert message.startswith(f"spec.query.sql: {said}")


def test_replicas_in_processes_of_their_own_get_no_functions():
    declared = {"halved": {"python": "functions_in_tests:halved", "returns": "DOUBLE"}}
    source = {"kafka": {"bootstrapServers": "localhost:9092", "topic": "t"}, "schema": "d DOUBLE"}
    sql = "SELECT halved(d) AS half, count(*) AS n FROM t GROUP BY halved(d)"
    spec = {"sources": {"t": source}, "query": {"sql": sql, "functions": declared}, "sink": {"console": {}},
            "partitioner": {"placement": "Dedicated"}}  # fmt: skip
    message = str(*dry_compile(Spec.model_validate(spec)))
    assert (
        "spec.partitioner.placement: placement Dedicated runs no functions in Python, and HALVED(d) calls one"
        in message
    )
    projection = Projection("", (("k0", "halved(d)"),), pa.schema([("k0", pa.float64())]), 1)
    of_kafka = Spec.model_validate(spec).sources["t"]
    with_function = replace(projection, functions=(function("halved"),))
    assert version_of(of_kafka, with_function) == version_of(of_kafka, projection)


def test_validate_knows_the_type_of_a_call():
    types = DeclaredTypes(
        {"t": SCHEMA}, [function("halved"), ScalarFunction("same", "functions_in_tests:bare", pa.date32())]
    )
    assert types.in_source("t", "halved(d) + 1") == "double"
    assert types.in_source("t", "max(SAME(d))") == "date"


def test_declared_types_are_those_of_arrow():
    (declared,) = functions_of(query("SELECT f(d, d) FROM t"))
    assert declared == ScalarFunction("f", "functions_in_tests:added", pa.float64())


@pytest.mark.parametrize("name", ["sum", "window", "upper", "date", "identifier", "select", "case", "from", "not"])
def test_a_name_of_sql_is_refused(name):
    assert name_problem(name) is not None


@pytest.mark.parametrize("name", ["distance", "my_sum", "_f", "f2"])
def test_any_other_name_can_be_called(name):
    assert name_problem(name) is None


@pytest.mark.parametrize("text", ["TEXT", "ARRAY<INT>", "STRUCT<a: INT>", "INT, b INT", "DECIMAL(99, 2)"])
def test_values_of_other_types_are_refused(text):
    assert returns_problem(text) is not None


@pytest.mark.parametrize("text", ["string", "BIGINT", "DECIMAL(10, 2)", "TIMESTAMP", "BOOLEAN", "DATE", "BINARY"])
def test_values_of_single_types_can_be_returned(text):
    assert returns_problem(text) is None


def test_the_types_of_the_functions_that_a_join_calls_are_in_the_layout_of_its_state():
    source = {"files": {"path": "in/*.json", "format": "json"}, "watermark": {"column": "at", "delay": "1m"}}
    called = {"python": "geo:halved", "returns": "BIGINT"}
    spec = Spec.model_validate(
        {
            "sources": {name: {**source, "schema": f"{name} INT, n INT, at TIMESTAMP"} for name in ("a", "b")},
            "query": {
                "sql": "SELECT a.n, halved(b.n) AS half FROM a JOIN b ON a.n = b.n "
                "AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR",
                "functions": {"halved": called, "unused": called},
            },
            "sink": {"console": {}},
        },
        by_name=False,
    )
    schemas = {name: schema_of(each) for name, each in spec.sources.items()}
    types = DeclaredTypes(schemas, functions_of(spec.query))
    chosen = choose_execution(spec, parsed_query(spec.query.sql), schemas, types, 1, {})
    assert chosen.layout()["functions"] == {"halved": "BIGINT"}


def test_a_module_that_ends_its_process_is_refused_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "script_without_guard.py").write_text("import sys\nsys.exit('usage: script')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MillraceError, match="'script_without_guard:f' cannot be imported: SystemExit: usage: script"):
        imported("f", "script_without_guard:f")
