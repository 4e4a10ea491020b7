"""Results of one join in several outputs: each strategy shows what it says, and all of them end with DuckDB's rows."""

from __future__ import annotations

import pytest

from .changelogs import assert_outputs, outputs, run
from .die_between_sinks import die_between_sinks
from .joined import NEAR, duckdb_rows, joining

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

STREAMS = f"SELECT e.n, c.n AS clicked, e.who FROM events e LEFT JOIN clicks c ON e.who = c.who AND {NEAR}"
DATED = "SELECT e.n, e.who, p.n AS price FROM events e LEFT JOIN prices p ON e.who = p.who"
AS_OF = """SELECT e.n, e.who, p.n FROM events e ASOF LEFT JOIN prices p ON e.who = p.who AND p.at <= e.at"""


@pytest.mark.parametrize("algorithm", ["hash", "pkg"])
def test_outer_results_of_streams_are_eager_lazy_and_final(tmp_path, algorithm):
    more = outputs("n", "clicked") | {"partitioner": {"algorithm": algorithm}}
    project, file = joining(tmp_path, STREAMS, late=True, **more)
    run(project, file)
    expected = duckdb_rows(project, STREAMS)
    assert_outputs(project, "n", "clicked", columns="n, clicked, who", expected=expected)


def test_results_of_a_stream_and_a_table_are_eager_lazy_and_final(tmp_path):
    project, file = joining(tmp_path, DATED, **outputs("n"))
    run(project, file)
    assert_outputs(project, "n", columns="n, who, price", expected=duckdb_rows(project, AS_OF))


def test_a_process_that_dies_between_the_outputs_of_a_join_writes_nothing_twice(tmp_path):
    project, file = joining(tmp_path, STREAMS, late=True, **outputs("n", "clicked"))
    die_between_sinks(tmp_path, file, 3)
    assert list((tmp_path / "out").glob("batch-0000000003-*"))
    run(project, file)
    expected = duckdb_rows(project, STREAMS)
    assert_outputs(project, "n", "clicked", columns="n, clicked, who", expected=expected)
