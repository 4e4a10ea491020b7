"""What ``millrace validate`` refuses of generated queries says where it is, and what to write instead."""

import pytest
from pydantic import ValidationError

from generated_queries import document
from millrace_api.errors import Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query
from millrace_jobs.run.query_file import check_file, execution_problems

QUERIES = 600
SQL = "spec.query.sql"
WHOLE = ("the SQL reads none of the sources", "emit On", "SELECT that reads")
"""What is wrong with the SQL as a whole, which has no place in it."""


def refusals(seeds: range) -> dict[int, list[Problem]]:
    """Return the problems of generated queries, by their number, without those that the model refuses."""
    found = {}
    for seed in seeds:
        try:
            query = StreamQuery.model_validate(document(seed), by_name=False)
        except ValidationError:
            continue
        found[seed] = check_query(query) or execution_problems(query)
    return found


@pytest.fixture(scope="module")
def refused() -> dict[int, list[Problem]]:
    return refusals(range(QUERIES))


def test_some_queries_run_and_some_are_refused(refused):
    assert {bool(problems) for problems in refused.values()} == {True, False}


def test_a_refusal_names_a_field_and_what_to_write(refused):
    for seed, problems in refused.items():
        for problem in problems:
            assert problem.field.startswith("spec."), (seed, problem)
            assert problem.hint, (seed, problem)


def test_a_refusal_of_sql_has_its_line_and_column(refused):
    for seed, problems in refused.items():
        for problem in problems:
            if problem.field == SQL and not problem.message.startswith(WHOLE):
                assert problem.line == 1, (seed, problem)
                assert "line 1, column" in problem.message, (seed, problem)


FILE = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: late}
spec:
  sources:
    trips: {kafka: {bootstrapServers: "kafka:9092", topic: trips}, schema: "at TIMESTAMP, k STRING, n INT"}
    rates:
      kafka: {bootstrapServers: "kafka:9092", topic: rates}
      schema: at TIMESTAMP, k STRING, n INT
      watermark: {column: at, delay: 1s}
      table: {keys: [k]}
  query:
    sql: |
      SELECT t.k, r.n
      FROM rates r
      JOIN trips t ON t.k = r.k
  sink: {table: {bootstrapServers: "kafka:9092", topic: out}}
"""


def test_a_refusal_of_the_planner_has_its_line_in_the_file(tmp_path):
    file = tmp_path / "query.yaml"
    file.write_text(FILE, encoding="utf-8")
    (problem,) = check_file(file, inputs=False)
    assert str(problem) == (
        f"{file}:16: {SQL}: the query reads a table, and trips is a stream without a watermark, whose column is the event "
        "time (line 3, column 6 of the SQL); add watermark: {column: ..., delay: 30s} to spec.sources.trips"
    )


def test_a_refusal_of_another_output_names_that_output():
    kafka = {"bootstrapServers": "kafka:9092"}
    source = {
        "kafka": {**kafka, "topic": "in"},
        "schema": "at TIMESTAMP, k STRING",
        "watermark": {"column": "at", "delay": "1s"},
    }
    sql = "SELECT window.start AS since, s.k, count(*) AS n FROM s JOIN p ON s.k = p.k GROUP BY window(s.at, '1 day'), s.k"
    made = document(0)
    made["spec"] = {
        "sources": {"s": source, "p": {**source, "table": {"keys": ["k"]}}},
        "query": {"sql": sql},
        "sink": {"table": {**kafka, "topic": "out"}},
        "additionalOutputs": {
            "more": {"emit": "OnWindowClose", "sink": {"table": {**kafka, "topic": "more", "key": ["k"]}}}
        },
    }
    (problem,) = execution_problems(StreamQuery.model_validate(made, by_name=False))
    assert problem.field == "spec.additionalOutputs.more.sink.table.key", problem
