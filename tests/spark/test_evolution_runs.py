"""A query that changes from run to run on one checkpoint: results stay exact, or nothing is touched."""

from __future__ import annotations

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
        "spec.query.sql: ": {"sql": output.replace("sum(n)", "max(n)")},
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
