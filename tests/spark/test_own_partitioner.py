"""A partitioner of the user's own in runs: its class comes with spec.code, and its state from batch to batch."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from code_packages import write, zipped
from millrace_api.model.status import REPORT_VARIABLE

from .cli import MILLRACE, Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

CODE = """
import numpy as np

class Counting:
    cooperative = True

    def __init__(self, workers, replica, *, most):
        self.workers, self.replica, self.most, self.batches = workers, replica, most, 0

    def route(self, keys):
        if self.batches >= self.most:
            raise ValueError(f"batch {self.batches} is one too many")
        return (keys % np.uint64(self.workers)).astype(np.int32)

    def advance(self):
        self.batches += 1

    def merge(self, others):
        self.batches = max(self.batches, *(other.batches for other in others))

    def save(self):
        return bytes([self.batches])

    def restore(self, state):
        (self.batches,) = state

    def resize(self, workers):
        self.workers = workers
"""


def test_a_class_from_spec_code_places_records_with_its_state_and_is_named_when_it_fails(tmp_path: Path) -> None:
    project = Project(tmp_path)
    code = [write(tmp_path, "placing.zip", zipped({"placing.py": CODE}))]
    for number in range(1, 6):
        project.give(f"{number}.csv", f"at,who,n\n2024-01-01T00:00:0{number}Z,a,1\n2024-01-01T00:00:0{number}Z,b,2\n")
    file = project.query(
        "SELECT who, sum(n) AS n FROM events GROUP BY who",
        code=code,
        source={"files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1}},
        partitioner={"algorithm": "python", "parameters": {"class": "placing:Counting", "most": 1}},
    )
    report = tmp_path / "report.json"
    run = subprocess.run(
        [MILLRACE, "run", file, "--once"],
        cwd=tmp_path,
        env=os.environ | {REPORT_VARIABLE: str(report)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert "batch 1 is one too many" in run.stderr, run.stderr
    assert "placing.py:12" in run.stderr, run.stderr
    assert json.loads(report.read_text())["failure"] == "UserCodeFailed"
    assert "plan=python/2/2" in run.stderr
    assert {(who, n) for who, n, _ in project.results()} >= {("a", "1"), ("b", "2")}
