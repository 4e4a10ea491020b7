"""Results of one join in several outputs: each strategy shows what it says, and all of them end with DuckDB's rows."""

from __future__ import annotations

from pathlib import Path

import duckdb
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
    # all rows of the table come before the records, so that what waits is final when it is emitted
    assert_outputs(project, "n", columns="n, who, price", expected=duckdb_rows(project, AS_OF), corrected=False)
    assert lonely_at_first(project.folder / "out") > 0
    assert lonely_at_first(project.folder / "lazy") == 0


def lonely_at_first(folder: Path) -> int:
    """Return the number of rows without a partner in the first batch of a changelog."""
    with duckdb.connect() as reader:
        reader.execute(f"CREATE TABLE changes AS SELECT * FROM read_parquet('{folder}/*.parquet')")
        first = "_batch_id = (SELECT min(_batch_id) FROM changes)"
        return len(reader.execute(f"SELECT * FROM changes WHERE price IS NULL AND {first}").fetchall())


def test_a_process_that_dies_between_the_outputs_of_a_join_writes_nothing_twice(tmp_path):
    project, file = joining(tmp_path, STREAMS, late=True, **outputs("n", "clicked"))
    die_between_sinks(tmp_path, file, 3)
    assert list((tmp_path / "out").glob("batch-0000000003-*"))
    run(project, file)
    expected = duckdb_rows(project, STREAMS)
    assert_outputs(project, "n", "clicked", columns="n, clicked, who", expected=expected)
