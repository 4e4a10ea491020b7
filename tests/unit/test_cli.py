"""The command line as far as it goes without Spark: help, validate, crd, and what ``run`` refuses at once."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace_jobs.cli import main
from spark.cli import Project, Result

REPOSITORY = Path(__file__).parents[2]
SQL = "SELECT window.start AS since, who, count(*) AS rows FROM events GROUP BY window(at, '1 minute'), who"
RECORDS = "at,who,n\n2024-01-01T00:00:01Z,a,1\n"

Millrace = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def millrace(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Millrace]:
    """Runs a command in this process, in the project's folder."""
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["millrace", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert isinstance(end.value.code, int)
        return Result(end.value.code, *capfd.readouterr())

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_help_is_quick_because_it_imports_no_engine() -> None:
    script = "import sys; sys.argv = ['millrace', '--help']\nfrom millrace_jobs.cli import main\ntry: main()\nfinally: "
    script += "print({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'numba', 'numpy', 'pyarrow'})"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "Usage: millrace" in said
    assert all(command in said for command in ("run", "validate", "explain", "crd"))
    assert said.endswith("set()\n")


def test_no_arguments_print_the_help(millrace: Millrace) -> None:
    result = millrace()
    assert result.status == 2
    assert "Streaming queries on Spark" in result.out + result.err


@pytest.mark.parametrize(
    ("format", "file"), [("yaml", "streamqueries.millrace.io.yaml"), ("json-schema", "streamquery.schema.json")]
)
def test_crd_prints_the_files_of_the_repository(millrace: Millrace, format: str, file: str) -> None:
    result = millrace("crd", "--format", format)
    assert result.status == 0
    assert result.out == (REPOSITORY / "crds" / file).read_text(encoding="utf-8")


def test_validate_reports_every_problem_of_every_file(project: Project, millrace: Millrace) -> None:
    good = project.query(SQL, name="good")
    assert millrace("validate", good) == Result(0, "1 file without a problem\n", "")
    assert millrace("validate", good, "--format", "json") == Result(0, "[]\n", "")

    bad = project.query("SELECT whom, n FROM event", name="bad", batchInterval="soon")
    text = millrace("validate", good, bad, "missing.yaml")
    assert text.status == 1
    assert "missing.yaml: there is no such file" in text.out
    listed = millrace("validate", good, bad, "missing.yaml", "--format", "json")
    problems = json.loads(listed.out)
    assert listed.status == 1
    assert {"message", "hint", "file", "line", "field"} == set(problems[0])
    assert {problem["field"] for problem in problems} >= {"spec.query.sql", "spec.batchInterval"}
    assert len(text.out.splitlines()) == len(problems)


def test_validate_checks_the_parameters_of_the_partitioner(project: Project, millrace: Millrace) -> None:
    file = project.query(SQL, name="placed", partitioner={"algorithm": "pkg", "parameters": {"choices": 0}})
    result = millrace("validate", file)
    assert result.status == 1
    said = (
        r"placed\.yaml:\d+: spec\.partitioner\.parameters: parameter 'choices' of partitioner pkg is 0; write a whole"
    )
    assert re.search(said, result.out), result.out


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"source": {"schema": "at TIMESTAMP, who STRIN"}}, ['"STRIN" is not a type', "did you mean STRING?"]),
        ({"source": {"watermark": None}}, ["watermark"]),
        ({"sql": "SELECT whom FROM events"}, ['no column "whom" (line 1, column 8 of the SQL)', 'did you mean "who"?']),
        ({"sql": "SELECT count(* AS rows\nFROM events"}, ["the SQL does not parse at line 1, column 16"]),
        ({"source": {"files": {"path": "gone/*.csv", "format": "csv"}}}, ["gone/*.csv", "no file matches this path"]),
        (
            {"partitioner": {"algorithm": "pkg", "parameters": {"choises": 3}}},
            [
                ": spec.partitioner.parameters: partitioner pkg has no parameter 'choises'; write one of: choices, slides"
            ],
        ),
        (
            {"partitioner": {"algorithm": "cam", "parameters": {"slides": 3}}},
            [
                "parameter 'slides' of partitioner cam is 3, but workers combine micro-batch by micro-batch",
                "leave it out",
            ],
        ),
        (
            {"partitioner": {"algorithm": "auto", "parameters": {"choices": 3}}},
            [": spec.partitioner.parameters: algorithm auto takes no parameters, but has choices; leave them out"],
        ),
        (
            {"sink": {"kafka": {"bootstrapServers": "kafka:9092", "topic": "rows"}}},
            [": spec.sink: sink kafka is not in this version; write files: {path: ...} or console: {}"],
        ),
        (
            {"source": {"kafka": {"bootstrapServers": "kafka:9092", "topic": "rows"}, "format": "json"}},
            [": spec.sources.events: source kafka is not in this version; write files, replay or rate"],
        ),
        (
            {"sink": {"files": {"path": "in/1.csv"}}},
            [": spec.sink.files.path: results cannot be written to", "in/1.csv"],
        ),
    ],
)
def test_run_refuses_at_once(project: Project, millrace: Millrace, spec: dict[str, Any], said: list[str]) -> None:
    project.give("1.csv", RECORDS)
    given = dict(spec)
    if "kafka" in given.get("source", {}):
        given["source"] = {"files": None, **given["source"]}
    query = project.query(given.pop("sql", SQL), **given, **({} if "sql" in spec else {"emit": "OnWindowClose"}))
    millrace("run", query, "--once").assert_failed(*said)
    assert not (project.folder / "out").exists()


