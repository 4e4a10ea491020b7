"""A comparison in a pod ends, also if the new version does not."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from millrace_jobs.comparison import compare as comparison
from millrace_jobs.comparison.compare import ComparedVersion, TooSlowError, VersionsRequest, compare, longest_seconds
from millrace_jobs.comparison.report import BEGINNING

from .compared_queries import query

RUN = """
import json, pathlib, sys
task = json.loads(pathlib.Path(sys.argv[1]).read_text())
if not task["is_first"]:
    sys.stdin.buffer.read()
batch = {"number": 0, "rows": 10, "seconds": 1.0, "late": 0, "rejected": 0}
pathlib.Path(task["folder"], "outcome.json").write_text(json.dumps({"batches": [batch], "problems": []}))
"""


def test_a_later_run_may_take_twice_what_is_allowed() -> None:
    assert longest_seconds(100, 1.5) == 2 * 150 + 120
    assert longest_seconds(100, 0) == 2 * 100 + 120


def test_a_new_version_that_does_not_end_is_ended_and_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_START_SECONDS", 0.5)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "run.py").write_text(RUN)
    checkpoint = {"uri": (tmp_path / "checkpoint").as_uri()}
    versions = [ComparedVersion(tmp_path / f"{name}.yaml", query(checkpoint)) for name in ("old", "new")]
    request = VersionsRequest(
        old=versions[0],
        new=versions[1],
        connections=(),
        start=BEGINNING,
        records=10,
        within=None,
        ignored=frozenset(),
        tolerance=0,
        bound=1.0,
        examples=1,
        command=[sys.executable, str(tmp_path / "run.py")],
        in_pod=True,
    )
    with pytest.raises(TooSlowError, match=r"the new version was ended after .* s: the old one took"):
        compare(request, lambda _: None)
