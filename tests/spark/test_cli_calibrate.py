"""``millrace calibrate`` as users run it: it measures, predicts, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .cli import Project

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

SQL = """
SELECT window.start AS since, who, count(*) AS records, sum(n) AS total
FROM events GROUP BY window(at, '1 minute'), who
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder with a query over eight files, whose temporary files are in it, too."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    made = Project(tmp_path / "project")
    for minute in range(8):
        rows = [f"2024-01-01T00:{minute:02}:{n % 60:02}Z,who-{n % 50},{n}" for n in range(500)]
        made.give(f"{minute}.csv", "at,who,n\n" + "\n".join(rows) + "\n")
    return made


def query_of(project: Project) -> str:
    return project.query(
        SQL,
        partitioner={"algorithm": "hash", "replicas": {"initial": 2, "max": 4}},
        executors={"initial": 1, "max": 4},
        eventLog={"path": "log"},
        lineage={"file": "lineage/events.jsonl"},
    )


def content(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of each file in a folder."""
    found = [(file, file.stat()) for file in folder.rglob("*")]
    return {str(file): (0 if file.is_dir() else state.st_size, state.st_mtime_ns) for file, state in found}


@pytest.mark.timeout(900)
def test_a_query_is_measured_under_several_plans_and_nothing_is_written(project: Project) -> None:
    query = query_of(project)
    before = content(project.folder)
    costs = project.folder.parent / "costs.json"
    arguments = ("--seconds", "25", "--rate", "500", "--rate", "1e9", "--format", "json", "--record", str(costs))
    with project.start("calibrate", query, *arguments) as command:
        result = command.finish()
        command.assert_gone()
    assert result.status == 0, result
    assert "warming up: " in result.err
    report = json.loads(result.out.removesuffix("starting=query\n"))
    assert report["algorithm"] == "hash"
    assert report["batches"] >= 6
    assert len(report["plans"]) >= 2
    assert report["batch_records"][1] <= 8 * 500
    assert [each["records_per_second"] for each in report["rates"]] == [500, 1e9]
    assert report["rates"][1]["plan"] is None
    assert not any("were late" in note for note in report["notes"])  # although they are read again and again
    assert any("sinks were not written" in note for note in report["notes"])
    assert content(project.folder) == before
    assert not list((project.folder.parent / "tmp").glob("millrace-calibrate-*"))
    predicted = project.millrace("model", "predict", str(costs), "--rate", "500", "--executors", "2")
    assert predicted.status == 0, predicted


@pytest.mark.timeout(600)
def test_ctrl_c_ends_it_after_the_running_batch(project: Project) -> None:
    query = query_of(project)
    before = content(project.folder)
    with project.start("calibrate", query, "--seconds", "300", terminal=True) as command:
        command.wait_for("warming up")
        command.press_ctrl_c()
        result = command.finish()
        command.assert_gone()
    assert result.status == 1, result
    assert "too few to know what they cost" in result.out
    assert "Traceback" not in result.out
    assert content(project.folder) == before
    assert not list((project.folder.parent / "tmp").glob("millrace-calibrate-*"))


OWN = """
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from millrace import SinkBatch

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


class Events:
    def __init__(self, count: int) -> None:
        self.count = count

    def latest(self) -> int:
        return self.count

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        times = [BEGIN + timedelta(seconds=n / 10) for n in range(start, end)]
        columns = {"at": pa.array(times, pa.timestamp("us", "UTC")), "who": [f"who-{n % 50}" for n in range(start, end)]}
        yield pa.RecordBatch.from_pydict(columns | {"n": pa.array(range(start, end), pa.int32())})


def write(results: pa.Table, batch: SinkBatch) -> None:
    Path("written").touch()
"""


@pytest.mark.timeout(900)
def test_records_of_an_own_class_are_measured_and_an_own_sink_is_not_called(project: Project) -> None:
    project.write("own.py", OWN)

    def query(count: int) -> str:
        source = {"files": None, "python": {"read": "own:Events", "options": {"count": count}}}
        return project.query(SQL, source=source, sink={"python": {"write": "own:write"}})

    few = project.start("calibrate", query(40))
    with few:
        few.finish().assert_failed("query.yaml", "spec.sources.events.python", "source events has 40 records, too few")
    report = project.calibrated(query(4000))
    assert report["batches"] >= 6
    assert report["batch_records"][1] <= 4000
    assert not any("were late" in note for note in report["notes"])  # although they are read again and again
    assert not (project.folder / "written").exists()
    assert not (project.folder / "checkpoint").exists()


AWAY = """

class Leaving(Events):
    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        if Path("away").exists():
            raise ConnectionError("the store is away")
        yield from super().read(start, end)
"""


@pytest.mark.timeout(600)
def test_a_source_that_fails_later_ends_the_run_with_what_was_measured(project: Project) -> None:
    project.write("own.py", OWN + AWAY)
    source = {"files": None, "python": {"read": "own:Leaving", "options": {"count": 4000}}}
    query = project.query(SQL, source=source)
    with project.start("calibrate", query, "--seconds", "100", "--rate", "500", "--format", "json") as command:
        command.wait_for(r"replicas \d: .* records take", times=4)
        project.write("away", "")
        result = command.finish()
        command.assert_gone()
    assert result.status == 0, result
    (ended,) = [line for line in result.err.splitlines() if line.startswith("ended early: ")]
    assert "the store is away" in ended
    assert json.loads(result.out.removesuffix("starting=query\n"))["batches"] >= 6


@pytest.mark.timeout(300)
def test_what_cannot_be_calibrated_is_refused_in_one_sentence(project: Project) -> None:
    query = query_of(project)
    project.millrace("calibrate", query, "--rate", "-3").assert_failed("--rate is -3", "above 0")
    project.millrace("calibrate", query, "--rate", "nan").assert_failed("--rate is nan", "above 0")
    project.millrace("calibrate", query, "--seconds", "inf").assert_failed("--seconds is inf", "such as 90")
    short = project.millrace("calibrate", query, "--seconds", "nan")
    assert (short.status, short.err.splitlines()[-1].startswith("Error: Invalid value for '--seconds'")) == (2, True)
    (project.folder / "empty").mkdir()
    empty = project.query(SQL, name="none", source={"files": {"path": "empty", "format": "csv"}})
    project.millrace("calibrate", empty).assert_failed("source events has no record yet", "let some thousands arrive")
    topic = {"bootstrapServers": "127.0.0.1:1", "topic": "events"}
    remote = project.query(SQL, name="remote", source={"files": None, "kafka": topic, "format": "json"})
    found = project.millrace("calibrate", remote)
    found.assert_failed("in place of kafka of source events: files: {path: sample.jsonl, format: json}")
