"""``millrace compare`` as users run it: it writes nowhere, ends with a status, and survives its own death."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from millrace_jobs.checkpoint.snapshots import take

from .cli import Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SQL = """
SELECT window.start AS since, who, count(*) AS records, sum(n) AS total
FROM events GROUP BY window(at, '1 minute'), who
"""
SINKS = {"files": {"path": "results", "format": "csv"}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder whose temporary files are in it, too."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return Project(tmp_path / "project")


def give(project: Project, minutes: range) -> None:
    """Let a file arrive for each minute, with a record that does not decode."""
    for minute in minutes:
        rows = [f"2024-01-01T00:{minute:02}:{second:02}Z,{'ab'[second % 2]},{second}" for second in range(0, 60, 5)]
        rows.append(f"2024-01-01T00:{minute:02}:30Z,,7")
        project.give(f"{minute:02}.csv", "at,who,n\n" + "\n".join(rows) + f"\nnever,a,{minute}\n")


def versions(project: Project, sql: str, **spec: Any) -> tuple[str, str]:
    """Write two versions, which say to write to every place that a query can write to."""
    common: dict[str, Any] = {
        "emit": "OnWindowClose",
        "sink": SINKS,
        "source": {
            "files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1},
            "corruptRecords": {"policy": "DeadLetter", "path": "dead"},
        },
        "eventLog": {"path": "log"},
        "lineage": {"file": "lineage/events.jsonl"},
        "additionalOutputs": {"early": {"emit": "OnUpdate", "sink": {"files": {"path": "early", "format": "csv"}}}},
    }
    return project.query(SQL, name="old", **common), project.query(sql, name="new", **common | spec)


def content(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of each file in a folder."""
    found = [(file, file.stat()) for file in folder.rglob("*")]
    return {str(file): (0 if file.is_dir() else state.st_size, state.st_mtime_ns) for file, state in found}


@pytest.mark.timeout(900)
def test_nothing_is_written_to_the_places_of_the_queries(project: Project) -> None:
    give(project, range(6))
    old, new = versions(project, SQL.replace("sum(n)", "sum(n + 1)"))
    before = content(project.folder)
    with project.start("compare", old, new, "--format", "json", "--differences", "3") as command:
        result = command.finish()
        command.assert_gone()
    assert result.status == 1, result
    assert "running the old version: events has 6 files" in result.err
    report = json.loads(result.out)
    assert report["verdict"] == ["different"]
    assert report["records"] == 6 * 13
    assert (report["old"]["rejected"], report["new"]["rejected"]) == (6, 6)
    assert [output["field"] for output in report["outputs"]] == ["spec", "spec.additionalOutputs.early"]
    for output in report["outputs"]:
        assert [(found["kind"], found["column"], found["rows"]) for found in output["findings"]] == [
            ("values", "total", 6 * 3)
        ]
        assert len(output["examples"]) == 3
    assert not report["unsteady"]
    assert content(project.folder) == before
    assert not list((project.folder.parent / "tmp").glob("millrace-compare-*"))


@pytest.mark.timeout(900)
def test_a_killed_comparison_leaves_nothing_behind_and_the_next_one_works(project: Project) -> None:
    give(project, range(3))
    old, new = versions(project, SQL)
    before = content(project.folder)
    with project.start("compare", old, new) as command:
        command.wait_for("running the new version")
        os.kill(command.process.pid, signal.SIGKILL)
        command.finish()
        command.assert_gone()
    assert content(project.folder) == before
    left = list((project.folder.parent / "tmp").glob("millrace-compare-*"))
    assert left
    with project.start("compare", old, new) as command:
        result = command.finish()
    assert result.status == 0, result
    assert "verdict: equal" in result.out
    assert content(project.folder) == before
    assert not any(folder.exists() for folder in left)


@pytest.mark.timeout(900)
def test_both_versions_go_on_from_a_snapshot(project: Project) -> None:
    """Windows that began before the snapshot have all their records, and those closed before are in no result."""
    give(project, range(3))
    settings: dict[str, Any] = {"source": {"corruptRecords": {"policy": "Drop"}}, "emit": "OnWindowClose"}
    old = project.query(SQL, name="old", **settings)
    new = project.query(SQL.replace(", sum(n) AS total", ""), name="new", **settings)
    assert project.millrace("run", old, "--available-now").status == 0
    take(project.folder / "checkpoint", "half")
    project.give("02b.csv", "at,who,n\n2024-01-01T00:02:59Z,a,1\n")
    before = content(project.folder)
    with project.start("compare", old, new, "--ignore", "total", "--format", "json") as command:
        result = command.finish()
    assert result.status == 0, result
    report = json.loads(result.out)
    assert (report["start"], report["records"]) == ("half", 1)
    (output,) = report["outputs"]
    assert output["old_rows"] == output["new_rows"] == 3  # those of the third minute
    assert content(project.folder) == before


@pytest.mark.timeout(900)
def test_a_version_with_another_aggregate_reads_the_same_batches(project: Project) -> None:
    """The state is rewritten for it, with Spark's log, before its first batch."""
    give(project, range(3))
    settings: dict[str, Any] = {
        "source": {
            "files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1}, "corruptRecords": {"policy": "Drop"},
        },
        "emit": "OnWindowClose",
        "partitioner": {"algorithm": "hash"},
    }  # fmt: skip
    old = project.query(SQL, name="old", **settings)
    new = project.query(SQL.replace("sum(n)", "max(n)"), name="new", **settings)
    assert project.millrace("run", old, "--available-now").status == 0
    take(project.folder / "checkpoint", "half")
    give(project, range(3, 7))
    with project.start("compare", old, new, "--format", "json") as command:
        result = command.finish()
    assert result.status == 1, result
    report = json.loads(result.out)
    assert (report["start"], report["records"], report["verdict"]) == ("half", 4 * 13, ["different"])
    (output,) = report["outputs"]
    assert {found["column"] for found in output["findings"]} == {"total"}


@pytest.mark.timeout(300)
def test_what_cannot_be_compared_is_refused_with_a_status_of_its_own(project: Project) -> None:
    give(project, range(1))
    old, _ = versions(project, SQL)
    other = project.query(SQL, name="other", source={"files": {"path": "elsewhere", "format": "csv"}})
    found = project.millrace("compare", old, other)
    assert found.status == 2, found
    assert "spec.sources.events.files.path" in found.err
    unknown = project.query(SQL.replace("sum(n)", "sum(m)"), name="unknown", emit="OnWindowClose")
    found = project.millrace("compare", old, unknown)
    assert found.status == 2, found
    assert "unknown.yaml:" in found.err  # before anything runs
    assert "spec.query.sql: there is no column" in found.err
    found = project.millrace("compare", old, old, "--within", "soon")
    assert found.status == 2, found
    assert "--within" in found.err
