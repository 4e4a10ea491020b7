"""Records that cannot be decoded: the run fails, or they are counted, or they are kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .cli import PATIENCE, Project

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

TEXT = """at,who,n
2024-01-01T00:00:01Z,a,1
2024-01-01T00:00:02Z,b,many
2024-01-01T00:00:03Z,a,3
yesterday,c,4
"""
TESTS = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
SQL = "SELECT who, sum(n) AS total FROM events GROUP BY who"


def query_of(project: Project, policy: dict[str, Any] | None, **spec: Any) -> str:
    corrupt = {"corruptRecords": policy} if policy else {}
    return project.query(SQL, source=corrupt, partitioner={"algorithm": "hash"}, **spec)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.give("1.csv", TEXT)
    return made


def test_fail_names_file_line_and_text_and_a_corrected_file_is_read_whole(project: Project) -> None:
    project.give("1.csv", TEXT.removesuffix("yesterday,c,4\n"))  # one bad record, since two tasks may each find one
    query = query_of(project, None)
    failed = project.millrace("run", query, "--once")
    failed.assert_failed(f"{project.inbox}/1.csv:3: source events cannot decode '2024-01-01T00:00:02Z,b,many': ")
    failed.assert_failed("correct it or the schema, or set corruptRecords.policy to Drop or DeadLetter")
    assert not project.results()

    dropping = project.millrace("run", query_of(project, {"policy": "Drop"}), "--once")
    assert dropping.status == 0, dropping
    assert (dropping.summary["rows"], dropping.summary["rejected"]) == ("2", "1")
    assert project.results() == Counter({("a", "4", "0"): 1})


def test_dead_letters_are_kept_once_also_when_the_batch_is_run_again(project: Project) -> None:
    sink = {"files": {"path": "out", "format": "csv"}}
    query = query_of(project, {"policy": "DeadLetter", "path": str(project.folder / "dead")}, sink=sink)
    plan = project.write("plan.yaml", "{algorithm: hash, replicas: 1, parallelism: 2}\n")
    command = [sys.executable, "-m", "spark.die_in_batch", query, plan]
    died = subprocess.run(command, cwd=project.folder, env=TESTS, capture_output=True, timeout=PATIENCE, check=False)
    assert died.returncode == -signal.SIGKILL
    assert list((project.folder / "dead").iterdir())
    assert not project.results()

    result = project.millrace("run", query, "--once")
    assert result.status == 0, result
    assert result.summary["rejected"] == "2"
    assert project.results() == Counter({("a", "4", "0"): 1})
    letters = [json.loads(line) for file in (project.folder / "dead").iterdir() for line in file.open(encoding="utf-8")]
    assert sorted((letter["line"], letter["text"]) for letter in letters) == [
        (3, "2024-01-01T00:00:02Z,b,many"),
        (5, "yesterday,c,4"),
    ]
    assert {letter["file"] for letter in letters} == {f"{project.inbox}/1.csv"}
