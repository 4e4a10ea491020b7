"""``millrace shadow`` as a pod runs it: beside the driver of the old version, of whose checkpoint it keeps nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from millrace_api.model.upgrade import UpgradeReport, UpgradeVerdict
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, take

from .cli import Project, Result

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SQL = """
SELECT window.start AS since, who, count(*) AS records, sum(n) AS total
FROM events GROUP BY window(at, '1 minute'), who
"""
LOST = SQL.replace("FROM events", "FROM events WHERE who IS NOT NULL")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder whose temporary files are in another one, as a pod's are in its volume."""
    (tmp_path / "local").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    return Project(tmp_path / "project")


def give(project: Project, minutes: range) -> None:
    """Let a file arrive for each minute."""
    for minute in minutes:
        rows = [f"2024-01-01T00:{minute:02}:{second:02}Z,{'ab'[second % 2]},{second}" for second in range(0, 60, 5)]
        rows.append(f"2024-01-01T00:{minute:02}:30Z,,7")
        project.give(f"{minute:02}.csv", "at,who,n\n" + "\n".join(rows) + "\n")


def versions(project: Project, sql: str, duration: str = "1h", **spec: Any) -> tuple[str, str]:
    """Write two versions of one query, as the operator does: the new one says how they are compared."""
    settings: dict[str, Any] = {
        "emit": "OnWindowClose",
        "source": {"files": {"path": "in", "format": "csv", "maxFilesPerBatch": 1}},
    }
    files = []
    for name, text, upgrade in (("old", SQL, None), ("new", sql, {"mode": "Shadow", "duration": duration})):
        written = project.folder / project.query(text, name="query", upgrade=upgrade, **settings)
        files.append(written.rename(project.folder / f"{name}.yaml").name)
        settings |= spec
    return files[0], files[1]


def report_of(project: Project, result: Result) -> UpgradeReport:
    assert result.status == 0, result
    return UpgradeReport.model_validate_json((project.folder / "report").read_bytes(), by_name=False)


def kept(project: Project) -> dict[str, bytes]:
    """All that is in the checkpoint."""
    folder = project.folder / "checkpoint"
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.timeout(900)
def test_a_lost_group_is_named_while_the_old_version_goes_on(project: Project) -> None:
    """It begins with a snapshot of its own, and compares the records that arrive afterwards."""
    give(project, range(3))
    old, new = versions(project, LOST, duration="5s")
    with project.start("run", old) as driver:
        driver.wait_for("batch=3 ")
        with project.start("shadow", old, new, "--report", "report") as command:
            command.wait_for("took the snapshot comparison-.*, and wait 5 s")
            give(project, range(3, 5))
            command.wait_for("running the new version")
            give(project, range(5, 6))
            result = command.finish()
            command.assert_gone()
        driver.wait_for("batch=6 ")
        assert driver.process.poll() is None
    report = report_of(project, result)
    assert report.verdict is UpgradeVerdict.DIFFERENT
    assert report.message.startswith("only the old version has 2 rows; all of them have NULL in who; such as old {")
    assert "26 records in " in report.message
    assert "from the snapshot comparison-" in report.message
    assert "verdict: different" in result.out
    assert names_of_snapshots(project.folder / "checkpoint") == []
    assert not list((project.folder.parent / "local").glob("millrace-compare-*"))


@pytest.mark.timeout(900)
def test_other_words_are_equal_from_a_snapshot_of_the_query(project: Project) -> None:
    give(project, range(2))
    old, new = versions(project, SQL.lower().replace("total", "total "), duration="1s")
    assert project.millrace("run", old, "--available-now").status == 0
    take(project.folder / "checkpoint", "half")
    give(project, range(2, 4))
    before = kept(project)
    with project.start("shadow", old, new, "--report", "report") as command:
        result = command.finish()
    report = report_of(project, result)
    assert report.verdict is UpgradeVerdict.EQUAL, report
    assert "26 records in " in report.message
    assert "from the snapshot half on" in report.message
    assert "changed: spec.upgrade" not in result.out
    assert kept(project) == before


@pytest.mark.timeout(300)
def test_what_cannot_be_compared_is_reported_with_what_to_do(project: Project) -> None:
    give(project, range(1))
    elsewhere = {"files": {"path": "elsewhere", "format": "csv"}}
    old, new = versions(project, SQL, source=elsewhere)
    with project.start("shadow", old, new, "--report", "report") as command:
        report = report_of(project, command.finish())
    assert report.verdict is UpgradeVerdict.NOT_COMPARED
    assert report.message.startswith("spec.sources.events.files.path: the new version reads elsewhere")
    assert report.message.endswith("compare two versions that read the same records, one change after the other")


@pytest.mark.timeout(900)
def test_a_pod_that_ends_leaves_nothing_and_what_a_killed_one_leaves_the_next_removes(project: Project) -> None:
    give(project, range(1))
    old, new = versions(project, LOST)
    checkpoint = project.folder / "checkpoint"
    assert project.millrace("run", old, "--available-now").status == 0
    before = kept(project)
    with project.start("shadow", old, new, "--report", "report") as command:
        command.wait_for("took the snapshot")
        os.kill(command.process.pid, signal.SIGKILL)
        command.finish()
        command.assert_gone()
    (left,) = names_of_snapshots(checkpoint)
    with project.start("shadow", old, new, "--report", "report") as command:
        printed = command.wait_for("took the snapshot")
        assert f"removed the snapshot {left}, which a killed comparison has left" in printed
        _terminate(project, command)
    assert kept(project) == before
    take(checkpoint, "half")
    give(project, range(1, 2))
    before, (old, new) = kept(project), versions(project, LOST, duration="1s")
    with project.start("shadow", old, new, "--report", "report") as command:
        command.wait_for("running the new version")
        _terminate(project, command)
    assert kept(project) == before


def _terminate(project: Project, command: Any) -> None:
    """End a pod; only its first process gets the signal."""
    os.kill(command.process.pid, signal.SIGTERM)
    assert command.finish().status == 128 + signal.SIGTERM
    command.assert_gone()
    assert not (project.folder / "report").exists()
    assert not list((project.folder.parent / "local").glob("millrace-compare-*"))
