"""Queries by operators on tables that change from run to run on one checkpoint."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .joined import NEAR, duckdb_rows, give, joining, sources_of
from .result_files import files_of

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SQL = f"SELECT e.n, e.who, c.n AS m FROM events e JOIN clicks c ON e.who = c.who AND {NEAR}"


def sources(**changes: Any) -> dict[str, Any]:
    """The sources of the query, with these changes of the first one."""
    own = sources_of(SQL)
    return own | {"events": own["events"] | changes}


def test_a_join_goes_on_from_its_state_or_nothing_is_touched(tmp_path: Path) -> None:
    project, file = joining(tmp_path, SQL, files=range(2), partitioner={"algorithm": "hash"})
    run = project.millrace("run", file, "--once")
    assert (run.status, run.err) == (0, ""), run

    # the plan, the size of the job, the pace, the delay of the watermark, and how the SQL is written
    give(tmp_path, [2])
    project.query(
        f"{SQL.lower()} -- pairs".replace(" from", "\nfrom"),
        sources=sources(
            watermark={"column": "at", "delay": "30s"},
            files={"path": "events", "format": "csv", "maxFilesPerBatch": 2},
        ),
        partitioner={"algorithm": "native", "replicas": {"initial": 1}},
        parallelism={"initial": 3, "max": 16},
        batchInterval="1s",
    )
    run = project.millrace("run", file, "--once")
    assert (run.status, run.err) == (0, ""), run
    assert "the query does not run natively: the state in its checkpoint was built by operators on tables" in run.out

    # the state partitions
    changed = project.millrace("state", "repartition", file, "--partitions", "5")
    assert (changed.status, changed.err) == (0, ""), changed

    give(tmp_path, [3, 4])
    before = files_of(tmp_path / "checkpoint")
    refused: dict[str, dict[str, Any]] = {
        "spec.query.sql: ": {"sql": SQL.replace("20 SECONDS", "10 SECONDS")},
        "spec.emit: ": {"emit": "OnWindowClose"},
        "spec.sources.events.table: ": {"sources": sources(table={"keys": ["who"]})},
    }
    for said, spec in refused.items():
        project.query(spec.pop("sql", SQL), **({"sources": sources()} | spec))
        result = project.millrace("run", file, "--once")
        result.assert_failed(said, f"the checkpoint {tmp_path / 'checkpoint'} was made with", "to start over")
        assert files_of(tmp_path / "checkpoint") == before
    project.query(SQL, sources=sources(schema="n INT, at TIMESTAMP, who STRING"))
    refused_order = project.millrace("run", file, "--once")
    refused_order.assert_failed("the state's columns was ['e.at timestamp', 'e.who string', 'e.n int'")

    project.query(SQL, sources=sources())
    run = project.millrace("run", file, "--once")
    assert (run.status, run.summary["late"]) == (0, "0"), run
    rows = Counter(row[:-1] for row in project.results().elements())
    assert rows == duckdb_rows(project, SQL)