def test_run_without_a_file_with_a_broken_one_and_with_too_many_queries(project: Project, millrace: Millrace) -> None:
    millrace("run", "missing.yaml").assert_failed("missing.yaml: there is no such file; check the path")
    project.write("broken.yaml", "kind: StreamQuery\nmetadata: {name: x\nspec: \n")
    millrace("run", "broken.yaml").assert_failed("broken.yaml:3: is not valid YAML at column 5")
    one, other = (project.folder / project.query(SQL, name=name) for name in ("one", "other"))
    both = project.write("both.yaml", one.read_text(encoding="utf-8") + "---\n" + other.read_text(encoding="utf-8"))
    millrace("run", both).assert_failed("both.yaml: the file has the queries one, other; choose one by --query NAME")
    millrace("run", both, "--query", "two").assert_failed("choose one by --query NAME")
    millrace("run", str(one.name), "--plan", "plan.yaml").assert_failed("plan.yaml: there is no such file")


def test_a_checkpoint_that_cannot_be_used(project: Project, millrace: Millrace) -> None:
    project.give("1.csv", RECORDS)
    below = project.query(SQL, checkpoint={"uri": (project.inbox / "1.csv" / "state").as_uri()})
    millrace("run", below).assert_failed(": spec.checkpoint: the checkpoint", "cannot be written: Not a directory")

    broken = {"files": {"path": "in/1.csv"}}  # so that the checkpoint is made, and the run ends before Spark starts
    query = project.query(SQL, sink=broken)
    millrace("run", query).assert_failed("spec.sink.files.path")
    other = project.query(SQL.replace("count(*)", "sum(n)"), sink=broken)
    millrace("run", other).assert_failed("is of another query: its query was", "count(*)", "and is now", "sum(n)")

    with (project.folder / "checkpoint" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        millrace("run", query).assert_failed("another run is using the checkpoint", "end that run first")


def test_debug_shows_where_an_error_comes_from(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["millrace", "run", os.fspath(project.folder / "missing.yaml"), "--debug"])
    with pytest.raises(Exception, match="there is no such file"):
        main()


def test_a_mistake_of_ours_is_no_traceback_either(millrace: Millrace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("the moon is in the way\nof everything")

    monkeypatch.setattr("millrace_jobs.cli._add_other_commands", fail)
    millrace().assert_failed("this should not have happened: RuntimeError: the moon is in the way; run with --debug")
