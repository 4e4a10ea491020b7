"""``--once``: what is there is processed, every window is final, and the next run takes only what is new."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .cli import Project

pytestmark = [pytest.mark.in_turn, pytest.mark.spark]

SQL = """
SELECT window.start AS since, who, count(*) AS rows, sum(n) AS total
FROM events GROUP BY window(at, '1 minute'), who
"""
STEPS = ["opening the checkpoint and the sources", "starting Spark", "compiling the query", "preparing the sink"]
RECORDS = [("2024-01-01T00:00:01Z", "a", 1), ("2024-01-01T00:00:30Z", "b", 2), ("2024-01-01T00:00:59Z", "a", 3)]
LATER = [("2024-01-01T00:00:02Z", "a", 100), ("2024-01-01T00:05:00Z", "b", 5)]


def as_csv(records: list[tuple[str, str, int]]) -> str:
    return "at,who,n\n" + "".join(f"{at},{who},{n}\n" for at, who, n in records)


def as_json(records: list[tuple[str, str, int]]) -> str:
    return "".join(f'{{"n": {n}, "at": "{at}", "who": "{who}"}}\n' for at, who, n in records)


def give(project: Project, format: str, name: str, records: list[tuple[str, str, int]]) -> None:
    """Let a file of this format arrive."""
    if format == "parquet":
        at, who, n = (list(column) for column in zip(*records, strict=True))
        times = [datetime.fromisoformat(text) for text in at]
        schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("who", pa.string()), ("n", pa.int32())])
        pq.write_table(pa.table([times, who, n], schema=schema), project.folder / "new.parquet")
        (project.folder / "new.parquet").rename(project.inbox / f"{name}.parquet")
    else:
        project.give(f"{name}.{format}", {"csv": as_csv, "json": as_json}[format](records))


@pytest.mark.parametrize(("format", "algorithm"), [("csv", "pkg"), ("json", "hash"), ("parquet", "native")])
def test_windows_of_a_bounded_input_are_final_and_later_files_come_on_top(
    tmp_path: Path, format: str, algorithm: str
) -> None:
    project = Project(tmp_path)
    source = {"files": {"path": "in", "format": format}}
    query = project.query(SQL, source=source, emit="OnWindowClose", partitioner={"algorithm": algorithm})

    give(project, format, "first", RECORDS)
    first = project.millrace("run", query, "--once")
    assert first.status == 0, first
    assert not first.err
    assert re.findall(r'step="([^"]+)"', first.out) == STEPS
    assert (first.summary["rows"], first.summary["results"], first.summary["late"]) == ("3", "2", "0")
    closed = Counter(
        {("2024-01-01T00:00:00.000000Z", "a", "2", "4"): 1, ("2024-01-01T00:00:00.000000Z", "b", "1", "2"): 1}
    )
    assert project.results() == closed

    give(project, format, "later", LATER)
    later = project.millrace("run", query, "--once")
    assert later.status == 0, later
    assert (later.summary["rows"], later.summary["results"], later.summary["late"]) == ("2", "1", "1")
    assert "an earlier run closed all windows up to 2024-01-01T00:01:00Z when its input ended" in later.out
    assert project.results() == closed + Counter({("2024-01-01T00:05:00.000000Z", "b", "1", "5"): 1})


@pytest.mark.parametrize("algorithm", ["hash", "native"])
def test_runs_that_leave_windows_open_count_every_record_once(tmp_path: Path, algorithm: str) -> None:
    project = Project(tmp_path)
    query = project.query(SQL, emit="OnWindowClose", partitioner={"algorithm": algorithm})
    give(project, "csv", "first", RECORDS)
    first = project.millrace("run", query, "--available-now")
    assert (first.status, first.summary["rows"], first.summary["results"]) == (0, "3", "0"), first

    give(project, "csv", "later", LATER)
    later = project.millrace("run", query, "--available-now")
    assert (later.status, later.summary["late"]) == (0, "0"), later
    first_minute = Counter(
        {("2024-01-01T00:00:00.000000Z", "a", "3", "104"): 1, ("2024-01-01T00:00:00.000000Z", "b", "1", "2"): 1}
    )
    assert project.results() == first_minute

    last = project.millrace("run", query, "--once")
    assert (last.status, last.summary["rows"], last.summary["late"]) == (0, "0", "0"), last
    assert project.results() == first_minute + Counter({("2024-01-01T00:05:00.000000Z", "b", "1", "5"): 1})


def test_windows_are_either_closed_or_left_open(tmp_path: Path) -> None:
    project = Project(tmp_path)
    refused = project.millrace("run", project.query(SQL, emit="OnWindowClose"), "--once", "--available-now")
    assert refused.status == 2
    assert "--once closes all windows at the end, --available-now leaves them open" in " ".join(refused.err.split())


def test_a_new_checkpoint_does_not_mix_its_results_with_those_of_an_older_one(tmp_path: Path) -> None:
    project = Project(tmp_path)
    query = project.query(SQL, emit="OnWindowClose")
    give(project, "csv", "first", RECORDS)
    assert project.millrace("run", query, "--once").status == 0
    before = project.results()
    assert before
    shutil.rmtree(tmp_path / "checkpoint")
    refused = project.millrace("run", query, "--once")
    refused.assert_failed(
        f"spec.sink.files.path: the folder {tmp_path / 'out'} has results of an earlier run",
        "remove the folder to start over, or write another path",
    )
    assert project.results() == before
    shutil.rmtree(tmp_path / "out")
    assert project.millrace("run", query, "--once").status == 0
    assert project.results() == before


def test_an_empty_folder_is_an_input_without_records(tmp_path: Path) -> None:
    project = Project(tmp_path)
    query = project.query(SQL, emit="OnWindowClose")
    for _ in range(2):
        empty = project.millrace("run", query, "--once")
        assert (empty.status, empty.err) == (0, ""), empty
        assert (empty.summary["finished"], empty.summary["rows"], empty.summary["results"]) == ("query", "0", "0")


def test_results_are_the_standard_output_and_progress_is_not(tmp_path: Path) -> None:
    project = Project(tmp_path)
    give(project, "csv", "first", RECORDS)
    query = project.query("SELECT who, n FROM events", sink={"console": {"rows": 2}})
    status, results, progress = project.outputs("run", query, "--once")
    assert status == 0, progress
    assert re.fullmatch(r"(who=\w+ n=\d+\n){2}", results)
    assert re.search(r"^note: results of batch 0, first 2 of \d+ \(spec\.sink\.console\.rows\)$", progress, re.M)
    assert re.search(r"^batch=0 .*\n", progress, re.M)
    assert progress.splitlines()[-1].startswith("finished=query ")


@pytest.mark.parametrize("emit", ["OnUpdate", "OnWindowClose"])
def test_a_run_without_new_input_says_so_and_how_to_start_over(tmp_path: Path, emit: str) -> None:
    project = Project(tmp_path)
    query = project.query(SQL, emit=emit)
    give(project, "csv", "first", RECORDS)
    assert "nothing new" not in project.millrace("run", query, "--once").out
    before = project.results()
    again = project.millrace("run", query, "--once")
    assert (again.status, again.summary["batches"]) == (0, "0"), again
    places = f"{tmp_path / 'checkpoint'} and {tmp_path / 'out'}"
    said = f"note: nothing new: all input was processed by an earlier run; remove {places} to start over"
    assert said in again.out.splitlines()
    for folder in ("checkpoint", "out"):
        shutil.rmtree(tmp_path / folder)
    assert project.millrace("run", query, "--once").status == 0
    assert project.results() == before


def test_times_keep_all_their_digits(tmp_path: Path) -> None:
    project = Project(tmp_path)
    give(project, "csv", "first", [("2024-01-01T00:00:01.123456Z", "a", 1)])
    query = project.query("SELECT at, who, n FROM events")
    assert project.millrace("run", query, "--once").status == 0
    assert project.results() == Counter({("2024-01-01T00:00:01.123456Z", "a", "1", "0"): 1})
