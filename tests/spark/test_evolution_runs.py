"""A query that changes from run to run on one checkpoint: results stay exact, or nothing is touched."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .cli import Project
from .result_files import files_of

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SQL = """
SELECT window.start AS since, who, count(*) AS rows, sum(n) AS total
FROM events GROUP BY window(at, '1 minute'), who
"""


def at(minute: int) -> str:
    return f"2024-01-01T00:{minute:02d}:00.000000Z"


def events(minute: int) -> str:
    """Five records of one minute, three of ``a`` and two of ``b``; n is the second, 0 to 4."""
    return "at,who,n\n" + "".join(f"2024-01-01T00:{minute:02d}:0{i}Z,{'ab'[i % 2]},{i}\n" for i in range(5))


def results(project: Project, folder: str = "out") -> Counter[tuple[str, ...]]:
    """The updates without the number of their batch."""
    found: Counter[tuple[str, ...]] = Counter()
    for row, times in project.results(folder).items():
        found[row[:-1]] += times
    return found


def test_what_may_change_goes_on_from_the_state_and_what_may_not_touches_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    half = {"files": {"path": "in", "format": "csv"}, "watermark": {"column": "at", "delay": "1h"}}
    expected: Counter[tuple[str, ...]] = Counter()

    project.give("0.csv", events(0))
    first = project.millrace("run", project.query(SQL, source=half, partitioner={"algorithm": "hash"}), "--once")
    assert first.status == 0, first
    expected[(at(0), "a", "3", "6")] += 1
    expected[(at(0), "b", "2", "4")] += 1
    assert results(project) == expected

    # the plan, the size of the job, the pace, the delay of the watermark, and how the SQL is written
    project.give("1.csv", events(0))
    more = project.query(
        SQL.lower().replace("\n", "  "),
        source={
            "files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1},
            "watermark": {"column": "at", "delay": "30m"},
        },
        partitioner={"algorithm": "pkg", "replicas": {"initial": 1}},
        parallelism={"initial": 3, "max": 16},
        batchInterval="1s",
    )
    second = project.millrace("run", more, "--once")
    assert second.status == 0, second
    expected[(at(0), "a", "6", "12")] += 1
    expected[(at(0), "b", "4", "8")] += 1
    assert results(project) == expected

    # output, filter and sink, over the same state
    project.give("2.csv", events(0))
    output = SQL.replace("count(*) AS rows", "count(*) + 100 AS rows").replace("FROM events", "FROM events WHERE n > 1")
    changed = project.query(output, source=half, sink={"files": {"path": "elsewhere", "format": "csv"}})
    third = project.millrace("run", changed, "--once")
    assert third.status == 0, third
    assert "spec.query.sql: the filter has changed: the state keeps what was counted under the old one" in third.out
    written = Counter({(at(0), "a", "108", "18"): 1, (at(0), "b", "105", "11"): 1})
    assert results(project, "elsewhere") == written
    assert "the filter has changed" not in project.millrace("run", changed, "--once").out

    project.give("3.csv", events(0))
    before = files_of(tmp_path / "checkpoint")
    refused: dict[str, dict[str, Any]] = {
        "spec.query.sql: ": {"sql": output.replace("sum(n)", "max(n)").replace("n > 1", "n > 2")},
        "spec.emit: ": {"emit": "OnWindowClose"},
        "spec.sources.events.schema: ": {"source": half | {"schema": "at TIMESTAMP, who STRING, n BIGINT"}},
    }
    for said, spec in refused.items():
        sink = {"files": {"path": "elsewhere", "format": "csv"}}
        query = project.query(spec.pop("sql", output), **({"source": half, "sink": sink} | spec))
        result = project.millrace("run", query, "--once")
        result.assert_failed(said, f"the checkpoint {tmp_path / 'checkpoint'} was made with", "to start over")
        assert files_of(tmp_path / "checkpoint") == before
    assert results(project, "elsewhere") == written


def test_comments_may_come_and_go(tmp_path: Path) -> None:
    project = Project(tmp_path)
    half = {"files": {"path": "in", "format": "csv"}, "watermark": {"column": "at", "delay": "1h"}}
    texts = [SQL, SQL.replace("who,", "who, -- a or b\n").replace("sum(n)", "sum(n) /* seconds */"), SQL]
    for number, sql in enumerate(texts):
        project.give(f"{number}.csv", events(0))
        run = project.millrace("run", project.query(sql, source=half, partitioner={"algorithm": "hash"}), "--once")
        assert run.status == 0, run
    assert results(project)[(at(0), "a", "9", "18")] == 1


def test_a_state_of_spark_s_own_plan_goes_on_natively_when_the_query_can_be_routed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    source = {"files": {"path": "in", "format": "csv"}}
    project.give("0.csv", events(0))
    native = "SELECT 1 + n AS k, count(*) AS rows FROM events GROUP BY n + 1"
    first = project.millrace("run", project.query(native, source=source), "--once")
    assert first.status == 0, first
    project.give("1.csv", events(0))
    routable = "SELECT n + 1 AS k, /* how many */ count(*) AS rows FROM events GROUP BY n + 1"
    second = project.millrace("run", project.query(routable, source=source), "--once")
    assert second.status == 0, second
    assert "the query runs natively, though it can be routed" in second.out
    assert results(project) == Counter({(str(k), str(rows)): 1 for k in range(1, 6) for rows in (1, 2)})


PLAN = "{algorithm: hash, replicas: 1, parallelism: 2}\n"
FILES = {"files": {"path": "in", "format": "csv"}, "watermark": {"column": "at", "delay": "1h"}}
GROUPS = "FROM events GROUP BY window(at, '1 minute'), who"
ALL = f"SELECT who, count(*) AS rows, sum(n) AS total, sum(n * n) AS squares {GROUPS}"
CHANGES = {
    f"SELECT who, sum(n * n) AS squares, count(*) AS rows, sum(n) AS total {GROUPS}": {
        "a": (20, 3, 6),
        "b": (10, 2, 4),
    },
    f"SELECT who, sum(n * n) AS squares {GROUPS} HAVING count(*) > 0": {"a": (20,), "b": (10,)},
    f"SELECT who, sum(n) AS total {GROUPS}": {"a": (6,), "b": (4,)},
    f"SELECT who, abs(abs(sum(n))) - 1000 * count(*) AS mixed, 1 AS none {GROUPS} HAVING max(n) FILTER (WHERE n > 9) > 0": None,
    f"SELECT who, abs(abs(sum(n))) - 1000 * count(*) AS mixed {GROUPS}": {"a": (6 - 3000,), "b": (4 - 2000,)},
    ALL: {"a": (3, 6, 20), "b": (2, 4, 10)},
}
"""Changed queries, each with the values that the records of one file add to a group; None where it is refused."""


def test_aggregates_change_their_places_leave_and_return_with_the_values_of_all_records(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.give("0.csv", events(0))
    assert project.millrace("run", project.query(ALL, source=FILES), "--once").status == 0
    given = 1
    for number, (sql, values) in enumerate(CHANGES.items(), 1):
        query = project.query(sql, source=FILES, sink={"files": {"path": f"out{number}", "format": "csv"}})
        before = files_of(tmp_path / "checkpoint")
        if values is None:
            refused = project.millrace("run", query, "--once")
            refused.assert_failed("the state has no values of MAX(n) FILTER(WHERE n > 9) from the records before")
            assert files_of(tmp_path / "checkpoint") == before
            continue
        project.give(f"{number}.csv", events(0))
        given += 1
        if number == 3:  # the first batch of a query without two of the aggregates dies, and is computed again
            killed = project.program("spark.die_in_batch", query, project.write("plan.yaml", PLAN))
            assert killed == -signal.SIGKILL
        run = project.millrace("run", query, "--once")
        assert run.status == 0, run
        expected = {(who, *(str(value * given) for value in added)): 1 for who, added in values.items()}
        assert results(project, f"out{number}") == Counter(expected)


def test_the_state_of_a_batch_that_died_is_replaced_when_it_runs_again_under_another_filter(tmp_path: Path) -> None:
    project = Project(tmp_path)
    filtered = ALL.replace("FROM events", "FROM events WHERE n > 1")
    project.give("0.csv", events(0))
    assert project.millrace("run", project.query(ALL, source=FILES), "--available-now").status == 0
    project.give("1.csv", events(0))
    plan = project.write("plan.yaml", PLAN)
    assert project.program("spark.die_in_batch", project.query(ALL, source=FILES), plan) == -signal.SIGKILL
    for number in (1, 2):  # the second run reads the state that the first one has left
        run = project.millrace("run", project.query(filtered, source=FILES), "--available-now")
        assert run.status == 0, run
        project.give(f"{number + 1}.csv", events(0))
        assert results(project)[("a", str(3 + 2 * number), str(6 + 6 * number), str(20 + 20 * number))] == 1
    assert not list((tmp_path / "checkpoint").rglob("*.tmp"))


def test_an_older_checkpoint_continues_and_says_which_changes_it_cannot_take(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.give("0.csv", events(0))
    assert project.program("spark.columns_as_selected", "run", project.query(ALL, source=FILES), "--once") == 0
    project.give("1.csv", events(0))
    moved = f"SELECT who, sum(n) AS total, count(*) AS rows, sum(n * n) AS squares {GROUPS}"
    refused = project.millrace("run", project.query(moved, source=FILES), "--once")
    refused.assert_failed("with list of aggregates COUNT(*), SUM(n), SUM(n * n), not with SUM(n), COUNT(*), SUM(n * n)")
    run = project.millrace("run", project.query(ALL, source=FILES), "--once")
    assert run.status == 0, run
    assert results(project)[("a", "6", "12", "40")] == 1
