"""Results of one join in several outputs: each strategy shows what it says, and all of them end with DuckDB's rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from .changelogs import run
from .delta_outputs import assert_outputs, batches_in, delta_outputs, rows_of
from .die_between_sinks import die_between_sinks
from .joined import NEAR, duckdb_rows, joining

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

STREAMS = f"""SELECT e.n, coalesce(c.n, -1) AS clicked, e.who
              FROM events e LEFT JOIN clicks c ON e.who = c.who AND {NEAR}"""
DATED = "SELECT e.n, e.who, p.n AS price FROM events e LEFT JOIN prices p ON e.who = p.who"
AS_OF = """SELECT e.n, e.who, p.n FROM events e ASOF LEFT JOIN prices p ON e.who = p.who AND p.at <= e.at"""


@pytest.mark.parametrize("algorithm", ["hash", "pkg"])
def test_outer_results_of_streams_are_eager_lazy_and_final(tmp_path, algorithm):
    more = delta_outputs("n", "clicked") | {"partitioner": {"algorithm": algorithm}}
    project, file = joining(tmp_path, STREAMS, late=True, **more)
    run(project, file)
    assert_outputs(project, columns="n, clicked, who", expected=duckdb_rows(project, STREAMS))


def test_results_of_a_stream_and_a_table_are_eager_lazy_and_final(tmp_path):
    project, file = joining(tmp_path, DATED, **delta_outputs("n"))
    run(project, file)
    # all rows of the table come before the records, so that what waits is final when it is emitted
    assert_outputs(project, columns="n, who, price", expected=duckdb_rows(project, AS_OF), corrected=False)
    assert lonely_at_first(project.folder / "out") > 0
    assert lonely_at_first(project.folder / "lazy") == 0


def lonely_at_first(table: Path) -> int:
    """Return the number of rows without a partner after the first batch in a table."""
    _, first = batches_in(table)[0]
    return rows_of(table, "price", first)[("",)]


def test_a_process_that_dies_between_the_outputs_of_a_join_writes_nothing_twice(tmp_path):
    project, file = joining(tmp_path, STREAMS, late=True, **delta_outputs("n", "clicked"))
    die_between_sinks(tmp_path, file, 3)
    assert newest_batch(tmp_path / "out") == 3
    assert newest_batch(tmp_path / "lazy") < 3
    run(project, file)
    assert_outputs(project, columns="n, clicked, who", expected=duckdb_rows(project, STREAMS))
    for table in ("out", "lazy"):
        numbers = [batch for batch, _ in batches_in(tmp_path / table)]
        assert numbers == sorted(set(numbers))


def newest_batch(table: Path) -> int:
    """Return the number of the last batch that was written to a table."""
    return batches_in(table)[-1][0]
