"""What a user sees when something that only Spark, or the first batch, can find is wrong: one sentence, status 1."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from . import broken_aggregators
from .cli import Project, Result

pytestmark = pytest.mark.spark

COUNTS = "SELECT window.start AS since, who, count(*) AS rows FROM events GROUP BY window(at, '1 minute'), who"
ONLY_SPARK_REFUSES = "SELECT stack(2, who, n) AS value FROM events"
EVENTS = "at,who,n\n2024-01-01T00:00:01Z,a,1\n2024-01-01T00:01:05Z,b,2\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.give("1.csv", EVENTS)
    return made


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT n + array(1) AS bad FROM events", 'column 8: Cannot resolve "(n + array(1))"'),
        (ONLY_SPARK_REFUSES, "do not have the same type"),
    ],
)
def test_sql_that_only_spark_refuses_is_located_in_the_file(project: Project, sql: str, said: str) -> None:
    query = project.query(sql)
    for command in (["explain", query], ["run", query, "--once"]):
        result = project.millrace(*command)
        result.assert_failed(f"{query}:16: spec.query.sql: Spark does not accept the SQL", said)
        assert "SQLSTATE" not in result.err
        assert "started=" not in result.out
        assert {path.name for path in project.folder.rglob("*")} == {"in", "1.csv", query}


def test_a_query_that_spark_refused_can_be_corrected_in_any_way(project: Project) -> None:
    refused = project.query(ONLY_SPARK_REFUSES)
    project.millrace("run", refused, "--once").assert_failed("Spark does not accept the SQL")
    result = project.millrace("run", project.query(COUNTS, emit="OnWindowClose"), "--once")
    assert (result.status, result.summary["results"]) == (0, "2"), result


def test_a_value_that_the_sql_cannot_take_fails_the_batch_and_nothing_is_written(project: Project) -> None:
    result = project.millrace("run", project.query("SELECT CAST(who AS INT) AS number FROM events"), "--once")
    result.assert_failed(
        'of the type "STRING" cannot be cast to "INT"', "CAST(who AS INT) (line 1, column 8 of the SQL)"
    )
    assert result.summary["failed"] == "query"
    assert not project.results()


def test_more_results_than_the_driver_takes_name_the_setting_and_what_to_do(project: Project) -> None:
    project.give("2.csv", "at,who,n\n" + "".join(f"2024-01-01T00:00:01Z,{'x' * 1000},{n}\n" for n in range(200)))

    def run(limit: str) -> Result:
        settings = {"spark.driver.maxResultSize": limit}
        query = project.query("SELECT who, n FROM events", sink={"console": {"rows": 500}}, sparkConf=settings)
        return project.millrace("run", query, "--once")

    result = run("100k")
    result.assert_failed(
        "than spark.driver.maxResultSize allows; raise it, such as spec.sparkConf: {", "nothing is lost"
    )
    again = run("1g")
    assert (again.status, again.summary["results"]) == (0, "202"), again


def test_a_struct_cannot_go_to_csv(project: Project) -> None:
    query = project.query("SELECT window, count(*) AS rows FROM events GROUP BY window(at, '1 minute')")
    result = project.millrace("run", query, "--once")
    result.assert_failed("spec.sink.files.format: column window", "struct<", "window.start, or write format: parquet")


def test_a_metrics_port_that_is_taken_is_refused(project: Project) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = project.millrace("run", project.query(COUNTS), "--once", "--metrics-port", str(port))
    result.assert_failed(f"cannot serve metrics on 127.0.0.1:{port}: address already in use", "choose another port")


@pytest.mark.parametrize(
    ("aggregator", "said"),
    [
        (
            "nowhere:Rows",
            "'nowhere:Rows' cannot be imported: No module named 'nowhere'; put it beside the query's file",
        ),
        ("spark.broken_aggregators:Row", "has no class 'Row'; write one of its classes: "),
        ("spark.broken_aggregators:WithoutMerge", "has no init, update, merge, finish"),
        ("spark.broken_aggregators:FailsWhenMade", "RuntimeError: the model file is not there (broken_aggregators.py"),
        ("spark.broken_aggregators:ReadsFare", 'the class reads column "fare", which source events does not have'),
        ("half_written:Rows", "cannot be imported: SyntaxError: invalid syntax (half_written.py, line 2)"),
    ],
)
def test_an_aggregator_that_cannot_be_used_is_refused(project: Project, aggregator: str, said: str) -> None:
    project.write("half_written.py", "class Rows:\n    columns =\n")
    query = project.query(query={"python": {"aggregator": aggregator, "groupBy": ["who"]}})
    project.millrace("run", query, "--once").assert_failed("spec.query.python.aggregator: ", said)


def test_an_aggregator_that_fails_is_shown_with_its_line_and_its_words(project: Project) -> None:
    query = project.query(
        query={"python": {"aggregator": "spark.broken_aggregators:FailsInUpdate", "groupBy": ["who"]}}
    )
    source = Path(broken_aggregators.__file__)
    lines = source.read_text(encoding="utf-8").splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if "has to name" in text)
    result = project.millrace("run", query, "--once")
    result.assert_failed(f"{source}:{line}: the query failed: ", "FareError: a fare of -3 cannot be")
