"""The command line as far as it goes without Spark: help, validate, crd, and what ``run`` refuses at once."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.cli import main
from millrace_jobs.process import jvm
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
    """Runs a command in this process, in the project's folder; it ends before it needs the JVM, which is not started."""
    monkeypatch.setattr(jvm, "start", lambda *_, **__: None)
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["millrace", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert isinstance(end.value.code, int)
        return Result.of_outputs(end.value.code, *capfd.readouterr())

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


def test_version_is_that_of_the_distribution(millrace: Millrace) -> None:
    assert millrace("--version") == Result(0, f"millrace {version('millrace')}\n", "")


@pytest.mark.parametrize(
    "command", [["run", "query.yaml"], ["driver", "q.yaml", "--plan", "p", "--plan-config-map", "c"]]
)
def test_a_batch_cannot_be_given_less_than_no_time_to_end(millrace: Millrace, command: list[str]) -> None:
    result = millrace(*command, "--grace", "-3")
    assert result.status == 2
    assert "Invalid value for '--grace'" in result.err


def test_validate_notes_an_interval_that_no_batch_can_keep(project: Project, millrace: Millrace) -> None:
    project.give("1.csv", RECORDS)
    short = project.query(SQL, name="short", batchInterval="200ms")
    result = millrace("validate", short)
    assert result.status == 0
    note, verdict = result.out.splitlines()
    assert note.startswith(f"note: {short}:")
    assert "spec.batchInterval: '200ms' is shorter than the 0.4 s of the smallest routed batch" in note
    assert verdict == "1 file without a problem"
    assert "note" not in millrace("validate", project.query(SQL, name="longer", batchInterval="400ms")).out


@pytest.mark.parametrize(
    ("format", "file"), [("yaml", "streamqueries.millrace.io.yaml"), ("json-schema", "streamquery.schema.json")]
)
def test_crd_prints_the_files_of_the_repository(millrace: Millrace, format: str, file: str) -> None:
    result = millrace("crd", "--format", format)
    assert result.status == 0
    assert result.out == (REPOSITORY / "crds" / file).read_text(encoding="utf-8")


def test_validate_reports_every_problem_of_every_file(project: Project, millrace: Millrace) -> None:
    project.give("1.csv", RECORDS)
    good = project.query(SQL, name="good", batchInterval="1s")
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


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            {"files": {"path": "gone/*.csv", "format": "csv"}},
            ["files.path: gone/*.csv: source events: no file matches this path; write a file, a folder or a glob"],
        ),
        (
            {"files": {"path": "other.csv", "format": "csv"}},
            ["files.path: ", "other.csv:1: the header has no column who; it has at, name, n; correct the schema"],
        ),
        (
            {"files": None, "replay": {"path": "gone.csv", "format": "csv", "timeColumn": "at"}},
            ["replay.path: gone.csv: source events: there is no such file; write the path of one csv, json or parquet"],
        ),
        (
            {"files": None, "replay": {"path": "other.csv", "format": "csv", "timeColumn": "at"}},
            ["replay.path: other.csv:1: the header has no column who; it has at, name, n"],
        ),
        (
            {"files": {"path": "other.csv", "format": "parquet"}},
            ["files.path: ", "other.csv: cannot be read as parquet"],
        ),
        (
            {"files": {"path": "other.parquet", "format": "parquet"}},
            ["files.path: ", "other.parquet: column at (TIMESTAMP): its type is BIGINT; set timestampFormat to"],
        ),
        (
            {
                "timestampFormat": "seconds",
                "files": None,
                "replay": {"path": "other.parquet", "format": "parquet", "timeColumn": "at"},
            },
            ["replay.path: ", "other.parquet: column n (INT): its type is STRING; write n STRING in the schema"],
        ),
    ],
)  # fmt: skip
def test_validate_looks_at_the_files_of_the_sources(
    project: Project, millrace: Millrace, source: dict[str, Any], said: list[str]
) -> None:
    project.give("1.csv", RECORDS)
    project.write("other.csv", "at,name,n\n2024-01-01T00:00:01Z,a,1\n")
    pq.write_table(pa.table({"at": [1], "who": ["a"], "n": ["one"]}), project.folder / "other.parquet")
    file = project.query(SQL, source=source, batchInterval="1s")
    result = millrace("validate", file)
    assert result.status == 1, result
    assert re.match(rf"{file}:\d+: spec\.sources\.events\.{said[0].split(':')[0]}: ", result.out), result
    for text in said:
        assert text in result.out
    assert millrace("validate", file, "--no-inputs") == Result(0, "1 file without a problem\n", "")
    for command in (("run", file, "--once"), ("explain", file)):
        millrace(*command).assert_failed(*(text.partition(": ")[2] for text in said))
    assert not (project.folder / "out").exists()


