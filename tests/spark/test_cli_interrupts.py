"""Ctrl-C, in a terminal: the first one ends a run after its batch, a second one at once, and nothing is lost."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from .cli import Project

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

SQL = """
SELECT window.start AS since, who, count(*) AS rows, sum(n) AS total
FROM events GROUP BY window(at, '1 minute'), who
"""
FILES = 40


def events(file: int) -> str:
    """Four records of one minute."""
    return "at,who,n\n" + "".join(f"2024-01-01T00:{file:02d}:0{i}Z,{'ab'[i % 2]},{i}\n" for i in range(4))


EXPECTED = Counter(
    (f"2024-01-01T00:{file:02d}:00.000000Z", who, "2", total)
    for file in range(FILES)
    for who, total in (("a", "2"), ("b", "4"))
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    for file in range(FILES):
        made.give(f"{file:02d}.csv", events(file))
    return made


def query_of(project: Project) -> str:
    """A file per batch, so that a run can be interrupted between any two."""
    return project.query(
        SQL,
        source={"files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1}},
        emit="OnWindowClose",
        partitioner={"algorithm": "hash", "replicas": {"initial": 2}},
    )


def test_interrupted_runs_go_on_where_they_were_and_end_exact(project: Project) -> None:
    query = query_of(project)

    with project.start("run", query, terminal=True) as run:
        run.wait_for("hash m=2 n=2")
        run.press_ctrl_c()
        drained = run.finish()
        run.assert_gone()
    assert drained.status == 0, drained
    assert "query drained: " in drained.out
    assert "ending after the running batch; Ctrl-C again ends at once" in drained.out
    assert "Traceback" not in drained.out
    committed = project.results()
    assert committed <= EXPECTED

    with project.start("run", query, terminal=True) as run:
        run.wait_for("hash m=2 n=2")
        run.press_ctrl_c()
        run.wait_for("Ctrl-C again ends at once")
        run.press_ctrl_c()
        stopped = run.finish()
        run.assert_gone()
    assert stopped.status == 130, stopped
    assert "Traceback" not in stopped.out
    assert committed <= project.results() <= EXPECTED

    with project.start("run", query) as run:
        run.wait_for("batch=")
        os.killpg(run.process.pid, signal.SIGTERM)  # as ``timeout`` and CI do: to the whole process group
        terminated = run.finish()
        run.assert_gone()
    assert terminated.status == 0, terminated
    assert terminated.summary["drained"] == "query"
    assert not terminated.err

    result = project.millrace("run", query, "--once")
    assert result.status == 0, result
    assert project.results() == EXPECTED
