"""A timestamp without a zone is in UTC wherever the SQL has it, and whoever computes it: Arrow, Spark or the merge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .cli import Project

pytestmark = pytest.mark.spark

EVENTS = """at,who,n
2024-01-01T00:00:29Z,a,1
2024-01-01T00:00:30Z,a,2
2024-01-01T00:01:00Z,a,3
2024-01-01T00:00:59Z,b,4
2024-01-01T02:30:00+02:00,c,5
"""
SQL = """
SELECT who, count(*) AS rows, max(at) > TIMESTAMP '2024-01-01 00:15:00' AS late, hour(max(at)) AS hour,
       CAST(TIMESTAMP '2024-01-01 12:00:00' AS STRING) AS noon,
       count(*) FILTER (WHERE at < TIMESTAMP '2024-01-01 02:00:45+02:00') AS early
FROM events WHERE at >= TIMESTAMP '2024-01-01 00:00:30' {more}
GROUP BY who HAVING max(at) >= TIMESTAMP '2024-01-01 00:01:00'
"""
BY_ARROW, BY_SPARK = "", "AND length(who) = 1"
"""What to add to the condition, so that this one computes it."""


@pytest.mark.parametrize(("algorithm", "more"), [("pkg", BY_ARROW), ("pkg", BY_SPARK), ("native", BY_ARROW)])
def test_a_literal_is_the_same_time_in_every_plan(tmp_path: Path, algorithm: str, more: str) -> None:
    project = Project(tmp_path)
    project.give("events.csv", EVENTS)
    query = project.query(SQL.format(more=more), partitioner={"algorithm": algorithm})
    result = project.millrace("run", query, "--once")
    assert (result.status, result.err) == (0, ""), result
    noon = "2024-01-01 12:00:00"
    assert Counter(row[:-1] for row in project.results().elements()) == Counter(
        [("a", "2", "false", "0", noon, "1"), ("c", "1", "true", "0", noon, "0")]
    )