def test_validate_accepts_files_that_were_read_and_have_gone(project: Project, millrace: Millrace) -> None:
    (project.folder / "checkpoint" / "sources" / "events").mkdir(parents=True)
    seen = {"path": str(project.inbox / "0.csv"), "size": 1, "mtime_ns": 1}
    project.write("checkpoint/sources/events/files.jsonl", json.dumps(seen) + "\n")
    file = project.query(SQL, source={"files": {"path": "in/*.csv", "format": "csv"}}, batchInterval="1s")
    assert millrace("validate", file) == Result(0, "1 file without a problem\n", "")


@pytest.mark.parametrize(
    ("path", "schema", "said"),
    [("inn/*.csv", "who STRING", "no file matches this path"), ("in/*.csv", "whom STRING", "whom")],
)
def test_validate_checks_places_and_headers_also_after_an_earlier_run(
    project: Project, millrace: Millrace, path: str, schema: str, said: str
) -> None:
    project.give("1.csv", RECORDS)
    (project.folder / "checkpoint" / "sources" / "events").mkdir(parents=True)
    stat = (project.inbox / "1.csv").stat()
    seen = {"path": str(project.inbox / "1.csv"), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    project.write("checkpoint/sources/events/files.jsonl", json.dumps(seen) + "\n")
    source = {"files": {"path": path, "format": "csv"}, "schema": schema, "watermark": None}
    sql = f"SELECT {schema.partition(' ')[0]} FROM events"
    assert said in millrace("validate", project.query(sql, source=source, batchInterval="1s")).out


def test_validate_takes_an_aggregator_over_messages_with_metadata(project: Project, millrace: Millrace) -> None:
    kafka = {"bootstrapServers": "127.0.0.1:1", "topic": "events", "includeMetadata": True}
    python = {"aggregator": "trouble.aggregators:Extremes", "options": {"column": "_offset"}, "groupBy": ["who"]}
    sources = {"events": {"kafka": kafka, "schema": "who STRING"}}
    file = project.query(query={"python": python}, sources=sources, emit="OnUpdate", batchInterval="1s")
    assert millrace("validate", file) == Result(0, "1 file without a problem\n", "")


def test_validate_checks_the_parameters_of_the_partitioner(project: Project, millrace: Millrace) -> None:
    file = project.query(SQL, name="placed", partitioner={"algorithm": "pkg", "parameters": {"choices": 0}})
    result = millrace("validate", file)
    assert result.status == 1
    said = (
        r"placed\.yaml:\d+: spec\.partitioner\.parameters: parameter 'choices' of partitioner pkg is 0; write a whole"
    )
    assert re.search(said, result.out), result.out


@pytest.mark.parametrize(
    ("aggregator", "said"),
    [
        (
            "nowhere.sums:Sums",
            "'nowhere.sums:Sums' cannot be imported: No module named 'nowhere'; put it beside the query's file",
        ),
        ("sums:Mean", "module 'sums' has no class 'Mean'; write one of its classes: Sums"),
    ],
)
def test_validate_imports_the_aggregator(project: Project, millrace: Millrace, aggregator: str, said: str) -> None:
    project.give("1.csv", RECORDS)
    project.write("sums.py", "class Sums: ...\n")
    file = project.query(query={"python": {"aggregator": aggregator, "groupBy": ["who"]}}, batchInterval="1s")
    result = millrace("validate", file)
    assert result.status == 1, result
    assert re.match(rf"{file}:\d+: spec\.query\.python\.aggregator: {re.escape(said)}", result.out), result
    assert millrace("validate", file, "--no-inputs").status == 0


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"source": {"schema": "at TIMESTAMP, who STRIN"}}, ['"STRIN" is not a type', "did you mean STRING?"]),
        ({"source": {"watermark": None}}, ["watermark"]),
        ({"sql": "SELECT whom FROM events"}, ['no column "whom" (line 1, column 8 of the SQL)', 'did you mean "who"?']),
        (
            {"sql": "SELECT who FROM events ORDER BY n"},
            ["ORDER BY needs all records", "(line 1, column 24 of the SQL)"],
        ),
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
            {"sink": {"files": {"path": "in/1.csv"}}},
            [": spec.sink.files.path: results cannot be written to", "in/1.csv"],
        ),
    ],
)
def test_run_refuses_at_once(project: Project, millrace: Millrace, spec: dict[str, Any], said: list[str]) -> None:
    project.give("1.csv", RECORDS)
    given = dict(spec)
    query = project.query(given.pop("sql", SQL), **given, **({} if "sql" in spec else {"emit": "OnWindowClose"}))
    millrace("run", query, "--once").assert_failed(*said)
    assert not (project.folder / "out").exists()


