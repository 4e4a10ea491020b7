"""Folders of any name: a query reads, writes and keeps its state where it was told to, and nowhere else."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from .cli import Project

pytestmark = pytest.mark.spark

SQL = "SELECT who, count(*) AS n FROM events GROUP BY who"
ODD = "my größe+%20#?{a,b}*[1]:,;'\"\\~$HOME&=|<x>`^😀e\u0301 \t\n"
HINT = "waiting for new files; --once and --available-now end a run here"


def relative(project: Project) -> str:
    """Write a query with relative paths, on the default checkpoint, with dead letters."""
    source = {
        "files": {"path": "in/*.csv", "format": "csv"},
        "corruptRecords": {"policy": "DeadLetter", "path": "dead"},
        "watermark": None,
    }
    file = project.folder / project.query(SQL, source=source)
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    del document["spec"]["checkpoint"]
    return project.write(file.name, yaml.safe_dump(document))


def test_a_query_runs_in_a_folder_of_any_name(tmp_path: Path) -> None:
    for decoy in ("my größe+%20#?{a,b}x1", "other"):
        Project(tmp_path / decoy).give("a.csv", "at,who,n\n2024-01-01T00:00:00Z,decoy,1\n")
    before = {path.name for path in tmp_path.iterdir()}
    project = Project(tmp_path / ODD)
    project.give("a.csv", "at,who,n\n2024-01-01T00:00:00Z,a,1\n2024-01-01T00:00:01Z,b,1\nbad\n")
    query = relative(project)

    first = project.millrace("run", query, "--once")
    assert first.status == 0, first
    assert project.results() == Counter({("a", "1", "0"): 1, ("b", "1", "0"): 1})
    (letters,) = (project.folder / "dead").iterdir()
    assert json.loads(letters.read_text(encoding="utf-8"))["text"] == "bad"

    repartitioned = project.millrace("state", "repartition", query, "--partitions", "3")
    assert "-> 3" in repartitioned.out, repartitioned
    project.give("b.csv", "at,who,n\n2024-01-01T00:00:02Z,a,1\n")
    again = project.millrace("run", query, "--once")
    assert again.status == 0, again
    assert project.results()["a", "2", "2"] == 1

    assert {path.name for path in tmp_path.iterdir()} == {*before, ODD}
    assert {path.name for path in project.folder.iterdir()} == {".millrace", "dead", "in", "out", query}


def test_a_place_with_a_scheme_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.give("a.csv", "at,who,n\n2024-01-01T00:00:00Z,a,1\n")
    for path, said in (("gs://lake/revenue", "write the path of a mounted folder"), ("file:///lake", "write /lake")):
        query = project.query(SQL, sink={"files": {"path": path, "format": "csv"}})
        for command in (["validate"], ["run", "--once"]):
            refused = project.millrace(*command, query)
            assert refused.status == 1
            assert f"spec.sink.files.path: {'is a URI' if path.startswith('file') else 'the scheme gs:'}" in (
                refused.out + refused.err
            )
            assert said in refused.out + refused.err
    assert {path.name for path in tmp_path.iterdir()} == {"in", query}


def test_a_file_that_was_appended_to_after_it_was_read_is_an_error_of_the_next_run(tmp_path: Path) -> None:
    project = Project(tmp_path)
    query = project.query(SQL)
    text = "at,who,n\n2024-01-01T00:00:00Z,a,1\n"
    project.give("a.csv", text)
    assert project.millrace("run", query, "--once").status == 0
    with (project.inbox / "a.csv").open("a", encoding="utf-8") as file:
        file.write("2024-01-01T00:00:01Z,a,1\n")
    more = len(text) + len("2024-01-01T00:00:01Z,a,1\n")
    project.millrace("run", query, "--once").assert_failed(
        f"in/a.csv: had {len(text)} bytes when it was seen and has {more} now"
    )


def test_a_run_that_found_no_record_says_where_it_looked(tmp_path: Path) -> None:
    project = Project(tmp_path)
    query = project.query(SQL)
    empty = project.millrace("run", query, "--once")
    assert empty.status == 0, empty
    assert f"note: no record was read: source events found no files in {project.inbox}" in empty.out.splitlines()
    project.give("a.csv", "")
    project.give("b.csv", "at,who,n\n")
    none = project.millrace("run", query, "--once")
    assert none.status == 0, none
    assert (
        f"note: no record was read: source events found no record in the files in {project.inbox}"
        in none.out.splitlines()
    )


def test_a_run_that_waits_for_files_says_so_once(tmp_path: Path) -> None:
    project = Project(tmp_path)
    query = project.query(SQL)
    project.give("a.csv", "at,who,n\n2024-01-01T00:00:00Z,a,1\n")
    with project.start("run", query) as run:
        run.wait_for(HINT)
        project.give("b.csv", "at,who,n\n2024-01-01T00:00:01Z,a,1\n")
        out = run.wait_for("rows=1", 2)
    assert out.count(HINT) == 1
    assert f"note: all records were read of the files in {project.inbox}: {HINT}" in out.splitlines()
