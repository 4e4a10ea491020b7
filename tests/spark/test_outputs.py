"""One computation with several outputs: every update in one folder, final results in another, each exactly once."""

from __future__ import annotations

from collections import Counter

import pytest

from .die_between_sinks import die_between_sinks
from .joined import NEAR, duckdb_rows, joining

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]


def to_folder(emit, folder):
    return {"emit": emit, "sink": {"files": {"path": folder, "format": "csv"}}}


FINAL = {"final": to_folder("OnWindowClose", "final")}
FINAL_ROWS_OF_BATCH_2 = "final/batch-0000000002-*"
COLUMNS = "e.who, count(*) AS events, sum(e.n) AS total"
GROUPS = f"SELECT {{since}}, {COLUMNS} FROM events e GROUP BY {{window}}, e.who"
PAIRS = f"""SELECT {{since}}, {COLUMNS}, max(c.n) AS most FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}
            GROUP BY {{window}}, e.who"""


def in_spark(sql):
    return sql.format(since="unix_seconds(window.start) AS since", window="window(e.at, '1 minute')")


def in_duckdb(sql):
    return sql.format(since="epoch(time_bucket(INTERVAL 1 MINUTE, e.at))::BIGINT AS since", window="1")


def run(project, file):
    result = project.millrace("run", file, "--once")
    assert (result.status, result.err) == (0, ""), result
    return result.summary


def assert_updates(updates, expected):
    """Check that the last update of each group is as expected, and that no batch updates a group twice."""
    assert max(Counter((*row[:2], row[-1]) for row in updates.elements()).values()) == 1
    newest = {row[:2]: row[:-1] for row in sorted(updates, key=lambda row: int(row[-1]))}
    assert Counter(newest.values()) == expected


def assert_both(project, sql):
    """Check that the final rows are DuckDB's, and that the last updates are."""
    expected, updates = duckdb_rows(project, in_duckdb(sql)), project.results()
    assert project.results("final") == expected
    assert_updates(updates, expected)
    assert updates.total() > expected.total()


@pytest.mark.parametrize(("sql", "algorithm"), [(GROUPS, "pkg"), (GROUPS, "native"), (PAIRS, "shuffle")])
def test_updates_and_final_results_come_from_one_computation(tmp_path, sql, algorithm):
    project, file = joining(tmp_path, in_spark(sql), additionalOutputs=FINAL, partitioner={"algorithm": algorithm})
    run(project, file)
    assert_both(project, sql)


def test_two_outputs_of_final_results_have_the_same_rows(tmp_path):
    project, file = joining(tmp_path, in_spark(PAIRS), additionalOutputs=FINAL, emit="OnWindowClose")
    run(project, file)
    assert project.results() == project.results("final") == duckdb_rows(project, in_duckdb(PAIRS))


def test_explain_names_every_output_and_when_it_emits(tmp_path):
    project, file = joining(tmp_path, in_spark(GROUPS), additionalOutputs=FINAL)
    drawn = project.millrace("explain", file).out
    columns = "since bigint, who string, events bigint, total bigint"
    assert f"emit     every change: {columns} -> files\n" in drawn
    assert f"emit     when a window closes: {columns} -> files (final)\n" in drawn


def test_final_results_come_first_and_every_strategy_has_its_rows(tmp_path):
    """Records come late, so that a group that was shown at the end of its window is corrected."""
    outputs = {"ends": to_folder("OnWindowEnd", "ends"), "all": to_folder("OnUpdate", "all")}
    project, file = joining(tmp_path, in_spark(GROUPS), late=True, emit="OnWindowClose", additionalOutputs=outputs)
    summary = run(project, file)
    final, updates, from_end = (project.results(folder) for folder in ("out", "all", "ends"))
    written = final.total() + updates.total() + from_end.total()
    assert (summary["rows"], summary["late"], summary["results"]) == ("200", "0", str(written))
    expected = duckdb_rows(project, in_duckdb(GROUPS))
    assert final == expected
    assert_updates(updates, expected)
    assert_updates(from_end, expected)
    assert updates.total() > from_end.total() > final.total()


@pytest.mark.parametrize("algorithm", ["pkg", "native"])
def test_a_process_that_dies_between_the_sinks_writes_nothing_twice(tmp_path, algorithm):
    """The run that goes on may do so under another plan."""
    project, file = joining(tmp_path, in_spark(GROUPS), additionalOutputs=FINAL, partitioner={"algorithm": "pkg"})
    die_between_sinks(tmp_path, file, 2)
    assert ("2" in {row[-1] for row in project.results()}, list(tmp_path.glob(FINAL_ROWS_OF_BATCH_2))) == (True, [])
    joining(tmp_path, in_spark(GROUPS), (), additionalOutputs=FINAL, partitioner={"algorithm": algorithm})
    run(project, file)
    assert list(tmp_path.glob(FINAL_ROWS_OF_BATCH_2))
    assert_both(project, GROUPS)


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("who, first(n) AS d FROM events GROUP BY window(at, '1 minute'), who", "is not one of the aggregates with a"),
        ("who FROM (SELECT who, window(at, '1 minute') FROM events)", "its rows are neither groups nor"),
    ],
)
def test_what_has_no_groups_to_hold_back_has_one_output(tmp_path, select, why):
    project, file = joining(tmp_path, f"SELECT {select}", additionalOutputs=FINAL)
    project.millrace("explain", file).assert_failed(
        "spec.additionalOutputs: the query cannot have several outputs: ", why
    )