@pytest.mark.parametrize("command", ["validate", "explain"])
@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT name FROM events ORDER BY n", "ORDER BY needs"),
        ("SELECT stddev(DISTINCT n) AS c FROM events", "which DISTINCT in an aggregate needs"),
        ("SELECT uper(name) AS u FROM events", "uper"),
    ],
)
def test_validate_and_explain_refuse_what_cannot_run_as_a_stream(
    project: Project, millrace: Millrace, command: str, sql: str, said: str
) -> None:
    project.give("1.csv", RECORDS)
    result = millrace(command, project.query(sql))
    assert result.status == 1, result
    assert said in result.out + result.err
    assert "Spark does not accept" not in result.out + result.err  # it was not started


@pytest.mark.parametrize("command", [("run", "--once"), ("explain",)])
def test_a_query_from_standard_input_is_refused_with_its_lines(
    project: Project, millrace: Millrace, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    text = (project.folder / project.query(SQL, batchInterval="soon")).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    result = millrace(*command, "-")
    result.assert_failed("spec.batchInterval: ")
    assert re.match(r"error: stdin:\d+: ", result.err), result


def test_own_code_of_a_query_from_standard_input_is_in_the_working_folder(
    project: Project, millrace: Millrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.give("1.csv", RECORDS)
    project.write("tallies.py", "class Sums: ...\n")
    python = {"aggregator": "tallies:Mean", "groupBy": ["who"]}
    text = (project.folder / project.query(query={"python": python}, batchInterval="1s")).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert "module 'tallies' has no class 'Mean'; write one of its classes: Sums" in millrace("validate", "-").out


def test_run_refuses_missing_and_broken_files_and_several_queries(project: Project, millrace: Millrace) -> None:
    millrace("run", "missing.yaml").assert_failed("missing.yaml: there is no such file; check the path")
    project.write("broken.yaml", "kind: StreamQuery\nmetadata: {name: x\nspec: \n")
    millrace("run", "broken.yaml").assert_failed("broken.yaml:3: is not valid YAML at column 5")
    one, other = (project.folder / project.query(SQL, name=name) for name in ("one", "other"))
    both = project.write("both.yaml", one.read_text(encoding="utf-8") + "---\n" + other.read_text(encoding="utf-8"))
    millrace("run", both).assert_failed("both.yaml: the file has the queries one, other; choose one with --query NAME")
    millrace("run", both, "--query", "two").assert_failed("the file has no query two, only one, other")
    millrace("run", str(one.name), "--plan", "plan.yaml").assert_failed("plan.yaml: there is no such file")


def test_a_checkpoint_that_cannot_be_used_is_refused(project: Project, millrace: Millrace) -> None:
    project.give("1.csv", RECORDS)
    below = project.query(SQL, checkpoint={"uri": (project.inbox / "1.csv" / "state").as_uri()})
    millrace("run", below).assert_failed(": spec.checkpoint: the checkpoint", "cannot be written: Not a directory")

    # nothing to read, so that the run ends before Spark starts; it leaves nothing behind
    query = project.query(SQL, source={"files": {"path": "nowhere/*.csv", "format": "csv"}})
    millrace("run", query).assert_failed("no file matches this path")
    assert not (project.folder / "checkpoint").exists()

    (project.folder / "checkpoint").mkdir()
    with (project.folder / "checkpoint" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        millrace("run", query).assert_failed("another run is using the checkpoint", "end that run first")


class StartingRun:
    """In place of a run that takes as long as a test wants to start, or to end a batch."""

    started = False
    stop_requested = False

    def __enter__(self) -> StartingRun:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def is_starting(self) -> bool:
        return not self.started

    def stop(self) -> None:
        self.stop_requested = True

    def abandon(self) -> None:
        pass

    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert abandoned.wait(30)


abandoned = threading.Event()


def start_at_once(monkeypatch: pytest.MonkeyPatch, job: StartingRun) -> None:
    """Let ``run`` have this job, whatever its file."""
    query = SimpleNamespace(name="query")
    monkeypatch.setattr("millrace_jobs.commands.run.query_for_spark", lambda *_, **__: query)
    monkeypatch.setattr("millrace_jobs.run.job.Job", lambda *_, **__: job)


@pytest.mark.parametrize(
    ("started", "said"),
    [
        (False, "the run, which had not started yet, did not end within 0.01 s and was abandoned; run the same"),
        (True, "the running batch did not end within 0.01 s and was abandoned; run the same command again"),
    ],
)
def test_what_did_not_end_in_time_is_called_what_it_is(
    millrace: Millrace, monkeypatch: pytest.MonkeyPatch, started: bool, said: str
) -> None:
    starting = StartingRun()
    starting.started = started
    abandoned.clear()
    statuses: list[int] = []
    start_at_once(monkeypatch, starting)
    monkeypatch.setattr("os._exit", lambda status: (statuses.append(status), abandoned.set()))
    result = millrace("run", "query.yaml", "--grace", "0.01")
    assert said in result.err
    assert statuses == [1]


def test_a_run_that_failed_while_it_ended_is_not_abandoned_as_well(
    millrace: Millrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = StartingRun()

    def fail() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise MillraceError(Problem("the topic has gone", "make it again"))

    monkeypatch.setattr(starting, "run", fail)
    start_at_once(monkeypatch, starting)
    before = threading.active_count()
    millrace("run", "query.yaml", "--grace", "600").assert_failed("the topic has gone; make it again")
    ended = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < ended, "the timer goes on"
        time.sleep(0.01)


def test_debug_shows_where_an_error_comes_from(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["millrace", "run", os.fspath(project.folder / "missing.yaml"), "--debug"])
    with pytest.raises(Exception, match="there is no such file"):
        main()


def test_a_mistake_of_ours_is_no_traceback_either(millrace: Millrace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("the moon is in the way\nof everything")

    monkeypatch.setattr("millrace_jobs.cli._add_other_commands", fail)
    millrace().assert_failed("this should not have happened: RuntimeError: the moon is in the way; run with --debug")
